// Each setting of the fixtures' config.json, changed alone: it changes an output, or it is
// rejected, or it is listed here as one that changes neither.
#include <functional>

#include "chapters/models/encoders/t5.hpp"
#include "chapters/models/encoders/vit.hpp"
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

const ChangedSettings t5_settings = {
    {"architectures", {nlohmann::json::array({"T5ForTokenClassification"}), Effect::rejected}},
    {"model_type", {"umt5", Effect::rejected}},
    {"d_model", {18, Effect::rejected}},
    {"d_kv", {5, Effect::rejected}},
    {"d_ff", {27, Effect::rejected}},
    {"num_heads", {2, Effect::rejected}},
    {"num_layers", {2, Effect::rejected}},
    {"num_decoder_layers", {3, Effect::rejected}},
    {"vocab_size", {36, Effect::rejected}},
    {"relative_attention_num_buckets", {6, Effect::rejected}},
    {"relative_attention_max_distance", {6, Effect::output}},
    {"feed_forward_proj", {"gelu", Effect::output}},
    {"dense_act_fn", {"silu", Effect::output}},
    {"is_gated_act", {true, Effect::rejected}},
    {"layer_norm_epsilon", {0.1, Effect::output}},
    {"tie_word_embeddings", {false, Effect::rejected}},
    {"scale_decoder_outputs", {false, Effect::output}},
    {"pad_token_id", {4, Effect::none}},  // the batch of the test has all tokens
    {"decoder_start_token_id", {4, Effect::none}},
    {"eos_token_id", {4, Effect::none}},  // where generation ends
    {"is_encoder_decoder", {false, Effect::none}},
    {"n_positions", {4, Effect::none}},  // of the texts in training, as all that follow
    {"dropout_rate", {0.5, Effect::none}},
    {"initializer_factor", {0.5, Effect::none}},
    {"output_past", {false, Effect::none}},
    {"use_cache", {false, Effect::none}},
    {"task_specific_params", {nullptr, Effect::none}},
};
const ChangedSettings vit_settings = {
    {"architectures", {nlohmann::json::array({"ViTForMaskedImageModeling"}), Effect::rejected}},
    {"model_type", {"deit", Effect::rejected}},
    {"hidden_size", {18, Effect::rejected}},
    {"intermediate_size", {15, Effect::rejected}},
    {"num_attention_heads", {6, Effect::output}},
    {"num_hidden_layers", {1, Effect::rejected}},
    {"image_size", {nlohmann::json::array({20, 12}), Effect::output}},
    {"patch_size", {2, Effect::rejected}},
    {"num_channels", {1, Effect::rejected}},
    {"qkv_bias", {false, Effect::rejected}},
    {"layer_norm_eps", {0.1, Effect::output}},
    {"hidden_act", {"relu", Effect::output}},
    {"pooler_act", {"relu", Effect::output}},
    {"pooler_output_size", {5, Effect::rejected}},
    {"hidden_dropout_prob", {0.5, Effect::none}},  // of training, as all that follow
    {"attention_probs_dropout_prob", {0.5, Effect::none}},
    {"encoder_stride", {8, Effect::none}},
    {"initializer_range", {0.5, Effect::none}},
};

// Whether the model of this folder has other outputs than the fixture.
using HasOtherOutputs = std::function<bool(const std::string& folder)>;

// What a copy of a fixture with this setting does.
Effect effect_of(const std::string& name, const std::string& key, const nlohmann::json& value,
                 const HasOtherOutputs& has_other_outputs) {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/" + name);
    change_members(folder + "/config.json", {{key, value}});
    try {
        return has_other_outputs(folder) ? Effect::output : Effect::none;
    } catch (const FileError&) {
        return Effect::rejected;
    } catch (const ValueError&) {  // of the batch: a text is longer, a token type is missing
        return Effect::rejected;
    }
}

// The members of the fixture's config.json, and these, which are the defaults.
void check_every_setting(const std::string& name, const ChangedSettings& settings,
                         const nlohmann::json& defaults,
                         const HasOtherOutputs& has_other_outputs) {
    const std::string folder = fixture_path("models/" + name);
    CHECK_FALSE(has_other_outputs(folder));
    nlohmann::json config = nlohmann::json::parse(content(folder + "/config.json"));
    config.update(defaults);
    for (const auto& [key, value] : config.items()) {
        const std::string setting = key;
        CAPTURE(setting);
        REQUIRE(settings.contains(setting));
        const auto& [changed, effect] = settings.at(setting);
        REQUIRE(changed != value);
        CHECK(effect_of(name, setting, changed, has_other_outputs) == effect);
    }
    CHECK(config.size() == settings.size());
}

void check_every_setting_of_encoder(const std::string& name, ChangedSettings settings) {
    settings.insert(common_settings.begin(), common_settings.end());
    const AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
    const EncoderOutputs unchanged = encode(encoder, encoder_batch(encoder));
    check_every_setting(
        name, settings, {{"tie_word_embeddings", true}}, [&](const std::string& folder) {
            const AnyEncoder changed = load_encoder(folder);
            return difference_of(encode(changed, encoder_batch(changed)), unchanged, 1e-4) !=
                   "";
        });
}

T5Outputs outputs_of_t5(const std::string& folder) {
    const IdMatrix ids = id_fixture<2>("models/t5_input_ids"), zeros = IdMatrix(ids.shape(), 0);
    return run_texts(load_t5(folder),
                     {ids, id_fixture<2>("models/t5_padding_mask"), zeros, zeros},
                     id_fixture<2>("models/t5_decoder_input_ids"));
}
VitOutputs outputs_of_vit(const std::string& folder) {
    return encode(load_vit(folder), fixture<4>("27_vision/vit_native_pixel_values"), true);
}

}  // namespace

TEST_CASE("bert: every setting changes an output, is rejected, or is known to do neither") {
    check_every_setting_of_encoder("bert", bert_settings);
}

TEST_CASE("modernbert: every setting changes an output, is rejected, or does neither") {
    check_every_setting_of_encoder("modernbert", modernbert_settings);
}

TEST_CASE("t5: every setting changes an output, is rejected, or is known to do neither") {
    const T5Outputs unchanged = outputs_of_t5(fixture_path("models/t5"));
    check_every_setting("t5", t5_settings,
                        {{"dense_act_fn", "relu"},
                         {"is_gated_act", false},
                         {"tie_word_embeddings", true},
                         {"scale_decoder_outputs", true}},
                        [&](const std::string& folder) {
                            const T5Outputs changed = outputs_of_t5(folder);
                            return difference(*changed.logits, *unchanged.logits, 1e-4) != "";
                        });
}

TEST_CASE("vit: every setting changes an output, is rejected, or is known to do neither") {
    const VitOutputs unchanged = outputs_of_vit(fixture_path("models/vit"));
    check_every_setting(
        "vit", vit_settings, nlohmann::json::object(), [&](const std::string& folder) {
            const VitOutputs changed = outputs_of_vit(folder);
            return difference(changed.last_hidden_state, unchanged.last_hidden_state, 1e-4) !=
                       "" ||
                   difference(*changed.pooler_output, *unchanged.pooler_output, 1e-4) != "";
        });
}
