#include "chapters/08_pre_vs_post_norm/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

// Small sublayers, and four norms whose weights all differ.
struct Small {
    Config config = [] {
        Config small;
        small.hidden_size = 12;
        small.num_attention_heads = 3;
        small.num_key_value_heads = 1;
        return validate(small, 5);
    }();
    Generator generator{8};
    Tensor3 x = randn({2, 5, 12}, generator) * Real(3);
    AttentionLayer self_attn = make_attention_layer(config, generator);
    GatedMlp mlp = make_gated_mlp(12, 16, false, SiLU, generator);
    AttentionInputs inputs = causal_attention_inputs(config, 2, 5);
    RMSNorm a = norm(), b = norm(), c = norm(), d = norm();

    RMSNorm norm() { return {uniform({12}, Real(0.5), Real(1.5), generator), Real(1e-5)}; }

    Tensor3 attention_output(const Tensor3& states) const {
        return self_attn(states, inputs).hidden_states;
    }
    PreNormBlock pre_norm_block() const { return {self_attn, mlp, a, b}; }
    Tensor3 pre_norm_output() const { return pre_norm_block()(x, inputs).hidden_states; }
};

}  // namespace

TEST_CASE("8.1 find the bug: a residual stream that does not grow") {
    const Small s;
    INFO("x + f(norm(x)), for attention and then for the MLP");
    CHECK_CLOSE(residual_block(s.pre_norm_block(), s.x, s.inputs), s.pre_norm_output(), 1e-5);
}

TEST_CASE("8.2 find the bug: right until a checkpoint is loaded") {
    const Small s;
    INFO("attention reads attention_norm's output, the MLP reads ffn_norm's output");
    CHECK_CLOSE(checkpoint_block(s.pre_norm_block(), s.x, s.inputs), s.pre_norm_output(), 1e-5);
}

TEST_CASE("8.3 find the bug: the formula of the PaLM paper") {
    const Small s;
    INFO("the output of the block contains the attention output");
    CHECK_CLOSE(serial_block(s.pre_norm_block(), s.x, s.inputs), s.pre_norm_output(), 1e-5);
}

TEST_CASE("8.4 find the bug: probabilities close to 0 and 1") {
    const Small s;
    const PreNormBlock block = s.pre_norm_block();
    const Tensor3 after_two_layers = block(s.pre_norm_output(), s.inputs).hidden_states;
    INFO("what the output layer reads after two layers");
    CHECK_CLOSE(decoder_forward({{block, block}, s.c}, s.x, s.inputs), s.c(after_two_layers),
                1e-5);
}

TEST_CASE("8.5 write neox_block") {
    const Small s;
    INFO("x + attention(norm(x)) + mlp(other norm(x))");
    CHECK_CLOSE(neox_block(s.self_attn, s.mlp, s.a, s.b, s.x, s.inputs),
                s.x + s.attention_output(s.a(s.x)) + s.mlp(s.b(s.x)), 1e-5);
}

TEST_CASE("8.6 write gemma_block") {
    const Small s;
    const GemmaWeights stored{s.a.weight - Real(1), s.b.weight - Real(1), s.c.weight - Real(1),
                              s.d.weight - Real(1)};
    const SandwichBlock block = gemma_block(s.self_attn, s.mlp, stored, Real(1e-5));
    const Tensor3 after_attention = s.x + s.b(s.attention_output(s.a(s.x)));
    INFO(
        "in the order of the checkpoint: before and after attention, before and after the MLP");
    CHECK_CLOSE(block(s.x, s.inputs).hidden_states,
                after_attention + s.d(s.mlp(s.c(after_attention))), 1e-5);
}

TEST_CASE("8.7 write deep_norm_block") {
    const Small s;
    const PostNormBlock block{s.self_attn, s.mlp, s.a, s.b};
    {
        INFO("with alpha 1 it equals post-norm");
        CHECK_CLOSE(deep_norm_block(block, 1, s.x, s.inputs),
                    block(s.x, s.inputs).hidden_states, 1e-5);
    }
    INFO("with alpha 3");
    const Tensor3 after_attention = s.a(s.x * Real(3) + s.attention_output(s.x));
    CHECK_CLOSE(deep_norm_block(block, 3, s.x, s.inputs),
                s.b(after_attention * Real(3) + s.mlp(after_attention)), 1e-5);
}
