#include <cmath>

#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/08_pre_vs_post_norm/exercise.hpp"
#include "common/numbers/statistics.hpp"
#include "tests/support/check.hpp"

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

TEST_CASE("8.1 predict two sublayers") {
    const Matrix prediction = predicted_stream();
    const Matrix x0{{2, 2}}, first{{-1, 5}}, second{{Real(-7.2), Real(-0.4)}};
    const Matrix pre_norm = x0 + first + second;
    const Matrix after_first = rms_normalize(x0 + first, 0);
    const Matrix post_norm = rms_normalize(after_first + second, 0);
    const Matrix truth = xt::concatenate(xt::xtuple(pre_norm, post_norm), 0);
    INFO("pre-norm in row 0, post-norm in row 1");
    CHECK_CLOSE(prediction, truth, 0.01);
}

TEST_CASE("8.2 predict six sublayers") {
    const Vector prediction = predicted_depth();
    // Term n is sqrt(7) in feature n: an RMS of 1, and orthogonal to all others.
    const Matrix terms = xt::eye<Real>(7) * std::sqrt(Real(7));
    Matrix pre_norm = xt::view(terms, xt::range(0, 1)), post_norm = pre_norm;
    for (std::size_t n = 1; n < 7; ++n) {
        const Matrix term = xt::view(terms, xt::range(n, n + 1));
        pre_norm = pre_norm + term;
        post_norm = rms_normalize(post_norm + term, 0);
    }
    const Vector truth{Real(root_mean_square(pre_norm)), post_norm(0, 0) / terms(0, 0)};
    INFO("the RMS in pre-norm, the factor of the embedding in post-norm");
    CHECK_CLOSE(prediction, truth, 0.01);
}

TEST_CASE("8.3 predict blocks without outputs") {
    const Vector prediction = predicted_output_rms();
    Small s;
    s.self_attn.projections.o_proj.weight *= Real(0);
    s.mlp.down_proj.weight *= Real(0);
    const Tensor3 first = xt::view(s.x, xt::range(0, 1), xt::range(0, 1), xt::all());
    const Tensor3 token = first * Real(5 / root_mean_square(first));
    const AttentionInputs inputs = causal_attention_inputs(s.config, 1, 1);
    Vector truth = xt::zeros<Real>({5});
    for (std::size_t n = 0; n < 5; ++n)
        truth(n) = Real(root_mean_square(apply(
            make_block(NormPlacement(n), s.self_attn, s.mlp, Real(1e-5)), token, inputs)));
    INFO("pre-norm, post-norm, res-post-norm, sandwich norm, parallel block");
    CHECK_CLOSE(prediction, truth, 0.01);
}

TEST_CASE("8.4 find the bug: a translation from Python") {
    const Small s;
    INFO("x + f(norm(x)), for attention and then for the MLP");
    CHECK_CLOSE(translated_block(s.pre_norm_block(), s.x, s.inputs), s.pre_norm_output(), 1e-5);
}

TEST_CASE("8.5 find the bug: fewer passes over memory") {
    const Small s;
    const PreNormBlock block = s.pre_norm_block();
    const PreNormBlock other{s.self_attn, s.mlp, s.c, s.d};
    const Tensor3 after_two_layers = other(s.pre_norm_output(), s.inputs).hidden_states;
    INFO("the final norm of the residual stream after two layers");
    CHECK_CLOSE(decoder_forward({{block, other}, s.c}, s.x, s.inputs), s.c(after_two_layers),
                1e-5);
}

TEST_CASE("8.6 write neox_block") {
    const Small s;
    INFO("x + attention(norm(x)) + mlp(other norm(x))");
    CHECK_CLOSE(neox_block(s.self_attn, s.mlp, s.a, s.b, s.x, s.inputs),
                s.x + s.attention_output(s.a(s.x)) + s.mlp(s.b(s.x)), 1e-5);
}

TEST_CASE("8.7 write gemma_block") {
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

TEST_CASE("8.8 write deep_norm_block") {
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
