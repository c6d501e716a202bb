#include "chapters/models/tokenizers/wordpiece_json.hpp"

#include "common/files/unicode.hpp"

namespace llm::models {

bool is_wordpiece(const JsonFile& model) {
    if (model.has("type")) return model.text("type") == "WordPiece";
    return model.has("max_input_chars_per_word") && !model.has("merges");
}

WordPiece read_wordpiece(const JsonFile& model) {
    const WordPiece defaults;
    return {model.text("continuing_subword_prefix"),
            model.count_or("max_input_chars_per_word", defaults.max_input_chars_per_word)};
}

Normalizer read_bert_normalizer(const JsonFile& json) {
    BertNormalizer settings;
    settings.clean_text = json.boolean("clean_text");
    settings.handle_chinese_chars = json.boolean("handle_chinese_chars");
    if (json.has("strip_accents")) settings.strip_accents = json.boolean("strip_accents");
    settings.lowercase = json.boolean("lowercase");
    return bert_normalizer(settings);
}

void read_wordpiece_decoder(const JsonFile& json, Tokenizer& tokenizer) {
    const std::string prefix = json.text("prefix");
    decode_wordpieces(tokenizer, prefix, json.boolean("cleanup"));
}

// "cls": ["[CLS]", 101], and the same for "sep". The ids count.
void read_bert_processing(const JsonFile& json, Tokenizer& tokenizer) {
    for (const auto& [key, tokens] :
         {std::pair{"cls", &tokenizer.prefix_tokens}, {"sep", &tokenizer.suffix_tokens}}) {
        const JsonArray* pair = json.value(key).as<JsonArray>();
        const auto* id = pair && pair->size() == 2 ? (*pair)[1].as<std::int64_t>() : nullptr;
        if (!id || *id < 0 || std::size_t(*id) >= tokenizer.vocab_size())
            json.reject(key, "must be a token and its id");
        *tokens = {*id};
    }
}

namespace {

// The parts of a template in Hugging Face's notation, with the token type after a colon:
// "[CLS]:0 $A:0 [SEP]:0".
std::string template_text(const std::vector<JsonFile>& parts) {
    std::string text;
    for (const JsonFile& part : parts) {
        const bool is_text = part.has("Sequence");
        const std::string key = is_text ? "Sequence." : "SpecialToken.";
        text += (text.empty() ? "" : " ") + std::string(is_text ? "$" : "") +
                part.text(key + "id") + ":" + to_text(part.count_or(key + "type_id", 0));
    }
    return text;
}

}  // namespace

void check_pair_template(const JsonFile& post_processor) {
    if (!post_processor.has("pair")) return;
    const std::string first = template_text(post_processor.objects("single"));
    const std::string text = "$A:0";
    const std::size_t text_at = first.find(text);
    if (text_at == first.npos)
        post_processor.reject_value("single", first, "a text of token type 0");
    const std::string suffix = first.substr(text_at + text.size());
    const std::string expected = first + " $B:1" + replaced(suffix, ":0", ":1");
    const std::string pair = template_text(post_processor.objects("pair"));
    if (pair != expected) post_processor.reject_value("pair", pair, expected);
}

namespace {

JsonMembers normalizer_members(const Tokenizer& tokenizer) {
    if (tokenizer.normalizers.empty()) return {};
    const auto* settings = tokenizer.normalizers[0].normalize.target<BertNormalizer>();
    require(settings && tokenizer.normalizers.size() == 1,
            "save_tokenizer: WordPiece is written with BertNormalizer alone, not with {} of {} "
            "normalizers",
            tokenizer.normalizers[0].type, tokenizer.normalizers.size());
    const std::string key = "normalizer.";
    return {{key + "type", std::string("BertNormalizer")},
            {key + "clean_text", settings->clean_text},
            {key + "handle_chinese_chars", settings->handle_chinese_chars},
            {key + "strip_accents",
             settings->strip_accents ? Json(*settings->strip_accents) : Json(nullptr)},
            {key + "lowercase", settings->lowercase}};
}

JsonMembers pre_tokenizer_members(const Tokenizer& tokenizer) {
    if (tokenizer.pre_tokenizers.empty()) return {};
    const std::string type = tokenizer.pre_tokenizers[0].type;
    require(type == "BertPreTokenizer" && tokenizer.pre_tokenizers.size() == 1,
            "save_tokenizer: WordPiece is written with BertPreTokenizer alone, not with {} of "
            "{} pre-tokenizers",
            type, tokenizer.pre_tokenizers.size());
    return {{"pre_tokenizer.type", type}};
}

JsonObject template_part(const std::string& kind, const std::string& id, int type_id) {
    return {{kind, JsonObject{{"id", id}, {"type_id", type_id}}}};
}

}  // namespace

JsonMembers template_members(const Tokenizer& tokenizer,
                             const std::vector<std::string>& tokens) {
    JsonArray single, pair;
    JsonObject ids;
    const auto add = [&](JsonArray& parts, Id id, int type_id) {
        const std::string& token = tokens.at(static_cast<std::size_t>(id));
        parts.push_back(template_part("SpecialToken", token, type_id));
        if (Json(ids).find(token)) return;
        ids.emplace_back(
            token,
            JsonObject{{"id", token}, {"ids", JsonArray{id}}, {"tokens", JsonArray{token}}});
    };
    for (const Id id : tokenizer.prefix_tokens) add(single, id, 0);
    single.push_back(template_part("Sequence", "A", 0));
    for (const Id id : tokenizer.suffix_tokens) add(single, id, 0);
    pair = single;
    pair.push_back(template_part("Sequence", "B", 1));
    for (const Id id : tokenizer.suffix_tokens) add(pair, id, 1);
    return {{"post_processor.type", std::string("TemplateProcessing")},
            {"post_processor.single", single},
            {"post_processor.pair", pair},
            {"post_processor.special_tokens", ids}};
}

namespace {

// Were the texts of the tokens cleaned up? If it made no difference, either answer is right.
bool has_cleanup(const Tokenizer& tokenizer, const std::vector<std::string>& tokens,
                 const std::string& continuing) {
    for (std::size_t id = 0; id < tokens.size(); ++id)
        if (!tokens[id].empty() &&
            tokenizer.token_bytes[id] != wordpiece_text(tokens[id], continuing, false))
            return true;
    return false;
}

}  // namespace

JsonMembers wordpiece_components(const Tokenizer& tokenizer,
                                 const std::vector<std::string>& tokens) {
    const auto* model = tokenizer.word_model.target<WordPiece>();
    require(model && tokenizer.unk_token_id,
            "save_tokenizer: only BPE, and WordPiece with an unknown token, can be written");
    const std::string& continuing = model->continuing_subword_prefix;
    JsonMembers members = normalizer_members(tokenizer);
    for (const JsonMembers& more :
         {pre_tokenizer_members(tokenizer), template_members(tokenizer, tokens)})
        members.insert(members.end(), more.begin(), more.end());
    members.insert(members.end(),
                   {{"decoder.type", std::string("WordPiece")},
                    {"decoder.prefix", continuing},
                    {"decoder.cleanup", has_cleanup(tokenizer, tokens, continuing)},
                    {"model.type", std::string("WordPiece")},
                    {"model.unk_token", tokens.at(std::size_t(*tokenizer.unk_token_id))},
                    {"model.continuing_subword_prefix", continuing},
                    {"model.max_input_chars_per_word", model->max_input_chars_per_word}});
    return members;
}

}  // namespace llm::models
