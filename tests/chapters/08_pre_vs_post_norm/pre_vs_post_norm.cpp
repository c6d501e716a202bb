#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Tensor3 pinned(const std::string& name) { return fixture<3>("08_pre_vs_post_norm/" + name); }

Config small_config() {
    Config config;
    config.hidden_size = 20;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 3;
    config.head_dim = 4;
    config.qk_norm = QKNormType::none;
    config.rms_norm_eps = Real(1e-3);
    return validate(config, 5);
}

// The sublayers of the fixtures, with four norms whose weights all differ.
struct Small {
    Config config = small_config();
    Generator generator{88};
    Tensor3 hidden_states = randn({2, 5, 20}, generator) * Real(2);
    AttentionLayer self_attn = make_attention_layer(config, generator);
    GatedMlp mlp = make_gated_mlp(20, 28, false, SiLU, generator);
    AttentionInputs inputs = causal_attention_inputs(config, 2, 5);

    RMSNorm norm(std::size_t row) const {
        const Matrix weights = fixture<2>("08_pre_vs_post_norm/norm_weights");
        return {xt::view(weights, row), Real(1e-3)};
    }

    Tensor3 attention_output(const Tensor3& states) const {
        return self_attn(states, inputs).hidden_states;
    }
};

// The blocks of the chapter's program.
struct Example {
    Config config = validate(Config{}, 10);
    Generator generator{77};
    Tensor3 hidden_states = randn({2, 10, 128}, generator);
    AttentionLayer self_attn = make_attention_layer(config, generator);
    GatedMlp mlp = make_gated_mlp(128, 352, false, SiLU, generator);
    AttentionInputs inputs = causal_attention_inputs(config, 2, 10);

    Tensor3 output(NormPlacement norm_placement) const {
        return apply(make_block(norm_placement, self_attn, mlp, Real(1e-5)), hidden_states,
                     inputs);
    }
};

const std::vector<NormPlacement> all_norm_placements = {
    NormPlacement::pre_norm, NormPlacement::post_norm, NormPlacement::res_post_norm,
    NormPlacement::sandwich, NormPlacement::parallel};

// The tokens from first up to last of each sequence.
Tensor3 tokens(const Tensor3& hidden_states, std::size_t first, std::size_t last) {
    return xt::view(hidden_states, xt::all(), xt::range(first, last), xt::all());
}

}  // namespace

TEST_CASE("the input of the fixtures equals torch.randn's") {
    CHECK_CLOSE(Small{}.hidden_states, pinned("hidden_states"), 1e-6);
}

TEST_CASE("PreNormBlock equals PyTorch: x + f(norm(x))") {
    const Small s;
    const PreNormBlock block{s.self_attn, s.mlp, s.norm(0), s.norm(1)};
    CHECK_CLOSE(block(s.hidden_states, s.inputs).hidden_states, pinned("pre_norm"), 1e-5);
}

TEST_CASE("PostNormBlock equals PyTorch: norm(x + f(x))") {
    const Small s;
    const PostNormBlock block{s.self_attn, s.mlp, s.norm(0), s.norm(1)};
    CHECK_CLOSE(block(s.hidden_states, s.inputs).hidden_states, pinned("post_norm"), 1e-5);
}

TEST_CASE("ResPostNormBlock equals PyTorch: x + norm(f(x))") {
    const Small s;
    const ResPostNormBlock block{s.self_attn, s.mlp, s.norm(0), s.norm(1)};
    CHECK_CLOSE(block(s.hidden_states, s.inputs).hidden_states, pinned("res_post_norm"), 1e-5);
}

TEST_CASE("SandwichBlock equals PyTorch: x + norm(f(norm(x)))") {
    const Small s;
    const SandwichBlock block{s.self_attn, s.mlp, s.norm(0), s.norm(2), s.norm(1), s.norm(3)};
    CHECK_CLOSE(block(s.hidden_states, s.inputs).hidden_states, pinned("sandwich"), 1e-5);
}

TEST_CASE("ParallelBlock equals PyTorch: x + attention(norm(x)) + mlp(norm(x))") {
    const Small s;
    const ParallelBlock block{s.self_attn, s.mlp, s.norm(0)};
    CHECK_CLOSE(block(s.hidden_states, s.inputs).hidden_states, pinned("parallel"), 1e-5);
}

