#include <cmath>

#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "tests/check.hpp"

using namespace llm;

namespace {

Tensor3 pinned(const std::string& name) { return fixture<3>("08_pre_vs_post_norm/" + name); }

Config small_config() {
    Config config;
    config.hidden_size = 20;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 3;
    config.head_dim = 4;
    config.use_qk_norm = false;
    config.rms_norm_eps = Real(1e-3);
    return complete(config, 5);
}

// The blocks of the fixtures: four norms with weights of their own.
struct Small {
    Config config = small_config();
    Generator generator{88};
    Tensor3 hidden_states = randn({2, 5, 20}, generator) * Real(2);
    Sublayers sublayers = make_sublayers(config, 28, generator);
    Placement placement = causal_placement(config, 2, 5);

    RMSNorm norm(std::size_t row) const {
        const Matrix weights = fixture<2>("08_pre_vs_post_norm/norm_weights");
        return {xt::view(weights, row), Real(1e-3)};
    }
};

struct Walk {
    Config config = complete(Config{}, 10);
    Generator generator{77};
    Tensor3 hidden_states = randn({2, 10, 128}, generator);
    Sublayers sublayers = make_sublayers(config, 352, generator);
    Placement placement = causal_placement(config, 2, 10);

    Tensor3 output(Arrangement arrangement) const {
        return arranged(arrangement, sublayers)(hidden_states, placement);
    }
};

// Sublayers that add nothing: what comes out shows what the block does to the stream.
Sublayers silent(const Small& small) {
    Sublayers sublayers = small.sublayers;
    for (Linear* last : {&sublayers.self_attn.projections.o_proj, &sublayers.mlp.down_proj})
        last->weight = last->weight * Real(0);
    return sublayers;
}

}  // namespace

TEST_CASE("the input of the fixtures is drawn as PyTorch draws it") {
    CHECK_CLOSE(Small{}.hidden_states, pinned("hidden_states"), 1e-6);
}

TEST_CASE("PreNormBlock equals PyTorch: x + f(norm(x))") {
    const Small s;
    const PreNormBlock block{s.sublayers, s.norm(0), s.norm(1)};
    CHECK_CLOSE(block(s.hidden_states, s.placement), pinned("pre_norm"), 1e-5);
}

TEST_CASE("PostNormBlock equals PyTorch: norm(x + f(x))") {
    const Small s;
    const PostNormBlock block{s.sublayers, s.norm(0), s.norm(1)};
    CHECK_CLOSE(block(s.hidden_states, s.placement), pinned("post_norm"), 1e-5);
}

TEST_CASE("ResPostNormBlock equals PyTorch: x + norm(f(x))") {
    const Small s;
    const ResPostNormBlock block{s.sublayers, s.norm(0), s.norm(1)};
    CHECK_CLOSE(block(s.hidden_states, s.placement), pinned("res_post_norm"), 1e-5);
}

TEST_CASE("SandwichBlock equals PyTorch: x + norm(f(norm(x)))") {
    const Small s;
    const SandwichBlock block{s.sublayers, s.norm(0), s.norm(2), s.norm(1), s.norm(3)};
    CHECK_CLOSE(block(s.hidden_states, s.placement), pinned("sandwich"), 1e-5);
}

TEST_CASE("ParallelBlock equals PyTorch: x + attention(norm(x)) + mlp(norm(x))") {
    const Small s;
    const ParallelBlock block{s.sublayers, s.norm(0)};
    CHECK_CLOSE(block(s.hidden_states, s.placement), pinned("parallel"), 1e-5);
}

TEST_CASE("the walk: every arrangement of the same weights equals PyTorch's") {
    const Walk walk;
    CHECK_CLOSE(walk.output(Arrangement::pre_norm), pinned("walk_pre_norm"), 1e-5);
    CHECK_CLOSE(walk.output(Arrangement::post_norm), pinned("walk_post_norm"), 1e-5);
    CHECK_CLOSE(walk.output(Arrangement::res_post_norm), pinned("walk_res_post_norm"), 1e-5);
    CHECK_CLOSE(walk.output(Arrangement::sandwich), pinned("walk_sandwich"), 1e-5);
    CHECK_CLOSE(walk.output(Arrangement::parallel), pinned("walk_parallel"), 1e-5);
}

