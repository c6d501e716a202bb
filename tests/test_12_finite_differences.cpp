// Every backward function against central differences of the loss. Compiled with the lessons in
// double, because in float the difference of two nearly equal losses is mostly rounding.
#include <cmath>

#include <doctest/doctest.h>

#include "chapters/01_masking/masking.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"

using namespace llm;

namespace {

static_assert(sizeof(Real) == 8);

constexpr std::size_t B = 2, T = 3, N = B * T, C = 12, F = 5, H = 6, Hkv = 2, D = 4, V = 7;

// A loss that weights each element of an output differently, so that no two can be confused.
// Its weights are the upstream gradient.
template <std::size_t K>
struct Loss {
    xt::xtensor<Real, K> weights;

    explicit Loss(const std::array<std::size_t, K>& shape) : weights(shape) {
        Generator generator(99);
        for (Real& weight : weights) weight = generator.next_normal();
    }
    double operator()(const xt::xtensor<Real, K>& output) const {
        REQUIRE(output.shape() == weights.shape());
        double sum = 0;
        for (std::size_t i = 0; i < output.size(); ++i)
            sum += output.data()[i] * weights.data()[i];
        return sum;
    }
};

// Compares a gradient, element by element, with central differences of the loss.
void check_gradient(const std::string& name, std::span<Real> values,
                    std::span<const Real> gradient, const std::function<double()>& loss) {
    REQUIRE(values.size() == gradient.size());
    REQUIRE(!values.empty());
    double largest = 0;
    for (const Real g : gradient) largest = std::max(largest, std::abs(g));
    CHECK_MESSAGE(largest > 1e-6, name, " has no gradient at all");
    for (std::size_t i = 0; i < values.size(); ++i) {
        const Real before = values[i];
        const Real step = 1e-5;
        values[i] = before + step;
        const double above = loss();
        values[i] = before - step;
        const double below = loss();
        values[i] = before;
        const double difference = (above - below) / (2 * step);
        if (std::abs(difference - gradient[i]) <= 1e-6 * std::max(1.0, std::abs(difference)))
            continue;
        FAIL_CHECK(name, ", element ", i, ": the gradient is ", gradient[i],
                   ", the central difference ", difference);
        return;
    }
}

template <std::size_t K>
std::span<Real> span_of(xt::xtensor<Real, K>& tensor) {
    return {tensor.data(), tensor.size()};
}

Matrix random_matrix(std::size_t rows, std::size_t columns, std::uint32_t seed) {
    Generator generator(seed);
    return randn({rows, columns}, generator);
}
Tensor4 random_heads(std::size_t heads, std::uint32_t seed) {
    Generator generator(seed);
    return randn({B, heads, T, D}, generator);
}

Vector random_vector(std::size_t size, std::uint32_t seed) {
    Generator generator(seed);
    return randn({size}, generator);
}

template <std::size_t K>
std::span<const Real> span_of(const xt::xtensor<Real, K>& tensor) {
    return {tensor.data(), tensor.size()};
}

Tensor3 random_states(std::size_t width, std::uint32_t seed) {
    Generator generator(seed);
    return randn({B, T, width}, generator);
}

// A part of a model with all its parameters 0, for its gradients.
template <class Part>
Part zeros_of(const Part& part) {
    Part zeros = part;
    ParameterList list;
    add_parameters(list, "", zeros);
    for (const Parameter& parameter : list)
        std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
    return zeros;
}

// The parameters of a part, sampled from a normal distribution.
template <class Part>
void randomize(Part& part, std::uint32_t seed) {
    Generator generator(seed);
    ParameterList list;
    add_parameters(list, "", part);
    for (const Parameter& parameter : list)
        for (Real& value : parameter.values) value = Real(0.5) * generator.next_normal();
}

// Checks the gradient of every parameter of a part.
template <class Part>
void check_parameters(Part& part, Part& gradient, const std::function<double()>& loss) {
    ParameterList parameters, gradients;
    add_parameters(parameters, "", part);
    add_parameters(gradients, "", gradient);
    REQUIRE(parameters.size() == gradients.size());
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values, loss);
}

Config small_config() {
    Config config;
    config.hidden_size = C;
    config.num_attention_heads = H;
    config.num_key_value_heads = Hkv;
    config.head_dim = D;
    config.qk_norm = QKNormType::none;
    return config;
}

// A layer with grouped queries, biases and RoPE.
AttentionLayer attention_layer(QKNormType qk_norm) {
    Config config = small_config();
    config.attention_bias = AttentionBias::qkvo;
    config.qk_norm = qk_norm;
    Generator generator(1);
    AttentionLayer layer = make_attention_layer(config, generator);
    randomize(layer, 11);
    return layer;
}

GatedMlp gated_mlp(const Activation& activation) {
    GatedMlp mlp{{random_matrix(F, C, 1), random_vector(F, 6)},
                 {random_matrix(F, C, 2), random_vector(F, 7)},
                 {random_matrix(C, F, 4), random_vector(C, 8)},
                 activation};
    return mlp;
}

