// The backward pass of each layer against central differences of the loss, in double.
#include "chapters/01_masking/masking.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/12_gradients/attention_backward.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/mlp_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"
#include "tests/support/finite_differences.hpp"

using namespace llm;
using namespace llm::finite_differences;

TEST_CASE("linear_backward: input, weight and bias") {
    Linear linear{random_matrix(F, C, 1), random_vector(F, 2)};
    Linear gradient = zeros_of(linear);
    Matrix input = random_matrix(N, C, 3);
    const Loss<2> loss_of({N, F});
    const Matrix input_gradient = linear_backward(linear, input, loss_of.weights, gradient);
    const auto loss = [&] { return loss_of(linear(input)); };
    check_gradient("input", span_of(input), span_of(input_gradient), loss);
    check_parameters(linear, gradient, loss);
}

TEST_CASE("linear_backward of a batch: input, weight and bias") {
    Linear linear{random_matrix(F, C, 1), random_vector(F, 2)};
    Linear gradient = zeros_of(linear);
    Tensor3 input = random_states(C, 3);
    const Loss<3> loss_of({B, T, F});
    const Tensor3 input_gradient = linear_backward(linear, input, loss_of.weights, gradient);
    const auto loss = [&] { return loss_of(linear(input)); };
    check_gradient("input", span_of(input), span_of(input_gradient), loss);
    check_parameters(linear, gradient, loss);
}

TEST_CASE("backward functions accumulate: two calls give twice the gradient of the weights") {
    const Linear linear{random_matrix(F, C, 1), random_vector(F, 2)};
    Linear once = zeros_of(linear), twice = zeros_of(linear);
    const Matrix input = random_matrix(N, C, 3), output_gradient = random_matrix(N, F, 4);
    linear_backward(linear, input, output_gradient, once);
    linear_backward(linear, input, output_gradient, twice);
    linear_backward(linear, input, output_gradient, twice);
    for (std::size_t i = 0; i < once.weight.size(); ++i)
        CHECK(twice.weight.data()[i] == doctest::Approx(2 * once.weight.data()[i]));
    for (std::size_t i = 0; i < F; ++i)
        CHECK((*twice.bias)(i) == doctest::Approx(2 * (*once.bias)(i)));
}

TEST_CASE("backward functions name the shapes that do not fit") {
    Matrix sum = xt::zeros<Real>({2, 3});
    CHECK_THROWS_WITH_AS(
        accumulate_product(sum, random_matrix(4, 3, 1), random_matrix(4, 2, 2)),
        "backward: (3, 2) does not fit a gradient of (2, 3)", ValueError);
    Vector rows = xt::zeros<Real>({2});
    CHECK_THROWS_WITH_AS(accumulate_rows(rows, random_matrix(4, 3, 1)),
                         "backward: rows of (4, 3) do not fit a gradient of (2,)", ValueError);
    CHECK_THROWS_WITH_AS(embedding_backward(IdMatrix{{1, 0}}, random_states(C, 1), sum),
                         "backward: ids of (1, 2) and a gradient of (2, 3, 12) do not fit an "
                         "embedding of (2, 3)",
                         ValueError);
}

TEST_CASE("embedding_backward: a row that was read twice gets both gradients") {
    Matrix table = random_matrix(V, C, 1), gradient = xt::zeros<Real>({V, C});
    const IdMatrix ids{{3, 1, 3}, {0, 3, 6}};
    const Loss<3> loss_of({B, T, C});
    embedding_backward(ids, loss_of.weights, gradient);
    const auto loss = [&] {
        Tensor3 embeddings = xt::zeros<Real>({B, T, C});
        for (std::size_t n = 0; n < N; ++n)
            for (std::size_t c = 0; c < C; ++c)
                embeddings(n / T, n % T, c) =
                    table(static_cast<std::size_t>(ids(n / T, n % T)), c);
        return loss_of(embeddings);
    };
    check_gradient("table", span_of(table), span_of(gradient), loss);
}