TEST_CASE("a GPT-2 block is a PreNormBlockWith LayerNorm and Mlp") {
    Small s;
    const auto layer_norm = [&] {
        return LayerNorm{uniform({20}, Real(0.5), Real(1.5), s.generator),
                         uniform({20}, Real(-1), Real(1), s.generator), Real(1e-3)};
    };
    const LayerNorm ln_1 = layer_norm(), ln_2 = layer_norm();
    const Mlp mlp = make_mlp(20, 28, true, GELUTanh, s.generator);
    const PreNormBlockWith<LayerNorm, Mlp> block{s.self_attn, mlp, ln_1, ln_2};

    const Tensor3 after_attention = s.hidden_states + s.attention_output(ln_1(s.hidden_states));
    const Tensor3 activated = activate(GELUTanh, mlp.up_proj(ln_2(after_attention)));
    const Tensor3 expected = after_attention + mlp.down_proj(activated);
    CHECK_CLOSE(block(s.hidden_states, s.inputs).hidden_states, expected, 1e-6);
}

TEST_CASE("PreNormBlockWith takes every pair of a norm and an MLP") {
    Small s;
    const LayerNorm layer_norm{uniform({20}, Real(0.5), Real(1.5), s.generator), {}};
    const RMSNorm rms_norm = s.norm(0);
    const Mlp mlp = make_mlp(20, 28, true, ReLU, s.generator);
    const Tensor3 x = s.hidden_states;
    const Tensor3 with_layer_norm = x + s.attention_output(layer_norm(x));
    const Tensor3 with_rms_norm = x + s.attention_output(rms_norm(x));

    const PreNormBlockWith<LayerNorm, GatedMlp> a{s.self_attn, s.mlp, layer_norm, layer_norm};
    CHECK_CLOSE(a(x, s.inputs).hidden_states,
                with_layer_norm + s.mlp(layer_norm(with_layer_norm)), 1e-6);
    const PreNormBlockWith<RMSNorm, Mlp> b{s.self_attn, mlp, rms_norm, rms_norm};
    CHECK_CLOSE(b(x, s.inputs).hidden_states, with_rms_norm + mlp(rms_norm(with_rms_norm)),
                1e-6);
}

TEST_CASE("the program's block: every norm placement of the same weights equals PyTorch's") {
    const Example example;
    CHECK_CLOSE(example.output(NormPlacement::pre_norm), pinned("demo_pre_norm"), 1e-5);
    CHECK_CLOSE(example.output(NormPlacement::post_norm), pinned("demo_post_norm"), 1e-5);
    CHECK_CLOSE(example.output(NormPlacement::res_post_norm), pinned("demo_res_post_norm"),
                1e-5);
    CHECK_CLOSE(example.output(NormPlacement::sandwich), pinned("demo_sandwich"), 1e-5);
    CHECK_CLOSE(example.output(NormPlacement::parallel), pinned("demo_parallel"), 1e-5);
}

TEST_CASE("if the sublayers output zeros, only post-norm changes the residual stream") {
    Small s;
    for (Linear* output_projection : {&s.self_attn.projections.o_proj, &s.mlp.down_proj})
        output_projection->weight = output_projection->weight * Real(0);
    const RMSNorm norm = make_rms_norm(20, Real(1e-3));
    for (const NormPlacement norm_placement : all_norm_placements) {
        const Block block = make_block(norm_placement, s.self_attn, s.mlp, Real(1e-3));
        const Tensor3 output = apply(block, s.hidden_states, s.inputs);
        if (norm_placement == NormPlacement::post_norm)
            CHECK_CLOSE(output, norm(norm(s.hidden_states)), 1e-6);
        else
            CHECK_CLOSE(output, s.hidden_states, 0);
    }
}

TEST_CASE("make_block builds norms with weights of one and the given eps") {
    const Small s;
    const RMSNorm norm = make_rms_norm(20, Real(0.5));
    const PreNormBlock block{s.self_attn, s.mlp, norm, norm};
    CHECK_CLOSE(apply(make_block(NormPlacement::pre_norm, s.self_attn, s.mlp, Real(0.5)),
                      s.hidden_states, s.inputs),
                block(s.hidden_states, s.inputs).hidden_states, 0);
    CHECK_THROWS_AS(make_block(static_cast<NormPlacement>(9), s.self_attn, s.mlp, Real(0.5)),
                    ValueError);
}

TEST_CASE("with every norm placement, a token's output depends on no later token") {
    const Small s;
    Tensor3 changed = s.hidden_states;
    xt::view(changed, 1, 4) = Real(3);  // the last token of the second sequence
    for (const NormPlacement norm_placement : all_norm_placements) {
        const Block block = make_block(norm_placement, s.self_attn, s.mlp, Real(1e-3));
        const Tensor3 before = apply(block, s.hidden_states, s.inputs);
        const Tensor3 after = apply(block, changed, s.inputs);
        for (const auto [b, t, c] : every_index(2, 5, 20))
            if (b != 1 || t != 4) CHECK(after(b, t, c) == doctest::Approx(before(b, t, c)));
        CHECK(after(1, 4, 0) != doctest::Approx(before(1, 4, 0)));
    }
}