RMSNorm random_norm(std::uint32_t seed) {
    return {random_vector(C, seed), Real(1e-5), random_vector(C, seed + 1)};
}

}  // namespace

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
        "backward: (3, 2) does not fit a gradient of (2, 3)", ShapeError);
    Vector rows = xt::zeros<Real>({2});
    CHECK_THROWS_WITH_AS(accumulate_rows(rows, random_matrix(4, 3, 1)),
                         "backward: rows of (4, 3) do not fit a gradient of (2,)", ShapeError);
    CHECK_THROWS_WITH_AS(embedding_backward(IdMatrix{{1, 0}}, random_states(C, 1), sum),
                         "backward: ids of (1, 2) and a gradient of (2, 3, 12) do not fit an "
                         "embedding of (2, 3)",
                         ShapeError);
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
        MlpActivations saved;
        CHECK(mlp_forward(gated, input, saved) == gated(input));
        const Tensor3 gated_input_gradient =
            mlp_backward(gated, saved, loss_of.weights, gated_gradient);
        const auto gated_loss = [&] { return loss_of(gated(input)); };
        check_gradient("gated input", span_of(input), span_of(gated_input_gradient),
                       gated_loss);
        check_parameters(gated, gated_gradient, gated_loss);

        Mlp plain{{random_matrix(F, C, 1), random_vector(F, 6)},
                  {random_matrix(C, F, 4), random_vector(C, 7)},
                  activation};
        Mlp plain_gradient = zeros_of(plain);
        CHECK(mlp_forward(plain, input, saved) == plain(input));
        const Tensor3 plain_input_gradient =
            mlp_backward(plain, saved, loss_of.weights, plain_gradient);
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

TEST_CASE("attention_backward: input, weights and biases, with every QK norm") {
    for (const QKNormType qk_norm :
         {QKNormType::none, QKNormType::without_weights, QKNormType::with_weights}) {
        AttentionLayer layer = attention_layer(qk_norm);
        AttentionLayer gradient = zeros_of(layer);
        const AttentionInputs inputs = causal_attention_inputs(small_config(), B, T);
        Tensor3 input = random_states(C, 3);
        const Loss<3> loss_of({B, T, C});
        AttentionActivations saved;
        const auto loss = [&] { return loss_of(layer(input, inputs).hidden_states); };
        CHECK(loss_of(attention_forward(layer, input, inputs, saved)) == loss());
        const Tensor3 input_gradient =
            attention_backward(layer, inputs, saved, loss_of.weights, gradient);
        check_gradient("input", span_of(input), span_of(input_gradient), loss);

        // The softmax does not change when the same number is added to all scores of a row, so
        // a bias of the keys has no gradient without rotation and norm. All others have.
        check_parameters(layer, gradient, loss);
    }
}

TEST_CASE("attention_backward with dropout: the gradient of the weights that were kept") {
    AttentionLayer layer = attention_layer(QKNormType::with_weights);
    layer.attention_dropout = Real(0.4);
    AttentionLayer gradient = zeros_of(layer);
    const AttentionInputs inputs = causal_attention_inputs(small_config(), B, T);
    Tensor3 input = random_states(C, 3);
    const Loss<3> loss_of({B, T, C});
    AttentionActivations saved, ignored;
    const auto loss = [&] {
        Generator same(5);  // the same weights are dropped each time
        return loss_of(attention_forward(layer, input, inputs, ignored, &same));
    };
    Generator generator(5);
    const double first = loss_of(attention_forward(layer, input, inputs, saved, &generator));
    CHECK(first == loss());
    CHECK(first != loss_of(layer(input, inputs).hidden_states));
    CHECK(loss_of(attention_forward(layer, input, inputs, ignored)) ==
          loss_of(layer(input, inputs).hidden_states));
    const Tensor3 input_gradient =
        attention_backward(layer, inputs, saved, loss_of.weights, gradient);
    check_gradient("input", span_of(input), span_of(input_gradient), loss);
    check_parameters(layer, gradient, loss);
}

namespace {

template <class AnyBlock>
void check_block(const std::string& name, AnyBlock block) {
    CAPTURE(name);
    const AttentionInputs inputs = causal_attention_inputs(small_config(), B, T);
    AnyBlock gradient = zeros_of(block);
    Tensor3 hidden_states = random_states(C, 3);
    const Loss<3> loss_of({B, T, C});
    BlockActivations saved;
    const auto loss = [&] { return loss_of(block(hidden_states, inputs).hidden_states); };
    CHECK(loss_of(block_forward(block, hidden_states, inputs, saved)) ==
          doctest::Approx(loss()).epsilon(1e-12));
    const Tensor3 input_gradient =
        block_backward(block, inputs, saved, loss_of.weights, gradient);
    check_gradient(name, span_of(hidden_states), span_of(input_gradient), loss);
    check_parameters(block, gradient, loss);
}

}  // namespace