TEST_CASE("sublayers that add nothing: the stream passes, except through a post-norm") {
    const Small s;
    const Sublayers sublayers = silent(s);
    for (const Arrangement arrangement : {Arrangement::pre_norm, Arrangement::res_post_norm,
                                          Arrangement::sandwich, Arrangement::parallel})
        CHECK_CLOSE(arranged(arrangement, sublayers)(s.hidden_states, s.placement),
                    s.hidden_states, 0);
    const RMSNorm norm = make_rms_norm(20, Real(1e-3));
    CHECK_CLOSE(arranged(Arrangement::post_norm, sublayers)(s.hidden_states, s.placement),
                norm(norm(s.hidden_states)), 1e-6);
}

TEST_CASE("arranged takes the eps of the configuration") {
    Small s;
    s.sublayers.self_attn.config.rms_norm_eps = Real(0.5);
    const RMSNorm norm = make_rms_norm(20, Real(0.5));
    const PreNormBlock block{s.sublayers, norm, norm};
    CHECK_CLOSE(arranged(Arrangement::pre_norm, s.sublayers)(s.hidden_states, s.placement),
                block(s.hidden_states, s.placement), 0);
    CHECK_THROWS_AS(arranged(static_cast<Arrangement>(9), s.sublayers), std::invalid_argument);
}

TEST_CASE("no arrangement lets the past see the future") {
    const Small s;
    Tensor3 changed = s.hidden_states;
    xt::view(changed, 1, 4) = Real(3);  // the last token of the second sequence
    for (const Arrangement arrangement :
         {Arrangement::pre_norm, Arrangement::post_norm, Arrangement::res_post_norm,
          Arrangement::sandwich, Arrangement::parallel}) {
        const Block block = arranged(arrangement, s.sublayers);
        const Tensor3 before = block(s.hidden_states, s.placement);
        const Tensor3 after = block(changed, s.placement);
        for (const auto [b, t, c] : every_index(2, 5, 20))
            if (b != 1 || t != 4) CHECK(after(b, t, c) == doctest::Approx(before(b, t, c)));
        CHECK(after(1, 4, 0) != doctest::Approx(before(1, 4, 0)));
    }
}

TEST_CASE("causal_placement: positions, angles and mask for every sequence") {
    const Placement placement = causal_placement(small_config(), 3, 5);
    CHECK_CLOSE(placement.positions, position_ids(3, 5), 0);
    CHECK_CLOSE(placement.mask, expand_mask(causal_mask(5, 5), 3), 0);
    CHECK(dims(placement.table.cos) == std::array<std::size_t, 2>{5, 2});
    CHECK(placement.table.cos(1, 0) == doctest::Approx(std::cos(1)));

    Config other = small_config();
    other.rope_theta = 16;
    CHECK(causal_placement(other, 3, 5).table.sin(1, 1) == doctest::Approx(std::sin(0.25)));
}

TEST_CASE("scaled_for_depth: what is added shrinks by the root of 2 L, nothing else") {
    const Small s;
    const Sublayers scaled = scaled_for_depth(s.sublayers, 8);
    CHECK_CLOSE(scaled.attend(s.hidden_states, s.placement) * Real(4),
                s.sublayers.attend(s.hidden_states, s.placement), 1e-6);
    CHECK_CLOSE(scaled.mlp(s.hidden_states) * Real(4), s.sublayers.mlp(s.hidden_states), 1e-6);
    const Projections &before = s.sublayers.self_attn.projections,
                      &after = scaled.self_attn.projections;
    CHECK_CLOSE(after.o_proj.weight * Real(4), before.o_proj.weight, 1e-6);
    CHECK_CLOSE(after.v_proj.weight, before.v_proj.weight, 0);
    CHECK_CLOSE(scaled.mlp.up_proj.weight, s.sublayers.mlp.up_proj.weight, 0);

    Sublayers biased = s.sublayers;
    biased.mlp.down_proj.bias = Vector(xt::ones<Real>(std::array<std::size_t, 1>{20}));
    CHECK_CLOSE(scaled_for_depth(biased, 8).mlp(s.hidden_states) * Real(4),
                biased.mlp(s.hidden_states), 1e-6);
    CHECK_CLOSE(scaled_for_depth(s.sublayers, 1).mlp(s.hidden_states) * std::sqrt(Real(2)),
                s.sublayers.mlp(s.hidden_states), 1e-6);
    CHECK_THROWS_WITH_AS(scaled_for_depth(s.sublayers, 0),
                         "scaled_for_depth: a model needs a layer, not 0", ShapeError);
}
