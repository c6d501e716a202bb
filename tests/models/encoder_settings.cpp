// The settings of encoders: published keys, defaults, what is rejected by name, and weights
// that do not fit.
#include <functional>

#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// The message, without the path of the file and the advice to --ignore the setting.
std::string rejection_of_settings(const std::string& type, const std::string& members) {
    try {
        read_encoder(type, members);
    } catch (const FileError& error) {
        const std::string message = error.what();
        const std::size_t begin = message.find(": ") + 2;
        return message.substr(begin, message.find(" (--ignore ") - begin);
    }
    return "not rejected";
}

}  // namespace

TEST_CASE(
    "bert: the keys of bert-base-uncased, of Google's files and of sentence-transformers") {
    const EncoderFamilyConfig config = read_encoder(
        "bert", R"("architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
        "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
        "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "num_attention_heads": 12,
        "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
        "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": true,
        "vocab_size": 30522, "directionality": "bidi", "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
        "classifier_dropout": null, "_name_or_path": "x", "is_decoder": false,
        "add_cross_attention": false, "chunk_size_feed_forward": 0, "torch_dtype": "float32")");
    CHECK(config.family == &bert_family());
    CHECK(config.heads == EncoderHeads{.masked_lm = true});
    CHECK(config.layer_norm_eps == Real(1e-12));
    CHECK(config.hidden_act.name == "gelu");
    CHECK(config.type_vocab_size == 2);
    CHECK_FALSE(config.rope_theta);
}

TEST_CASE("modernbert: the keys of ModernBERT-base, as transformers 4 and 5 write them") {
    const std::string common =
        R"("architectures": ["ModernBertForMaskedLM"], "attention_bias": false,
        "attention_dropout": 0.0, "bos_token_id": 50281, "classifier_activation": "gelu",
        "classifier_bias": false, "classifier_dropout": 0.0, "classifier_pooling": "mean",
        "cls_token_id": 50281, "decoder_bias": true, "deterministic_flash_attn": false,
        "embedding_dropout": 0.0, "eos_token_id": 50282, "gradient_checkpointing": false,
        "hidden_activation": "gelu", "hidden_size": 768, "initializer_cutoff_factor": 2.0,
        "initializer_range": 0.02, "intermediate_size": 1152, "layer_norm_eps": 1e-05,
        "local_attention": 128, "max_position_embeddings": 8192, "mlp_bias": false,
        "mlp_dropout": 0.0, "norm_bias": false, "norm_eps": 1e-05, "num_attention_heads": 12,
        "num_hidden_layers": 6, "pad_token_id": 50283, "position_embedding_type": "absolute",
        "sep_token_id": 50282, "tie_word_embeddings": true, "torch_dtype": "float32",
        "transformers_version": "4.47.0.dev0", "vocab_size": 50368, "sparse_prediction": true,
        "sparse_pred_ignore_index": -100, "repad_logits_with_grad": false, )";
    const EncoderFamilyConfig old = read_encoder("modernbert", common + R"(
        "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0, "reference_compile": true)");
    const EncoderFamilyConfig now = read_encoder("modernbert", common + R"(
        "global_attn_every_n_layers": 3, "layer_types": ["full_attention",
            "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
            "sliding_attention"], "rope_parameters": {
            "full_attention": {"rope_theta": 160000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}})");
    for (const EncoderFamilyConfig& config : {old, now}) {
        CHECK(config.windows == std::vector<bool>{false, true, true, false, true, true});
        CHECK(config.rope_theta == Real(160000));
        CHECK(config.windowed->rope_theta == Real(10000));
        CHECK(config.windowed->window == 64);
        CHECK(config.classifier_pooling == Pooling::mean);
        CHECK(config.pad_token_id == 50283);
    }
}

TEST_CASE("the defaults of encoders are those of transformers") {
    const EncoderFamilyConfig bert = read_encoder("bert", "");
    CHECK(bert.architecture == "BertModel");
    CHECK(bert.layer_norm_eps == Real(1e-12));
    CHECK(bert.max_position_embeddings == 512);
    CHECK(bert.pad_token_id == 0);
    CHECK(bert.tie_word_embeddings);
    const EncoderFamilyConfig modern = read_encoder("modernbert", "");
    CHECK(modern.num_hidden_layers == 22);
    CHECK(modern.max_position_embeddings == 8192);
    CHECK(modern.layer_norm_eps == Real(1e-5));
    CHECK(modern.rope_theta == Real(160000));
    CHECK(modern.windowed->rope_theta == Real(10000));
    CHECK(modern.windowed->window == 64);
    CHECK(modern.windowed->full_every == 3);
    for (const bool bias : {modern.norm_bias, modern.attention_bias, modern.mlp_bias,
                            modern.head_bias, !modern.decoder_bias})
        CHECK_FALSE(bias);
    CHECK(modern.classifier_pooling == Pooling::cls);
    CHECK(modern.pad_token_id == 50283);
    CHECK(modern.tie_word_embeddings);
}

