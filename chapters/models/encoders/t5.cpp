#include "chapters/models/encoders/t5.hpp"

#include "chapters/models/activations.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/unread_settings.hpp"

namespace llm::models {
namespace {

// Classes, with whether they have a decoder and a head. (The second is the first one's old
// name.)
struct T5Class {
    const char* name;
    bool has_decoder, has_lm_head;
};
constexpr std::array t5_classes = {
    T5Class{"T5ForConditionalGeneration", true, true}, T5Class{"T5WithLMHeadModel", true, true},
    T5Class{"T5Model", true, false}, T5Class{"T5EncoderModel", false, false}};

const ClassDefaults t5_defaults = {32128, 512, 2048, 6, 8, 0, 0, 64, 1e-6, 0, true};

std::string t5_key(const std::string& common) {
    static const std::map<std::string, std::string> keys = {
        {"hidden_size", "d_model"},
        {"intermediate_size", "d_ff"},
        {"num_hidden_layers", "num_layers"},
        {"num_attention_heads", "num_heads"},
        {"num_key_value_heads", ""},
        {"head_dim", "d_kv"},
        {"max_position_embeddings", ""},
        {"rms_norm_eps", "layer_norm_epsilon"},
        {"rope_theta", ""}};
    const auto found = keys.find(common);
    return found == keys.end() ? common : found->second;
}

void read_class(const JsonFile& json, T5FamilyConfig& config) {
    if (const std::string name = read_head(json).class_name; !name.empty())
        config.architecture = name;
    std::vector<std::string> supported;
    for (const auto& [name, has_decoder, has_lm_head] : t5_classes) {
        supported.push_back(name);
        if (config.architecture != name) continue;
        config.has_decoder = has_decoder;
        config.has_lm_head = has_lm_head;
        return;
    }
    json.reject_value("architectures", config.architecture, supported);
}

// "relu", or "gated-gelu", which means GELUTanh. Newer files say the same once more in two
// keys, and these count.
void read_feed_forward(const JsonFile& json, T5FamilyConfig& config) {
    const std::string key = "feed_forward_proj", gated = "gated-";
    std::string name = json.has(key) ? json.text(key) : "relu";
    config.is_gated_act = name.starts_with(gated);
    if (config.is_gated_act) name = name.substr(gated.size());
    if (config.is_gated_act && name == "gelu") name = "gelu_new";
    const auto found = named_activations().find(name);
    if (found == named_activations().end())
        json.reject_value(key, json.text(key),
                          "silu, gelu, relu and the others of ACT2FN but prelu and xielu, also "
                          "with gated- before them");
    config.activation = read_activation(json, "dense_act_fn", found->second);
    config.is_gated_act = json.boolean_or("is_gated_act", config.is_gated_act);
}

void read_token_ids(const JsonFile& json, T5FamilyConfig& config) {
    const auto id_or = [&](const std::string& key, Id otherwise) {
        return static_cast<Id>(json.count_or(key, static_cast<std::size_t>(otherwise)));
    };
    config.pad_token_id = id_or("pad_token_id", 0);
    config.decoder_start_token_id = id_or("decoder_start_token_id", config.pad_token_id);
    if (json.has("eos_token_id")) config.eos_token_ids = json.ids("eos_token_id");
}

void check_sizes(const T5FamilyConfig& config) {
    relative_position_bucket(0, true, config.relative_attention_num_buckets,
                             config.relative_attention_max_distance);
    relative_position_bucket(0, false, config.relative_attention_num_buckets,
                             config.relative_attention_max_distance);
    for (const Id id : {config.pad_token_id, config.decoder_start_token_id})
        require(static_cast<std::size_t>(id) < config.sizes.vocab_size,
                "t5: there is no token {} in a vocabulary of {}", id, config.sizes.vocab_size);
}

}  // namespace

bool is_t5(const JsonFile& json) {
    if (json.has("model_type"))
        return json.text("model_type") == "t5" || json.text("model_type") == "umt5";
    return std::any_of(t5_classes.begin(), t5_classes.end(), [&](const T5Class& each) {
        return read_head(json).class_name == each.name;
    });
}
bool is_t5(const Gguf& file) { return file.text("general.architecture") == "t5encoder"; }

T5FamilyConfig read_t5_config(const JsonFile& json) try {
    if (json.has("model_type") && json.text("model_type") != "t5")
        json.reject_value("model_type", json.text("model_type"),
                          "t5, whose layers share one table of biases");
    T5FamilyConfig config;
    config.sizes = read_sizes(json, t5_defaults, t5_key);
    config.sizes.max_position_embeddings = std::size_t{1} << 24;
    config.num_decoder_layers =
        json.size_or("num_decoder_layers", config.sizes.num_hidden_layers);
    config.relative_attention_num_buckets = json.size_or("relative_attention_num_buckets", 32);
    config.relative_attention_max_distance =
        json.size_or("relative_attention_max_distance", 128);
    config.scale_decoder_outputs =
        json.boolean_or("scale_decoder_outputs", config.sizes.tie_word_embeddings);
    read_feed_forward(json, config);
    read_token_ids(json, config);
    read_class(json, config);
    // The longest text in training; nothing in the model depends on it.
    for (const char* unused : {"n_positions", "is_encoder_decoder"}) json.ignore(unused);
    check_sizes(config);
    check_unread_settings(json);
    return config;
} catch (...) {
    rethrow_as_rejection(json);
}

JsonMembers config_json(const T5FamilyConfig& config, DType dtype) {
    JsonMembers members;
    for (const auto& [key, value] :
         common_members("t5", config.architecture, config.sizes, dtype))
        if (const std::string own = t5_key(key); !own.empty()) members.push_back({own, value});
    const bool tanh = config.activation.function == gelu_tanh;
    const std::string name = tanh ? "gelu_new" : std::string(config.activation.name);
    const std::string gated = tanh ? "gated-gelu" : "gated-" + name;
    const std::vector<Id>& eos = config.eos_token_ids;
    members.insert(members.end(),
                   {{"num_decoder_layers", config.num_decoder_layers},
                    {"relative_attention_num_buckets", config.relative_attention_num_buckets},
                    {"relative_attention_max_distance", config.relative_attention_max_distance},
                    {"feed_forward_proj", config.is_gated_act ? gated : name},
                    {"dense_act_fn", name},
                    {"is_gated_act", config.is_gated_act},
                    {"is_encoder_decoder", config.has_decoder},
                    {"pad_token_id", config.pad_token_id},
                    {"eos_token_id", eos.size() == 1 ? Json(eos.front()) : Json(eos)},
                    {"decoder_start_token_id", config.decoder_start_token_id}});
    // Only transformers 5 reads this key; the others scale if the head is tied.
    if (config.scale_decoder_outputs != config.sizes.tie_word_embeddings)
        members.push_back({"scale_decoder_outputs", config.scale_decoder_outputs});
    return members;
}

T5Outputs run_texts(const T5FamilyModel& t5, const BatchEncoding& batch,
                    const IdMatrix& decoder_input_ids) {
    const EncodedTexts encoded = t5.model.encode(batch);
    if (!t5.config.has_decoder) return {std::nullopt, encoded.last_hidden_state, std::nullopt};
    T5Outputs outputs{encoded.last_hidden_state, t5.model.decode(decoder_input_ids, encoded),
                      std::nullopt};
    if (t5.config.has_lm_head) outputs.logits = t5.model.logits(outputs.last_hidden_state);
    return outputs;
}

GeneratedTokens generate(const T5FamilyModel& t5, const std::vector<Id>& text,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token) {
    const EncodedTexts encoded = t5.model.encode(pad({text}, t5.config.pad_token_id));
    CachedSequence cached{std::make_unique<T5Sequence>(t5.model, encoded),
                          1 + config.max_new_tokens};
    GenerationConfig with_end = config;
    with_end.eos_token_ids = t5.config.eos_token_ids;
    return llm::generate(cached, {t5.config.decoder_start_token_id}, with_end, generator,
                         on_token);
}

}  // namespace llm::models
