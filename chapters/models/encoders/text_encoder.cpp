#include "chapters/models/encoders/text_encoder.hpp"

#include <algorithm>

#include "chapters/25_encoders/unpadded.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/gguf.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"

namespace llm::models {
namespace {

// The list of a model's modules: a linear layer after the pooling would change its vectors.
void check_modules(const std::string& file) {
    if (!is_file(file)) return;
    const Json list = parse_json(read_text(file), file);
    const JsonArray* modules = list.as<JsonArray>();
    if (!modules) throw FileError(file + ": it is not an array of modules");
    for (const Json& module : *modules) {
        const Json* type = module.find("type");
        const std::string* name = type ? type->as<std::string>() : nullptr;
        if (!name) throw FileError(file + ": a module has no type");
        const bool is_known = name->ends_with(".Transformer") || name->ends_with(".Pooling") ||
                              name->ends_with(".Normalize");
        if (!is_known)
            throw FileError(file + ": module " + *name +
                            " is not supported; supported: Transformer, Pooling, Normalize");
    }
}

// A kind of pooling that pooling_of does not know must not become the mean.
void reject_other_pooling(const std::string& path) {
    if (is_gguf(path)) {
        const Gguf gguf(path);
        const std::string key = gguf.text("general.architecture") + ".pooling_type";
        if (const auto type = gguf.any_number(key); type && *type != 0)
            gguf.reject(key + " " + std::to_string(std::int64_t(*type)) +
                        " is not supported; supported: 0 (none), 1 (mean), 2 (CLS)");
        return;
    }
    const std::string file = path + "/1_Pooling/config.json";
    if (is_file(file))
        JsonFile(file).reject(
            "its pooling is not supported; supported: pooling_mode_mean_tokens or "
            "pooling_mode_cls_token");
}

// Two kinds of pooling at once are two vectors, one after the other.
void reject_several_poolings(const std::string& file) {
    if (!is_file(file)) return;
    const JsonFile json(file);
    for (const auto& [key, value] : json.members())
        if (key.starts_with("pooling_mode_") && key != "pooling_mode_mean_tokens" &&
            key != "pooling_mode_cls_token" && json.boolean_or(key, false))
            json.reject_value(key, "true", "false");
}

Pooling read_pooling(const std::string& path) {
    if (is_folder(path)) reject_several_poolings(path + "/1_Pooling/config.json");
    const std::optional<Pooling> pooling = pooling_of(path);
    if (!pooling) reject_other_pooling(path);
    return pooling.value_or(Pooling::mean);
}

// The longest text: that of the model, or a shorter one that sentence-transformers sets.
std::size_t read_max_tokens(const std::string& path, std::size_t max_position_embeddings) {
    const std::string file = path + "/sentence_bert_config.json";
    if (!is_file(file)) return max_position_embeddings;
    const JsonFile json(file);
    if (json.boolean_or("do_lower_case", false))
        json.reject_value("do_lower_case", "true", "false");
    return std::min(max_position_embeddings,
                    json.size_or("max_seq_length", max_position_embeddings));
}

// A prompt that is put before each text that does not say otherwise.
void check_prompts(const std::string& file) {
    if (!is_file(file)) return;
    const JsonFile json(file);
    if (json.has("default_prompt_name"))
        json.reject_value("default_prompt_name", json.text("default_prompt_name"), "null");
}

}  // namespace

TextEncoder load_text_encoder(const std::string& path, const std::string& tokenizer_path) {
    check_modules(path + "/modules.json");
    check_prompts(path + "/config_sentence_transformers.json");
    const Pooling pooling = read_pooling(path);
    AnyEncoder encoder = is_gguf(path) ? load_encoder_gguf(path) : load_encoder(path);
    const EncoderFamilyConfig& config = config_of(encoder);
    const std::string file =
        tokenizer_path.empty() ? find_tokenizer_file(path, config.vocab_size) : tokenizer_path;
    Tokenizer tokenizer = load_tokenizer(file, config.vocab_size);
    const std::size_t max_tokens = read_max_tokens(path, config.max_position_embeddings);
    return {std::move(encoder), std::move(tokenizer), pooling, max_tokens};
}

Matrix embed_texts(const AnyEncoder& encoder, Pooling pooling,
                   const std::vector<std::vector<Id>>& texts) {
    const BatchEncoding padded = pad(texts, config_of(encoder).pad_token_id);
    check_batch(config_of(encoder), padded);
    const Tensor3 row = std::visit(
        [&](const auto& model) -> Tensor3 { return model.encoder(unpad(padded)); }, encoder);
    return l2_normalize(pool(pooling, pad_states(row, padded), padded.padding_mask));
}

}  // namespace llm::models
