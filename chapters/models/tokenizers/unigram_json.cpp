#include "chapters/models/tokenizers/unigram_json.hpp"

#include <map>

#include "chapters/models/tokenizers/wordpiece_json.hpp"
#include "common/files/unicode.hpp"

namespace llm::models {

bool is_unigram(const JsonFile& model) {
    return model.has("type") ? model.text("type") == "Unigram" : model.is_array("vocab");
}

bool is_unigram(const Tokenizer& tokenizer) {
    return tokenizer.word_model.target<Unigram>() ||
           tokenizer.word_model.target<UnigramOfFile>();
}

std::vector<std::pair<std::string, double>> read_scored_tokens(const JsonFile& model) {
    std::vector<std::pair<std::string, double>> tokens;
    if (!model.is_array("vocab")) model.reject("vocab", "must be a list");
    for (const Json& element : *model.value("vocab").as<JsonArray>()) {
        const auto* pair = element.as<JsonArray>();
        const bool is_pair =
            pair && pair->size() == 2 && (*pair)[0].as<std::string>() && (*pair)[1].number();
        if (!is_pair)
            model.reject("vocab",
                         "must hold pairs of a token and a score, not " + brief_json(element));
        tokens.emplace_back(*(*pair)[0].as<std::string>(), *(*pair)[1].number());
    }
    if (tokens.empty()) model.reject("vocab", "must not be empty");
    return tokens;
}

namespace {

// A component of the file; null if it has none.
Json component_of(const JsonFile& file, const std::string& key) {
    return file.has(key) ? file.value(key) : Json(nullptr);
}

// What a tokenizer has besides its model.
std::vector<std::string> names_of_components(const Tokenizer& tokenizer) {
    std::vector<std::string> names;
    for (const Normalizer& one : tokenizer.normalizers) names.push_back(one.type);
    for (const PreTokenizer& one : tokenizer.pre_tokenizers) names.push_back(one.type);
    for (const auto* ids : {&tokenizer.prefix_tokens, &tokenizer.suffix_tokens}) {
        names.emplace_back("tokens");
        for (const Id id : *ids) names.push_back(to_text(id));
    }
    return names;
}

// The components of train_unigram's tokenizers.
JsonMembers components_of_training(const Tokenizer& tokenizer,
                                   const std::vector<std::string>& tokens) {
    const auto& pre_tokenizers = tokenizer.pre_tokenizers;
    require(tokenizer.normalizers.empty() && pre_tokenizers.size() == 2 &&
                pre_tokenizers[0].type == "WhitespaceSplit" &&
                pre_tokenizers[1].type == "Metaspace" && tokenizer.strip_leading_space,
            "save_tokenizer: Unigram is written with the components of train_unigram, or with "
            "those of the file that it was read from");
    const JsonObject metaspace = {{"type", "Metaspace"},
                                  {"replacement", "▁"},
                                  {"prepend_scheme", "always"},
                                  {"split", true}};
    JsonMembers members = template_members(tokenizer, tokens);
    members.insert(members.begin(),
                   {{"pre_tokenizer.type", "Sequence"},
                    {"pre_tokenizer.pretokenizers",
                     JsonArray{JsonObject{{"type", "WhitespaceSplit"}}, metaspace}},
                    {"decoder", metaspace}});
    return members;
}

}  // namespace

void keep_components(const JsonFile& file, Tokenizer& tokenizer) {
    tokenizer.word_model = UnigramOfFile{
        *tokenizer.word_model.target<Unigram>(), component_of(file, "normalizer"),
        component_of(file, "pre_tokenizer"),     component_of(file, "post_processor"),
        component_of(file, "decoder"),           names_of_components(tokenizer)};
}

void read_metaspace_decoder(const JsonFile& json, Tokenizer& tokenizer) {
    const std::string replacement = json.text("replacement");
    if (replacement.empty()) json.reject("replacement", "must not be empty");
    if (!tokenizer.byte_token_ids.empty())
        json.reject("a Metaspace after ByteFallback is not supported");
    if (read_prepend_scheme(json) != PrependScheme::never) {
        tokenizer.first_token_bytes = tokenizer.token_bytes;
        for (std::string& token : tokenizer.first_token_bytes)
            token = replaced(token, replacement, "");
    }
    for (std::string& token : tokenizer.token_bytes) token = replaced(token, replacement, " ");
}

JsonMembers unigram_components(const Tokenizer& tokenizer,
                               const std::vector<std::string>& tokens) {
    const auto* of_file = tokenizer.word_model.target<UnigramOfFile>();
    const Unigram* model = of_file ? of_file : tokenizer.word_model.target<Unigram>();
    require(!of_file || of_file->components == names_of_components(tokenizer),
            "save_tokenizer: Unigram is written with the components of train_unigram, or with "
            "those of the file that it was read from");
    JsonMembers members = of_file ? JsonMembers{{"normalizer", of_file->normalizer},
                                                {"pre_tokenizer", of_file->pre_tokenizer},
                                                {"post_processor", of_file->post_processor},
                                                {"decoder", of_file->decoder}}
                                  : components_of_training(tokenizer, tokens);
    JsonArray vocab;
    for (std::size_t id = 0; id < model->scores.size(); ++id) {
        require(!tokens[id].empty(), "save_tokenizer: the token of id {} occurs twice", id);
        vocab.push_back(JsonArray{tokens[id], model->scores[id]});
    }
    const Json unk_id =
        tokenizer.unk_token_id ? Json(std::int64_t{*tokenizer.unk_token_id}) : Json(nullptr);
    members.insert(members.end(), {{"model.type", "Unigram"},
                                   {"model.unk_id", unk_id},
                                   {"model.byte_fallback", tokenizer.byte_fallback},
                                   {"model.vocab", vocab}});
    return members;
}

PrependScheme read_prepend_scheme(const JsonFile& json) {
    const std::string scheme = json.has("prepend_scheme") ? json.text("prepend_scheme")
                               : json.boolean_or("add_prefix_space", true) ? "always"
                                                                           : "never";
    const std::map<std::string, PrependScheme> schemes = {{"always", PrependScheme::always},
                                                          {"first", PrependScheme::first},
                                                          {"never", PrependScheme::never}};
    if (!schemes.contains(scheme)) json.reject("prepend_scheme", scheme + " is not supported");
    return schemes.at(scheme);
}

}  // namespace llm::models