TEST_CASE(
    "with every norm placement, a block with a KV cache gives the same output token by token") {
    const Small s;
    for (const NormPlacement norm_placement : all_norm_placements) {
        const Block block = make_block(norm_placement, s.self_attn, s.mlp, Real(1e-3));
        const Tensor3 expected = apply(block, s.hidden_states, s.inputs);
        LayerCache cache;
        for (std::size_t t = 0; t < 5; ++t) {
            const AttentionInputs inputs =
                causal_attention_inputs(s.inputs.rotary_table, 2, 1, t);
            const Tensor3 token = tokens(s.hidden_states, t, t + 1);  // (B, 1, C)
            const BlockOutput output =
                std::visit([&](const auto& any) { return any(token, inputs, &cache); }, block);
            CHECK_CLOSE(output.hidden_states, tokens(expected, t, t + 1), 1e-5);
            CHECK(dims(output.attentions) == std::array<std::size_t, 4>{2, 6, 1, t + 1});
            CHECK(dims(cache.keys) == std::array<std::size_t, 4>{2, 3, t + 1, 4});
        }
    }
}

TEST_CASE("a block returns the attention weights of its attention layer") {
    const Small s;
    const RMSNorm norm = make_rms_norm(20, Real(1e-3));
    const AttentionLayer::Output of_input = s.self_attn(s.hidden_states, s.inputs);
    const AttentionLayer::Output of_normalized = s.self_attn(norm(s.hidden_states), s.inputs);
    for (const NormPlacement norm_placement : all_norm_placements) {
        const Block block = make_block(norm_placement, s.self_attn, s.mlp, Real(1e-3));
        const BlockOutput output =
            std::visit([&](const auto& any) { return any(s.hidden_states, s.inputs); }, block);
        const bool reads_input = norm_placement == NormPlacement::post_norm ||
                                 norm_placement == NormPlacement::res_post_norm;
        CHECK_CLOSE(output.attentions, (reads_input ? of_input : of_normalized).attentions, 0);
    }
}

TEST_CASE("causal_attention_inputs: position ids, rotary table and mask of every sequence") {
    const AttentionInputs inputs = causal_attention_inputs(small_config(), 3, 5);
    CHECK_CLOSE(inputs.position_ids, position_ids(3, 5), 0);
    CHECK_CLOSE(inputs.attention_mask, expand_mask(causal_mask(5, 5), 3), 0);
    CHECK(dims(inputs.rotary_table.cos) == std::array<std::size_t, 2>{5, 2});
    CHECK(inputs.rotary_table.cos(1, 0) == doctest::Approx(std::cos(1)));

    Config other = small_config();
    other.rope_theta = 16;
    CHECK(causal_attention_inputs(other, 3, 5).rotary_table.sin(1, 1) ==
          doctest::Approx(std::sin(0.25)));
}

TEST_CASE("scale_for_depth divides weight and bias by the root of 2 L") {
    const Small s;
    const Linear &o_proj = s.self_attn.projections.o_proj, &down_proj = s.mlp.down_proj;
    CHECK_CLOSE(scale_for_depth(o_proj, 8).weight * Real(4), o_proj.weight, 1e-6);
    CHECK_FALSE(scale_for_depth(o_proj, 8).bias.has_value());
    CHECK_CLOSE(scale_for_depth(down_proj, 1).weight * std::sqrt(Real(2)), down_proj.weight,
                1e-6);

    Linear biased = down_proj;
    biased.bias = Vector(xt::ones<Real>(std::array<std::size_t, 1>{20}));
    const Tensor3 features = s.mlp.up_proj(s.hidden_states);
    CHECK_CLOSE(scale_for_depth(biased, 8)(features) * Real(4), biased(features), 1e-6);
    CHECK_THROWS_WITH_AS(scale_for_depth(o_proj, 0),
                         "scale_for_depth: a model needs at least one layer, not 0",
                         ValueError);
}

TEST_CASE("scaled output projections divide what a block adds by the root of 2 L") {
    const Small s;
    AttentionLayer self_attn = s.self_attn;
    GatedMlp mlp = s.mlp;
    self_attn.projections.o_proj = scale_for_depth(self_attn.projections.o_proj, 8);
    mlp.down_proj = scale_for_depth(mlp.down_proj, 8);
    CHECK_CLOSE(self_attn(s.hidden_states, s.inputs).hidden_states * Real(4),
                s.attention_output(s.hidden_states), 1e-6);
    CHECK_CLOSE(mlp(s.hidden_states) * Real(4), s.mlp(s.hidden_states), 1e-6);
}
