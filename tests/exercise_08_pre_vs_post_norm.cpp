#include "chapters/08_pre_vs_post_norm/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

// Small sublayers, and norms that all have other weights.
struct Parts {
    Config config = [] {
        Config small;
        small.hidden_size = 12;
        small.num_attention_heads = 3;
        small.num_key_value_heads = 1;
        return complete(small, 5);
    }();
    Generator generator{8};
    Tensor3 x = randn({2, 5, 12}, generator) * Real(3);
    Sublayers sublayers = make_sublayers(config, 16, generator);
    Placement placement = causal_placement(config, 2, 5);
    RMSNorm a = norm(), b = norm(), c = norm(), d = norm();

    RMSNorm norm() { return {uniform({12}, Real(0.5), Real(1.5), generator), Real(1e-5)}; }
    PreNormBlock pre_norm() const { return {sublayers, a, b}; }
};

}  // namespace

TEST_CASE("8.1 find the bug: a stream that never grows") {
    const Parts p;
    INFO("x + f(norm(x)), for attention and then for the MLP");
    CHECK_CLOSE(with_a_skip(p.pre_norm(), p.x, p.placement), p.pre_norm()(p.x, p.placement),
                1e-5);
}

TEST_CASE("8.2 find the bug: right until a checkpoint is loaded") {
    const Parts p;
    INFO("attention reads through attention_norm, the MLP through ffn_norm");
    CHECK_CLOSE(with_two_norms(p.pre_norm(), p.x, p.placement), p.pre_norm()(p.x, p.placement),
                1e-5);
}

TEST_CASE("8.3 find the bug: a formula from a slide") {
    const Parts p;
    INFO("what attention added is still in the stream behind the block");
    CHECK_CLOSE(with_two_residuals(p.pre_norm(), p.x, p.placement),
                p.pre_norm()(p.x, p.placement), 1e-5);
}

TEST_CASE("8.4 find the bug: certain of everything") {
    const Parts p;
    const PreNormBlock block = p.pre_norm();
    const Tensor3 stream = block(block(p.x, p.placement), p.placement);
    INFO("the final norm of the stream behind the last layer");
    CHECK_CLOSE(through_the_model({{block, block}, p.c}, p.x, p.placement), p.c(stream), 1e-5);
}

TEST_CASE("8.5 write neox_block") {
    const Parts p;
    INFO("x + attention(norm(x)) + mlp(other norm(x))");
    CHECK_CLOSE(neox_block(p.sublayers, p.a, p.b, p.x, p.placement),
                p.x + p.sublayers.attend(p.a(p.x), p.placement) + p.sublayers.mlp(p.b(p.x)),
                1e-5);
}

TEST_CASE("8.6 write gemma_block") {
    const Parts p;
    const GemmaWeights stored{p.a.weight - Real(1), p.b.weight - Real(1), p.c.weight - Real(1),
                              p.d.weight - Real(1)};
    const SandwichBlock block = gemma_block(p.sublayers, stored, Real(1e-5));
    const Tensor3 attended = p.x + p.b(p.sublayers.attend(p.a(p.x), p.placement));
    INFO(
        "in the order of the checkpoint: before and behind attention, before and behind the "
        "MLP");
    CHECK_CLOSE(block(p.x, p.placement), attended + p.d(p.sublayers.mlp(p.c(attended))), 1e-5);
}

TEST_CASE("8.7 write deep_norm") {
    const Parts p;
    const PostNormBlock block{p.sublayers, p.a, p.b};
    {
        INFO("with alpha 1 it is post-norm");
        CHECK_CLOSE(deep_norm(block, 1, p.x, p.placement), block(p.x, p.placement), 1e-5);
    }
    INFO("with alpha 3");
    const Tensor3 attended = p.a(p.x * Real(3) + block.attend(p.x, p.placement));
    CHECK_CLOSE(deep_norm(block, 3, p.x, p.placement),
                p.b(attended * Real(3) + block.mlp(attended)), 1e-5);
}
