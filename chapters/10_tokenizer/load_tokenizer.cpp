#include "chapters/10_tokenizer/load_tokenizer.hpp"

#include "chapters/10_tokenizer/gguf_tokenizer.hpp"
#include "chapters/10_tokenizer/llama2c_tokenizer.hpp"
#include "chapters/10_tokenizer/tokenizer_json.hpp"
#include "common/files/json_file.hpp"
#include "common/files/mapped_file.hpp"

namespace llm {
namespace {

// Reads bos_token_id and eos_token_id from the configuration files in a folder.
void read_bos_and_eos(const std::string& folder, Tokenizer& tokenizer) {
    for (const std::string name : {"/config.json", "/generation_config.json"}) {
        if (!is_file(folder + name)) continue;
        const JsonFile json(folder + name);
        if (json.has("bos_token_id") && !json.ids("bos_token_id").empty())
            tokenizer.bos_token_id = json.ids("bos_token_id")[0];
        if (json.has("eos_token_id")) tokenizer.eos_token_ids = json.ids("eos_token_id");
    }
}

}  // namespace

Tokenizer load_tokenizer(const std::string& path, std::optional<std::size_t> vocab_size) {
    if (path.ends_with(".gguf") || is_gguf(path))
        return read_gguf_tokenizer(Gguf(path), vocab_size);
    if (!path.ends_with(".json")) return load_llama2c_tokenizer(path, vocab_size);
    Tokenizer tokenizer = load_tokenizer_json(path, vocab_size);
    const std::size_t slash = path.rfind('/');
    read_bos_and_eos(slash == path.npos ? "." : path.substr(0, slash), tokenizer);
    return tokenizer;
}

std::string find_tokenizer_file(const std::string& model_path, std::size_t vocab_size) {
    if (is_folder(model_path)) return model_path + "/tokenizer.json";
    if (is_gguf(model_path)) return model_path;
    const std::size_t slash = model_path.rfind('/');
    const std::string folder = slash == model_path.npos ? "" : model_path.substr(0, slash + 1);
    for (const std::string& name :
         {"tok" + to_text(vocab_size) + ".bin", std::string("tokenizer.bin")})
        if (is_file(folder + name)) return folder + name;
    throw FileError(model_path + ": there is neither tok" + to_text(vocab_size) +
                    ".bin nor tokenizer.bin beside it; --tokenizer names another file");
}

}  // namespace llm
