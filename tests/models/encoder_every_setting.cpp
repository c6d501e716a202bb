// Each setting of the fixtures' config.json, changed alone: it changes an output, or it is
// rejected, or it is listed here as one that changes neither.
#include <functional>

#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

enum class Effect { output, rejected, none };
struct ChangedSetting {
    nlohmann::json value;
    Effect effect;
};
using ChangedSettings = std::map<std::string, ChangedSetting>;

const ChangedSettings common_settings = {
    {"architectures",
     {nlohmann::json::array({"BertForTokenClassification"}), Effect::rejected}},
    {"model_type", {"roberta", Effect::rejected}},
    {"hidden_size", {18, Effect::rejected}},
    {"intermediate_size", {15, Effect::rejected}},
    {"num_attention_heads", {6, Effect::output}},
    {"num_hidden_layers", {2, Effect::rejected}},
    {"vocab_size", {30, Effect::rejected}},
    {"max_position_embeddings", {10, Effect::rejected}},
    {"tie_word_embeddings", {false, Effect::rejected}},
    {"pad_token_id", {4, Effect::none}},  // the batch of the test is padded already
};
const ChangedSettings bert_settings = {
    {"type_vocab_size", {1, Effect::rejected}},
    {"layer_norm_eps", {0.1, Effect::output}},
    {"hidden_act", {"relu", Effect::output}},
    {"position_embedding_type", {"relative_key", Effect::rejected}},
    {"hidden_dropout_prob", {0.5, Effect::none}},  // of training, as all that follow
    {"attention_probs_dropout_prob", {0.5, Effect::none}},
    {"classifier_dropout", {0.5, Effect::none}},
    {"initializer_range", {0.5, Effect::none}},
    {"gradient_checkpointing", {true, Effect::none}},
    {"use_cache", {false, Effect::none}},  // a decoder has one
};
const ChangedSettings modernbert_settings = {
    {"norm_eps", {0.1, Effect::output}},
    {"norm_bias", {true, Effect::rejected}},
    {"attention_bias", {true, Effect::rejected}},
    {"mlp_bias", {true, Effect::rejected}},
    {"decoder_bias", {false, Effect::rejected}},
    {"classifier_bias", {true, Effect::rejected}},
    {"hidden_activation", {"relu", Effect::output}},
    {"classifier_activation", {"relu", Effect::output}},
    {"classifier_pooling", {"cls", Effect::none}},  // of a classifier: see its changes.json
    {"global_attn_every_n_layers", {2, Effect::output}},
    {"local_attention", {2, Effect::output}},
    {"global_rope_theta", {1600.0, Effect::output}},
    {"local_rope_theta", {100.0, Effect::output}},
    {"cls_token_id", {7, Effect::none}},  // of the tokenizer
    {"sep_token_id", {7, Effect::none}},
    {"deterministic_flash_attn", {true, Effect::none}},  // how fast
    {"reference_compile", {true, Effect::none}},
};

// What a copy of a fixture with this setting does.
Effect effect_of(const std::string& name, const std::string& key, const nlohmann::json& value,
                 const EncoderOutputs& unchanged) {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/" + name);
    change_members(folder + "/config.json", {{key, value}});
    try {
        const AnyEncoder encoder = load_encoder(folder);
        const EncoderOutputs outputs = encode(encoder, encoder_batch(encoder));
        return difference_of(outputs, unchanged, 1e-4).empty() ? Effect::none : Effect::output;
    } catch (const FileError&) {
        return Effect::rejected;
    } catch (const ValueError&) {  // of the batch: a text is longer, a token type is missing
        return Effect::rejected;
    }
}

void check_every_setting(const std::string& name, ChangedSettings settings) {
    settings.insert(common_settings.begin(), common_settings.end());
    const std::string folder = fixture_path("models/" + name);
    const AnyEncoder encoder = load_encoder(folder);
    const EncoderOutputs unchanged = encode(encoder, encoder_batch(encoder));
    nlohmann::json config = nlohmann::json::parse(content(folder + "/config.json"));
    config["tie_word_embeddings"] = true;
    for (const auto& [key, value] : config.items()) {
        const std::string setting = key;
        CAPTURE(setting);
        REQUIRE(settings.contains(setting));
        const auto& [changed, effect] = settings.at(setting);
        REQUIRE(changed != value);
        CHECK(effect_of(name, setting, changed, unchanged) == effect);
    }
    CHECK(config.size() == settings.size());
}

}  // namespace

TEST_CASE("bert: every setting changes an output, is rejected, or is known to do neither") {
    check_every_setting("bert", bert_settings);
}

TEST_CASE("modernbert: every setting changes an output, is rejected, or does neither") {
    check_every_setting("modernbert", modernbert_settings);
}