TEST_CASE("the labels of a classifier have their names, or those of Hugging Face") {
    const std::string type = R"("architectures": ["BertForSequenceClassification"])";
    const EncoderFamilyConfig two = read_encoder("bert", type);
    CHECK(two.num_labels == 2);
    CHECK(two.label(1) == "LABEL_1");
    const EncoderFamilyConfig three =
        read_encoder("bert", type + R"(, "id2label": {"0": "no", "1": 7, "2": "yes"})");
    CHECK(three.num_labels == 3);
    CHECK(three.label(1) == "LABEL_1");
    CHECK(three.label(2) == "yes");
    CHECK(read_encoder("bert", type + R"(, "num_labels": 16000000)").num_labels == 16'000'000);
}

TEST_CASE("a config.json without a model_type has that of its class") {
    const Scratch scratch;
    const auto family = [&](const std::string& text) {
        overwrite(scratch.folder / "config.json", text);
        return find_encoder_family(scratch.folder.string());
    };
    CHECK(family(R"({"architectures": ["BertForPreTraining"]})") == &bert_family());
    CHECK(family(R"({"model_type": "modernbert"})") == &modernbert_family());
    CHECK(family(R"({"model_type": "llama", "architectures": ["BertModel"]})") == nullptr);
    CHECK(family(R"({"architectures": ["LlamaForCausalLM"]})") == nullptr);
    CHECK(find_encoder_family((scratch.folder / "none").string()) == nullptr);
}

TEST_CASE("bert: settings that would change a result are rejected by name") {
    for (const auto& [members, message] : std::vector<std::pair<std::string, std::string>>{
             {R"("position_embedding_type": "relative_key")",
              "position_embedding_type relative_key is not supported; supported: absolute"},
             {R"("is_decoder": true)", "is_decoder true is not supported; supported: false"},
             {R"("add_cross_attention": true)",
              "add_cross_attention true is not supported; supported: false"},
             {R"("hidden_act": "xielu")",
              "hidden_act xielu is not supported; supported: silu, gelu, relu and the others "
              "of ACT2FN but prelu and xielu"},
             {R"("pruned_heads": {"1": [2]})",
              "pruned_heads an object is not supported: nothing reads it"},
             {R"("architectures": ["BertForTokenClassification"])",
              "architectures BertForTokenClassification is not supported; supported: "
              "BertForMaskedLM, BertForNextSentencePrediction, BertForPreTraining, "
              "BertForSequenceClassification, BertModel"},
             {R"("layer_norm_eps": 0)", "layer_norm_eps must be above 0"},
             {R"("pad_token_id": [])",
              "pad_token_id must be a whole number from 1 to 16777216, not a list"},
             {R"("num_attention_heads": 5)",
              "encoder: 5 heads do not divide a hidden size of 768 into even parts"},
             {R"("hidden_size": "x")",
              R"(hidden_size must be a whole number from 1 to 16777216, not "x")"}}) {
        CHECK(rejection_of_settings("bert", members) == message);
    }
}

TEST_CASE("modernbert: settings that would change a result are rejected by name") {
    for (
        const auto& [members, message] : std::vector<std::pair<std::string, std::string>>{
            {R"("classifier_pooling": "max")",
             "classifier_pooling max is not supported; supported: cls and mean"},
            {R"("layer_types": ["full_attention"])", "layer_types has 1 entries for 22 layers"},
            {R"("num_hidden_layers": 1, "layer_types": ["chunked_attention"])",
             "layer_types chunked_attention is not supported; supported: full_attention and "
             "sliding_attention"},
            {R"("rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2}})",
             "rope_parameters.full_attention.rope_type yarn is not supported; supported: "
             "default"},
            {R"("rope_parameters": {"full_attention": {"rope_theta": 1, "factor": 2}})",
             "rope_parameters.full_attention has no rope_type"},
            {R"("rope_scaling": {"rope_type": "linear", "factor": 2})",
             "rope_scaling an object is not supported: nothing reads it"},
            {R"("global_rope_theta": 5.5, "rope_parameters": {"full_attention":
                 {"rope_type": "default", "rope_theta": 7}})",
             "global_rope_theta 5.5 and rope_parameters.full_attention.rope_theta 7 contradict "
             "each other"},
            {R"("norm_eps": 1e-3, "layer_norm_eps": 1e-5)",
             "layer_norm_eps 1e-05 is not supported: nothing reads it"},
            {R"("global_attn_every_n_layers": 0)",
             "global_attn_every_n_layers must be a whole number from 1 to 16777216, not 0"}}) {
        CHECK(rejection_of_settings("modernbert", members) == message);
    }
    CHECK(rejection_of_settings("roberta", "") ==
          "model_type roberta is not supported; supported: bert, modernbert");
}