TEST_CASE("block_backward: every arrangement of chapter 08, its input and every parameter") {
    const AttentionLayer attention = attention_layer(QKNormType::with_weights);
    const GatedMlp mlp = gated_mlp(SiLU);
    const RMSNorm first = random_norm(5), second = random_norm(15);
    check_block("pre-norm", PreNormBlock{attention, mlp, first, second});
    check_block("post-norm", PostNormBlock{attention, mlp, first, second});
    check_block("res-post-norm", ResPostNormBlock{attention, mlp, first, second});
    check_block("sandwich",
                SandwichBlock{attention, mlp, first, second, random_norm(25), random_norm(35)});
    check_block("parallel", ParallelBlock{attention, mlp, first});
}

TEST_CASE("block_backward: GPT-2's block, with LayerNorm and an MLP without a gate") {
    const AttentionLayer attention = attention_layer(QKNormType::none);
    const Mlp mlp{{random_matrix(F, C, 1), random_vector(F, 6)},
                  {random_matrix(C, F, 4), random_vector(C, 7)},
                  GELUTanh};
    const LayerNorm first{random_vector(C, 5), random_vector(C, 8)};
    const LayerNorm second{random_vector(C, 6), random_vector(C, 9)};
    check_block("GPT-2", PreNormBlockWith<LayerNorm, Mlp>{attention, mlp, first, second});
    check_block("LayerNorm", PreNormBlockWith<LayerNorm, GatedMlp>{attention, gated_mlp(SiLU),
                                                                   first, second});
    check_block("ReLU", PreNormBlockWith<RMSNorm, Mlp>{attention, mlp, random_norm(5),
                                                       random_norm(15)});
}

namespace {

Config model_config() {
    Config config = small_config();
    config.intermediate_size = F;
    config.num_hidden_layers = 2;
    config.vocab_size = V;
    config.max_position_embeddings = 9;
    return config;
}

// The gradient of every parameter of a model made from the configuration.
void check_model(const Config& config, Generator* dropout_generator = nullptr) {
    Generator generator(7);
    Model model = make_model(config, generator);
    Model gradient = zeros_like(model);
    const IdMatrix input_ids{{1, 5, 6}, {0, 2, 2}}, targets{{5, 6, 3}, {2, 2, 0}};
    const auto loss = [&] {
        if (!dropout_generator) return evaluate_loss(model, input_ids, targets);
        Generator same(5);
        Model ignored = gradient;
        return forward_backward(model, input_ids, targets, ignored, &same);
    };
    const double value =
        forward_backward(model, input_ids, targets, gradient, dropout_generator);
    CHECK(value == doctest::Approx(loss()).epsilon(1e-12));
    const std::vector<Parameter> parameters = named_parameters(model),
                                 gradients = named_parameters(gradient);
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values, loss);
}

}  // namespace

TEST_CASE("forward_backward: every parameter of a model, tied and untied") {
    for (const bool tied : {true, false}) {
        Config config = model_config();
        config.tie_word_embeddings = tied;
        check_model(config);
    }
}

TEST_CASE("forward_backward: a Qwen3 model, with QK norm") {
    Config config = model_config();
    config.qk_norm = QKNormType::with_weights;
    check_model(config);
}

TEST_CASE("forward_backward: a QK norm without weights") {
    Config config = model_config();
    config.qk_norm = QKNormType::without_weights;
    check_model(config);
}

TEST_CASE("forward_backward: a model with biases and dropout") {
    Config config = model_config();
    config.attention_bias = AttentionBias::qkvo;
    config.attention_dropout = Real(0.3);
    Generator dropout_generator(5);
    check_model(config, &dropout_generator);
}

TEST_CASE("forward_backward accumulates: two batches give the sum of their gradients") {
    Generator generator(7);
    const Model model = make_model(model_config(), generator);
    const IdMatrix first_ids{{1, 5, 6}}, first_targets{{5, 6, 3}};
    const IdMatrix second_ids{{0, 2, 2}}, second_targets{{2, 2, 0}};
    Model both = zeros_like(model), first = both, second = both;
    forward_backward(model, first_ids, first_targets, both);
    forward_backward(model, second_ids, second_targets, both);
    forward_backward(model, first_ids, first_targets, first);
    forward_backward(model, second_ids, second_targets, second);
    const auto sums = named_parameters(both), firsts = named_parameters(first),
               seconds = named_parameters(second);
    for (std::size_t p = 0; p < sums.size(); ++p)
        for (std::size_t i = 0; i < sums[p].values.size(); ++i)
            CHECK(sums[p].values[i] ==
                  doctest::Approx(firsts[p].values[i] + seconds[p].values[i]).epsilon(1e-12));
    zero_grad(both);
    for (const Parameter& parameter : named_parameters(both))
        for (const Real value : parameter.values) CHECK(value == 0);
}
