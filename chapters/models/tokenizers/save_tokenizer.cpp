#include <algorithm>

#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "chapters/models/tokenizers/unigram_json.hpp"
#include "chapters/models/tokenizers/wordpiece_json.hpp"
#include "common/files/json_file.hpp"

namespace llm::models {
namespace {

// All tokens by id, spelled as in the vocabulary. Ids without a token have an empty one.
std::vector<std::string> tokens_of_vocab(const Tokenizer& tokenizer) {
    std::vector<std::string> tokens(tokenizer.vocab_size());
    for (const auto& [token, id] : tokenizer.vocab)
        tokens[static_cast<std::size_t>(id)] = token;
    return tokens;
}

JsonObject vocab_object(const std::vector<std::string>& tokens) {
    JsonObject vocab;
    for (std::size_t id = 0; id < tokens.size(); ++id)
        if (!tokens[id].empty()) vocab.emplace_back(tokens[id], id);
    return vocab;
}

JsonArray merges_array(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
    std::vector<std::pair<TokenPair, Merge>> by_rank(tokenizer.merges.begin(),
                                                     tokenizer.merges.end());
    std::sort(by_rank.begin(), by_rank.end(),
              [](const auto& a, const auto& b) { return a.second.rank < b.second.rank; });
    JsonArray merges;
    for (const auto& [pair, merge] : by_rank)
        merges.push_back(
            std::vector<std::string>{tokens[static_cast<std::size_t>(pair.first)],
                                     tokens[static_cast<std::size_t>(pair.second)]});
    return merges;
}

// Tokens that are matched in the normalized text were normalized; the file has them as spelled
// in the vocabulary.
JsonMembers added_token_members(const Tokenizer& tokenizer,
                                const std::vector<std::string>& tokens) {
    JsonMembers members;
    std::size_t count = 0;
    const auto add = [&](const AddedToken& token, bool normalized) {
        const std::string& spelled = tokens[static_cast<std::size_t>(token.id)];
        const std::string key = "added_tokens." + to_text(count++) + ".";
        members.emplace_back(key + "id", static_cast<std::size_t>(token.id));
        members.emplace_back(key + "content", spelled.empty() ? token.content : spelled);
        members.emplace_back(key + "single_word", token.single_word);
        members.emplace_back(key + "lstrip", token.lstrip);
        members.emplace_back(key + "rstrip", token.rstrip);
        members.emplace_back(key + "normalized", normalized);
        members.emplace_back(key + "special", tokenizer.all_special_ids.contains(token.id));
    };
    for (const AddedToken& token : tokenizer.added_tokens) add(token, false);
    for (const AddedToken& token : tokenizer.normalized_added_tokens) add(token, true);
    return members;
}

// The components of train_bpe's tokenizers.
JsonMembers character_level_components() {
    return {{"pre_tokenizer.type", std::string("Split")},
            {"pre_tokenizer.pattern.Regex", gpt2_split_pattern},
            {"pre_tokenizer.behavior", std::string("Isolated")},
            {"pre_tokenizer.invert", false},
            {"decoder.type", std::string("Fuse")},
            {"model.type", std::string("BPE")},
            {"model.unk_token", std::string("<unk>")}};
}

// The components of train_byte_level_bpe's tokenizers.
JsonMembers byte_level_components(bool individual_digits) {
    JsonMembers members;
    std::string pre_tokenizer = "pre_tokenizer.";
    if (individual_digits) {
        const std::string digits = "pre_tokenizer.pretokenizers.0.";
        members.emplace_back(pre_tokenizer + "type", std::string("Sequence"));
        members.emplace_back(digits + "type", std::string("Digits"));
        members.emplace_back(digits + "individual_digits", true);
        pre_tokenizer = "pre_tokenizer.pretokenizers.1.";
    }
    for (const std::string& component : {pre_tokenizer, std::string("decoder.")}) {
        members.emplace_back(component + "type", std::string("ByteLevel"));
        members.emplace_back(component + "add_prefix_space", false);
        members.emplace_back(component + "trim_offsets", true);
        members.emplace_back(component + "use_regex", true);
    }
    members.emplace_back("model.type", std::string("BPE"));
    return members;
}

}  // namespace

void save_tokenizer(const Tokenizer& tokenizer, const std::string& path) {
    JsonMembers json = {{"version", std::string("1.0")}};
    const auto append = [&json](const JsonMembers& members) {
        json.insert(json.end(), members.begin(), members.end());
    };
    const std::vector<std::string> tokens = tokens_of_vocab(tokenizer);
    append(added_token_members(tokenizer, tokens));
    if (is_unigram(tokenizer)) {
        append(unigram_components(tokenizer, tokens));
        return write_json(path, json);
    }
    if (tokenizer.word_model) {
        append(wordpiece_components(tokenizer, tokens));
        append({{"model.vocab", vocab_object(tokens)}});
        return write_json(path, json);
    }
    append(tokenizer.is_byte_level()
               ? byte_level_components(tokenizer.pre_tokenizers[0].type == "Digits")
               : character_level_components());
    append({{"model.fuse_unk", false},
            {"model.byte_fallback", false},
            {"model.vocab", vocab_object(tokens)},
            {"model.merges", merges_array(tokenizer, tokens)}});
    write_json(path, json);
}

}  // namespace llm::models