TEST_CASE("norm_backward of RMSNorm and LayerNorm: input, weight and bias") {
    Matrix input = random_matrix(N, C, 3);
    const Loss<2> loss_of({N, C});
    for (const Real eps : {Real(1e-6), Real(0.5)}) {
        RMSNorm rms_norm{random_vector(C, 1), eps, random_vector(C, 2)};
        RMSNorm rms_gradient = zeros_of(rms_norm);
        const Matrix rms_input_gradient =
            norm_backward(rms_norm, input, loss_of.weights, rms_gradient);
        const auto rms_loss = [&] { return loss_of(rms_norm(input)); };
        check_gradient("RMSNorm's input", span_of(input), span_of(rms_input_gradient),
                       rms_loss);
        check_parameters(rms_norm, rms_gradient, rms_loss);

        LayerNorm layer_norm{random_vector(C, 1), random_vector(C, 2), eps};
        LayerNorm layer_gradient = zeros_of(layer_norm);
        const Matrix layer_input_gradient =
            norm_backward(layer_norm, input, loss_of.weights, layer_gradient);
        const auto layer_loss = [&] { return loss_of(layer_norm(input)); };
        check_gradient("LayerNorm's input", span_of(input), span_of(layer_input_gradient),
                       layer_loss);
        check_parameters(layer_norm, layer_gradient, layer_loss);
    }
}

TEST_CASE("norm_backward of a batch, without biases") {
    Tensor3 input = random_states(C, 3);
    const Loss<3> loss_of({B, T, C});
    RMSNorm rms_norm{random_vector(C, 1)};
    RMSNorm rms_gradient = zeros_of(rms_norm);
    const Tensor3 rms_input_gradient =
        norm_backward(rms_norm, input, loss_of.weights, rms_gradient);
    const auto rms_loss = [&] { return loss_of(rms_norm(input)); };
    check_gradient("RMSNorm's input", span_of(input), span_of(rms_input_gradient), rms_loss);
    check_parameters(rms_norm, rms_gradient, rms_loss);

    LayerNorm layer_norm{random_vector(C, 1), std::nullopt};
    LayerNorm layer_gradient = zeros_of(layer_norm);
    const Tensor3 layer_input_gradient =
        norm_backward(layer_norm, input, loss_of.weights, layer_gradient);
    const auto layer_loss = [&] { return loss_of(layer_norm(input)); };
    check_gradient("LayerNorm's input", span_of(input), span_of(layer_input_gradient),
                   layer_loss);
    check_parameters(layer_norm, layer_gradient, layer_loss);
}

TEST_CASE("rope_backward: the gradient of a rotation") {
    Tensor4 states = random_heads(H, 1);
    const RotaryTable table = make_rotary_table(inverse_frequencies(D, 10000), 20);
    const IdMatrix position_ids{{0, 5, 19}, {1, 2, 3}};
    const Loss<4> loss_of({B, H, T, D});
    const Tensor4 gradient = rope_backward(loss_of.weights, table, position_ids);
    check_gradient("states", span_of(states), span_of(gradient), [&] {
        return loss_of(apply_rotary_embedding(states, table, position_ids));
    });
}

TEST_CASE("softmax_backward, also of masked scores") {
    Matrix scores = random_matrix(N, V, 1);
    scores(1, 2) = scores(1, 5) = -infinity;
    const Loss<2> loss_of({N, V});
    const Matrix gradient = softmax_backward(softmax(scores), loss_of.weights);
    CHECK(gradient(1, 2) == 0);
    check_gradient("scores", span_of(scores), span_of(gradient),
                   [&] { return loss_of(softmax(scores)); });
}

