// GGUF files of Gemma 2 and 3. check_llama_cpp.mjs lets the real llama.cpp read them.
#include <cmath>

#include "chapters/models/llama/load_model.hpp"
#include "common/files/gguf.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

void set_scale(FamilyConfig& config, double scale) {
    change_each<AttentionConfig>(config, [&](AttentionConfig& each) { each.scale = scale; });
}
void set_local_theta(FamilyConfig& config, Real theta) {
    change_each<AttentionConfig>(config, [&](AttentionConfig& each) {
        if (std::holds_alternative<SlidingWindow>(each.pattern)) each.rope->rope_theta = theta;
    });
}

// A model of tests/fixtures with the vocabulary of the shipped tokenizer and with settings that
// llama.cpp has.
FamilyModel gemma_or_mistral(const std::string& type) {
    FamilyModel model = load_family_model(fixture_path("17_long_context/" + type));
    Generator generator(3);
    model.config.vocab_size = 1024;
    model.config.tie_word_embeddings = type != "mistral";
    model.embed_tokens = randn({1024, 20}, generator);
    if (model.lm_head) model.lm_head = randn({1024, 20}, generator);
    set_scale(model.config, 1 / std::sqrt(6.0));
    if (type == "gemma3_text") set_local_theta(model.config, Real(10'000));
    return model;
}

}  // namespace

TEST_CASE("export_gguf of Gemma and Mistral: metadata and tensors of gemma2 and gemma3_text") {
    for (const std::string type : {"gemma2", "gemma3_text"}) {
        CAPTURE(type);
        const FamilyModel model = gemma_or_mistral(type);
        const Scratch scratch;
        const std::string path = (scratch.folder / "model.gguf").string();
        models::export_gguf(model, shipped_tokenizer(), path);
        CHECK_THROWS_AS(models::export_gguf(model, shipped_tokenizer(), path), FileError);

        const Gguf file(path);
        const bool gemma2 = type == "gemma2";
        const std::string prefix = gemma2 ? "gemma2." : "gemma3.";
        CHECK(file.text("general.architecture") + "." == prefix);
        CHECK(file.integer(prefix + "attention.sliding_window") == 5);
        CHECK(file.integer(prefix + "attention.head_count") == 4);
        CHECK(file.integer(prefix + "attention.head_count_kv") == 2);
        CHECK(file.integer(prefix + "attention.key_length") == 6);
        CHECK(file.integer(prefix + "feed_forward_length") == 14);
        CHECK(file.number(prefix + "rope.freq_base") == (gemma2 ? 500 : 5000));
        CHECK(file.has(prefix + "rope.scaling.factor") == !gemma2);
        if (gemma2) {
            CHECK(file.number(prefix + "attn_logit_softcapping") == 2);
            CHECK(file.number(prefix + "final_logit_softcapping") == 10);
        } else {
            CHECK(file.number(prefix + "rope.scaling.factor") == 4);
        }
        const auto& block = std::get<GemmaBlock>(model.layers[2]);
        CHECK_CLOSE(file.read("blk.2.attn_norm.weight", {20}), block.attention_norm.weight, 0);
        CHECK_CLOSE(file.read("blk.2.post_attention_norm.weight", {20}),
                    block.attention_output_norm.weight, 0);
        CHECK_CLOSE(file.read("blk.2.ffn_norm.weight", {20}), block.ffn_norm.weight, 0);
        CHECK_CLOSE(file.read("blk.2.post_ffw_norm.weight", {20}), block.ffn_output_norm.weight,
                    0);
        CHECK_CLOSE(file.read("blk.2.attn_q.weight", {24, 20}),
                    block.self_attn.layer.projections.q_proj.weight, 0);
        CHECK_CLOSE(file.read("blk.2.ffn_down.weight", {20, 14}),
                    std::get<GatedMlp>(block.mlp).down_proj.weight, 0);
        CHECK(file.has_tensor("blk.2.attn_q_norm.weight") == !gemma2);
        CHECK(file.tensors().size() == model.layers.size() * (gemma2 ? 11 : 13) + 2);
    }
}

TEST_CASE("export_gguf of Gemma and Mistral rejects what llama.cpp does not compute") {
    FamilyModel model = gemma_or_mistral("gemma3_text");
    attention(model.config, 0).pattern = FullAttention{};
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's gemma3_text has full attention in layers 5, 11, ... and windows "
          "in all others");
    model = gemma_or_mistral("gemma2");
    attention(model.config, 3).pattern = SlidingWindow{5};
    CHECK(
        rejection_of_gguf(model) ==
        "export: llama.cpp's gemma2 has full attention in layers 1, 3, ... and windows in all "
        "others");
    model = gemma_or_mistral("gemma2");
    set_scale(model.config, 1.0 / 3);
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's gemma2 scales scores by 1/√head_dim: query_pre_attn_scalar must "
          "be 6");
    model = gemma_or_mistral("gemma2");
    model.config.final_logit_softcapping = std::nullopt;
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's gemma2 has soft caps of scores and logits");
    model = gemma_or_mistral("gemma3_text");
    set_local_theta(model.config, Real(500));
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's gemma3 has a rope_local_base_freq of 10000");
    CHECK(rejection_of_gguf(gemma_or_mistral("mistral")) ==
          "export: llama.cpp's llama has no window: 64 tokens do not fit into a window of 5");
}

TEST_CASE("export_gguf: a Mistral whose context fits into its window is a llama") {
    FamilyModel model = gemma_or_mistral("mistral");
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        attention(model.config, n).pattern = SlidingWindow{64};
        std::get<MoeBlock>(model.layers[n]).self_attn.pattern = SlidingWindow{64};
    }
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    models::export_gguf(model, shipped_tokenizer(), path);
    const IdMatrix ids = load_ids<2>(fixture_file("17_long_context/ids"));
    CHECK_CLOSE(models::load_model(path)(ids), model(ids), 2e-5);
}
