#include "chapters/models/tokenizers/special_tokens.hpp"

#include <algorithm>

#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {
namespace {

void add(const std::vector<Id>& bos, const std::vector<Id>& eos, Tokenizer& tokenizer) {
    if (!tokenizer.bos_token_id && !bos.empty()) tokenizer.bos_token_id = bos[0];
    for (const Id id : eos)
        if (std::count(tokenizer.eos_token_ids.begin(), tokenizer.eos_token_ids.end(), id) == 0)
            tokenizer.eos_token_ids.push_back(id);
}

}  // namespace

void read_special_tokens(const std::string& folder, Tokenizer& tokenizer) {
    for (const char* name : {"/config.json", "/generation_config.json"}) {
        if (!is_file(folder + name)) continue;
        const JsonFile json(folder + name);
        add(token_ids(json, "bos_token_id"), token_ids(json, "eos_token_id"), tokenizer);
    }
    if (const std::string file = folder + "/tokenizer_config.json"; is_file(file)) {
        const JsonFile json(file);
        const auto ids = [&](const std::string& key) {
            const std::optional<Id> id = special_token_id(json, key, tokenizer);
            return id ? std::vector{*id} : std::vector<Id>();
        };
        add(ids("bos_token"), ids("eos_token"), tokenizer);
    }
}

Tokenizer load_tokenizer_of_model(const std::string& model_path,
                                  const std::string& tokenizer_path, std::size_t vocab_size) {
    const std::string path =
        tokenizer_path.empty() ? find_tokenizer_file(model_path, vocab_size) : tokenizer_path;
    Tokenizer tokenizer = load_tokenizer(path, vocab_size);
    if (!tokenizer.suffix_tokens.empty())
        throw FileError(path +
                        ": a model that continues a text needs a tokenizer that adds "
                        "no token after it, but got " +
                        tokenizer.token_text(tokenizer.suffix_tokens[0]));
    if (is_folder(model_path)) read_special_tokens(model_path, tokenizer);
    if (path.ends_with(".json")) {
        const std::size_t slash = path.rfind('/');
        read_special_tokens(slash == path.npos ? "." : path.substr(0, slash), tokenizer);
    }
    return tokenizer;
}

std::vector<Id> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt) {
    std::vector<Id> ids = tokenizer.encode(prompt);
    require(!ids.empty(), "this model needs a --prompt to begin with: it has no BOS token");
    return ids;
}

}  // namespace llm::models
