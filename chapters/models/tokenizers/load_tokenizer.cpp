#include "chapters/models/tokenizers/load_tokenizer.hpp"

#include "chapters/models/tokenizers/gguf_tokenizer.hpp"
#include "chapters/models/tokenizers/llama2c_tokenizer.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "chapters/models/tokenizers/vocab_txt.hpp"
#include "common/files/json_file.hpp"
#include "common/files/mapped_file.hpp"

namespace llm::models {
namespace {

// The class that transformers 5 writes if a tokenizer needs none of its own.
bool is_tokenizers_backend(const JsonFile& json) {
    return json.is_text("tokenizer_class") &&
           json.text("tokenizer_class") == "TokenizersBackend";
}

// transformers writes the post-processor of these classes anew, from add_bos_token and
// add_eos_token; that of TokenizersBackend only if the file has one of the two. Other classes
// ignore them. Source: tokenization_utils_tokenizers.py.
bool obeys_add_bos_token(const JsonFile& json) {
    if (is_tokenizers_backend(json))
        return json.has("add_bos_token") || json.has("add_eos_token");
    const std::string name =
        json.is_text("tokenizer_class") ? json.text("tokenizer_class") : "";
    return name.starts_with("Llama") || name.starts_with("CodeLlama") ||
           name.starts_with("Gemma");
}

// tokenizer_config.json: a BOS and an EOS token, if no other file has one, and whether the text
// begins with BOS. Throws FileError for an EOS token after the text.
void read_tokenizer_config(const JsonFile& json, Tokenizer& tokenizer) {
    if (!tokenizer.bos_token_id)
        tokenizer.bos_token_id = special_token_id(json, "bos_token", tokenizer);
    const auto eos = special_token_id(json, "eos_token", tokenizer);
    // Of BERT, transformers makes the normalizer anew if these differ.
    if (tokenizer.normalizers.size() == 1)
        if (auto* settings = tokenizer.normalizers[0].normalize.target<BertNormalizer>())
            read_bert_settings(json, *settings);
    if (tokenizer.eos_token_ids.empty() && eos) tokenizer.eos_token_ids = {*eos};
    if (!obeys_add_bos_token(json)) return;
    if (json.boolean_or("add_eos_token", false))
        json.reject_value("add_eos_token", "true", "false");
    tokenizer.suffix_tokens.clear();  // add_eos_token is false
    const bool begins_with_bos = !tokenizer.prefix_tokens.empty();
    const bool otherwise = begins_with_bos && !is_tokenizers_backend(json);
    if (json.boolean_or("add_bos_token", otherwise) == begins_with_bos) return;
    tokenizer.prefix_tokens.clear();
    if (begins_with_bos) return;
    if (!tokenizer.bos_token_id)
        json.reject("add_bos_token", "is true, but there is no BOS token");
    tokenizer.prefix_tokens = {*tokenizer.bos_token_id};
}

// Reads the configuration files in a folder.
void read_bos_and_eos(const std::string& folder, Tokenizer& tokenizer) {
    for (const std::string name : {"/config.json", "/generation_config.json"}) {
        if (!is_file(folder + name)) continue;
        const JsonFile json(folder + name);
        if (const std::vector<Id> bos = token_ids(json, "bos_token_id"); !bos.empty())
            tokenizer.bos_token_id = bos[0];
        if (const std::vector<Id> eos = token_ids(json, "eos_token_id"); !eos.empty())
            tokenizer.eos_token_ids = eos;
    }
    if (const std::string file = folder + "/tokenizer_config.json"; is_file(file))
        read_tokenizer_config(JsonFile(file), tokenizer);
}

}  // namespace

std::vector<Id> token_ids(const JsonFile& json, const std::string& key) {
    for (const std::string& found : {key, "text_config." + key})
        if (json.has(found)) return json.ids(found);
    return {};
}

std::optional<Id> special_token_id(const JsonFile& json, const std::string& key,
                                   const Tokenizer& tokenizer) {
    if (!json.has(key)) return std::nullopt;
    const std::string token = json.text(json.is_object(key) ? key + ".content" : key);
    const auto found = tokenizer.vocab.find(token);
    return found == tokenizer.vocab.end() ? std::nullopt : std::optional(found->second);
}

Tokenizer load_tokenizer(const std::string& path, std::optional<std::size_t> vocab_size) {
    if (path.ends_with(".gguf") || is_gguf(path))
        return read_gguf_tokenizer(Gguf(path), vocab_size);
    if (path.ends_with(".txt")) return load_vocab_txt(path, vocab_size);
    if (!path.ends_with(".json")) return load_llama2c_tokenizer(path, vocab_size);
    Tokenizer tokenizer = load_tokenizer_json(path, vocab_size);
    const std::size_t slash = path.rfind('/');
    read_bos_and_eos(slash == path.npos ? "." : path.substr(0, slash), tokenizer);
    return tokenizer;
}

std::string find_tokenizer_file(const std::string& model_path, std::size_t vocab_size) {
    if (is_folder(model_path)) {
        const std::string json = model_path + "/tokenizer.json",
                          lines = model_path + "/vocab.txt";
        return !is_file(json) && is_file(lines) ? lines : json;
    }
    if (is_gguf(model_path)) return model_path;
    const std::size_t slash = model_path.rfind('/');
    const std::string folder = slash == model_path.npos ? "" : model_path.substr(0, slash + 1);
    for (const std::string& name :
         {"tok" + to_text(vocab_size) + ".bin", std::string("tokenizer.bin")})
        if (is_file(folder + name)) return folder + name;
    throw FileError(model_path + ": there is neither tok" + to_text(vocab_size) +
                    ".bin nor tokenizer.bin beside it; --tokenizer names another file");
}

}  // namespace llm::models