TEST_CASE("qk_norm_and_rope_backward: no norm, Llama 4's and Qwen3's") {
    AttentionInputs inputs = causal_attention_inputs(small_config(), B, 9);
    inputs.position_ids = IdMatrix{{0, 5, 8}, {1, 2, 3}};
    QueriesKeysValues heads{random_heads(H, 1), random_heads(Hkv, 2), random_heads(Hkv, 3)};
    for (const QKNorm& kind : std::initializer_list<QKNorm>{
             NoQKNorm{}, QKNormWithoutWeights{Real(0.1)},
             QKNormWithWeights{random_vector(D, 4), random_vector(D, 5), Real(0.1)}}) {
        QKNorm norm = kind, gradient = kind;
        auto* weights = std::get_if<QKNormWithWeights>(&norm);
        auto* weights_gradient = std::get_if<QKNormWithWeights>(&gradient);
        if (weights_gradient) {
            weights_gradient->q_weight.fill(0);
            weights_gradient->k_weight.fill(0);
        }
        const Loss<4> query_loss({B, H, T, D}), key_loss({B, Hkv, T, D});
        const QueriesKeysValues output_gradient{query_loss.weights, key_loss.weights,
                                                random_heads(Hkv, 6)};
        const QueriesKeysValues input_gradient =
            qk_norm_and_rope_backward(norm, heads, inputs, output_gradient, gradient);
        const auto loss = [&] {
            const QueriesKeysValues rotated = apply_qk_norm_and_rope(norm, heads, inputs);
            return query_loss(rotated.queries) + 3 * key_loss(rotated.keys);
        };
        const auto thrice = [&](const Tensor4& keys) { return keys * Real(3); };
        const Tensor4 key_gradient = thrice(input_gradient.keys);
        check_gradient("queries", span_of(heads.queries), span_of(input_gradient.queries),
                       loss);
        check_gradient("keys", span_of(heads.keys), span_of(key_gradient), loss);
        CHECK(input_gradient.values == output_gradient.values);
        if (!weights) continue;
        const Vector k_gradient = weights_gradient->k_weight * Real(3);
        check_gradient("q_norm", span_of(weights->q_weight),
                       span_of(weights_gradient->q_weight), loss);
        check_gradient("k_norm", span_of(weights->k_weight), span_of(k_gradient), loss);
    }
}

TEST_CASE("grouped_query_attention_backward: queries, and keys and values shared by heads") {
    QueriesKeysValues heads{random_heads(H, 1), random_heads(Hkv, 2), random_heads(Hkv, 3)};
    const Tensor4 mask = expand_mask(causal_mask(T, T), B);
    const Loss<4> loss_of({B, H, T, D});
    const auto forward = [&] {
        return grouped_query_attention(heads.queries, heads.keys, heads.values, mask);
    };
    const auto loss = [&] { return loss_of(forward().context); };
    const QueriesKeysValues gradient =
        grouped_query_attention_backward(heads, forward().weights, {}, loss_of.weights);
    check_gradient("queries", span_of(heads.queries), span_of(gradient.queries), loss);
    check_gradient("keys", span_of(heads.keys), span_of(gradient.keys), loss);
    check_gradient("values", span_of(heads.values), span_of(gradient.values), loss);
}

TEST_CASE("mlp_backward: input, weights and biases, for each activation") {
    Tensor3 input = random_states(C, 3);
    const Loss<3> loss_of({B, T, C});
    for (const Activation& activation : {SiLU, ReLU, GELU, GELUTanh, Sigmoid}) {
        CAPTURE(activation.name);
        GatedMlp gated = gated_mlp(activation);
        GatedMlp gated_gradient = zeros_of(gated);
        const auto [gated_output, gated_activations] = mlp_forward(gated, input);
        CHECK(gated_output == gated(input));
        const Tensor3 gated_input_gradient =
            mlp_backward(gated, gated_activations, loss_of.weights, gated_gradient);
        const auto gated_loss = [&] { return loss_of(gated(input)); };
        check_gradient("gated input", span_of(input), span_of(gated_input_gradient),
                       gated_loss);
        check_parameters(gated, gated_gradient, gated_loss);

        Mlp plain{{random_matrix(F, C, 1), random_vector(F, 6)},
                  {random_matrix(C, F, 4), random_vector(C, 7)},
                  activation};
        Mlp plain_gradient = zeros_of(plain);
        const auto [plain_output, plain_activations] = mlp_forward(plain, input);
        CHECK(plain_output == plain(input));
        const Tensor3 plain_input_gradient =
            mlp_backward(plain, plain_activations, loss_of.weights, plain_gradient);
        const auto plain_loss = [&] { return loss_of(plain(input)); };
        check_gradient("plain input", span_of(input), span_of(plain_input_gradient),
                       plain_loss);
        check_parameters(plain, plain_gradient, plain_loss);
    }
}

TEST_CASE("cross_entropy_backward: the gradient of every logit") {
    Matrix logits = random_matrix(N, V, 1);
    const IdVector targets{3, 0, 6, 6, 2, 1};
    const Matrix gradient = cross_entropy_backward(logits, targets);
    check_gradient("logits", span_of(logits), span_of(gradient),
                   [&] { return cross_entropy(logits, targets); });
}
