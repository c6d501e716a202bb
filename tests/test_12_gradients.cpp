// Every backward function against central differences: by how much does the loss change if a
// number of its input changes a little? Compiled with the lessons in double, because in float a
// difference of two nearly equal losses is mostly rounding.
#include <cmath>

#include <doctest/doctest.h>

#include "chapters/13_training/optimizer.hpp"
#include "chapters/13_training/ablations/variants.hpp"

using namespace llm;

namespace {

static_assert(sizeof(Real) == 8);

constexpr std::size_t B = 2, T = 3, N = B * T, C = 12, F = 5, H = 6, Hkv = 2, D = 4, V = 7;

// A loss that looks at every number with a weight of its own, so that no two can be confused.
template <std::size_t K>
struct Probe {
    xt::xtensor<Real, K> weights;

    explicit Probe(const std::array<std::size_t, K>& shape) : weights(shape) {
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

// Compares a gradient, number by number, with what the loss does.
void check_gradient(const std::string& name, std::span<Real> numbers,
                    std::span<const Real> gradient, const std::function<double()>& loss) {
    REQUIRE(numbers.size() == gradient.size());
    REQUIRE(!numbers.empty());
    double largest = 0;
    for (const Real g : gradient) largest = std::max(largest, std::abs(g));
    CHECK_MESSAGE(largest > 1e-6, name, " has no gradient at all");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const Real before = numbers[i];
        const Real step = 1e-5;
        numbers[i] = before + step;
        const double above = loss();
        numbers[i] = before - step;
        const double below = loss();
        numbers[i] = before;
        const double slope = (above - below) / (2 * step);
        if (std::abs(slope - gradient[i]) <= 1e-6 * std::max(1.0, std::abs(slope))) continue;
        FAIL_CHECK(name, ", number ", i, ": the gradient says ", gradient[i],
                   ", the loss changes by ", slope);
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

Linear zeros_of(const Linear& linear) {
    Linear zeros = linear;
    zeros.weight.fill(0);
    if (zeros.bias) zeros.bias->fill(0);
    return zeros;
}

}  // namespace

TEST_CASE("linear_backward: input, weight and bias") {
    Linear linear{random_matrix(F, C, 1), random_vector(F, 2)};
    Linear gradient = zeros_of(linear);
    Matrix input = random_matrix(N, C, 3);
    const Probe<2> probe({N, F});
    const Matrix back = linear_backward(linear, input, probe.weights, gradient);
    const auto loss = [&] { return probe(linear(input)); };
    check_gradient("input", span_of(input), {back.data(), back.size()}, loss);
    check_gradient("weight", span_of(linear.weight), span_of(gradient.weight), loss);
    check_gradient("bias", span_of(*linear.bias), span_of(*gradient.bias), loss);
}

TEST_CASE("backward functions add: two calls give twice the weight's gradient") {
    const Linear linear{random_matrix(F, C, 1), random_vector(F, 2)};
    Linear once = zeros_of(linear), twice = zeros_of(linear);
    const Matrix input = random_matrix(N, C, 3), pull = random_matrix(N, F, 4);
    linear_backward(linear, input, pull, once);
    linear_backward(linear, input, pull, twice);
    linear_backward(linear, input, pull, twice);
    for (std::size_t i = 0; i < once.weight.size(); ++i)
        CHECK(twice.weight.data()[i] == doctest::Approx(2 * once.weight.data()[i]));
    for (std::size_t i = 0; i < F; ++i)
        CHECK((*twice.bias)(i) == doctest::Approx(2 * (*once.bias)(i)));
}

TEST_CASE("embedding_backward: a row that was read twice gets both gradients") {
    Generator generator(5);
    Matrix table = random_matrix(V, C, 1), gradient = xt::zeros<Real>({V, C});
    const IdMatrix ids{{3, 1, 3}, {0, 3, 6}};
    const Probe<2> probe({N, C});
    embedding_backward(ids, probe.weights, gradient);
    const auto loss = [&] {
        Matrix picked = xt::zeros<Real>({N, C});
        for (std::size_t n = 0; n < N; ++n)
            for (std::size_t c = 0; c < C; ++c)
                picked(n, c) = table(static_cast<std::size_t>(ids.data()[n]), c);
        return probe(picked);
    };
    check_gradient("table", span_of(table), span_of(gradient), loss);
}

TEST_CASE("rms_norm_backward and layer_norm_backward: input, weight and bias") {
    Matrix input = random_matrix(N, C, 3);
    const Probe<2> probe({N, C});
    for (const Real eps : {Real(1e-6), Real(0.5)}) {
        RMSNorm norm{random_vector(C, 1), eps, random_vector(C, 2)};
        RMSNorm gradient{xt::zeros<Real>({C}), eps, Vector(xt::zeros<Real>({C}))};
        const Matrix back = rms_norm_backward(norm, input, probe.weights, gradient);
        const auto loss = [&] { return probe(norm(input)); };
        check_gradient("RMSNorm's input", span_of(input), {back.data(), back.size()}, loss);
        check_gradient("RMSNorm's weight", span_of(norm.weight), span_of(gradient.weight),
                       loss);
        check_gradient("RMSNorm's bias", span_of(*norm.bias), span_of(*gradient.bias), loss);

        LayerNorm layer{random_vector(C, 1), random_vector(C, 2), eps};
        LayerNorm its{xt::zeros<Real>({C}), Vector(xt::zeros<Real>({C})), eps};
        const Matrix layer_back = layer_norm_backward(layer, input, probe.weights, its);
        const auto layer_loss = [&] { return probe(layer(input)); };
        check_gradient("LayerNorm's input", span_of(input),
                       {layer_back.data(), layer_back.size()}, layer_loss);
        check_gradient("LayerNorm's weight", span_of(layer.weight), span_of(its.weight),
                       layer_loss);
        check_gradient("LayerNorm's bias", span_of(*layer.bias), span_of(*its.bias),
                       layer_loss);
    }
}

TEST_CASE("rotate_back: the gradient of a rotation") {
    Tensor4 states = random_heads(H, 1);
    const RotaryTable table = make_rotary_table(inverse_frequencies(D, 10000), 20);
    const IdMatrix positions{{0, 5, 19}, {1, 2, 3}};
    const Probe<4> probe({B, H, T, D});
    const Tensor4 back = rotate_back(probe.weights, table, positions);
    check_gradient("states", span_of(states), {back.data(), back.size()},
                   [&] { return probe(rotate_split_half(states, table, positions)); });
}

TEST_CASE("softmax_backward, also behind a mask") {
    Matrix scores = random_matrix(N, V, 1);
    scores(1, 2) = scores(1, 5) = -infinity;
    const Probe<2> probe({N, V});
    const Matrix back = softmax_backward(softmax(scores), probe.weights);
    CHECK(back(1, 2) == 0);
    check_gradient("scores", span_of(scores), {back.data(), back.size()},
                   [&] { return probe(softmax(scores)); });
}

TEST_CASE("attention_backward: queries, and keys and values that several heads share") {
    Tensor4 queries = random_heads(H, 1), keys = random_heads(Hkv, 2),
            values = random_heads(Hkv, 3);
    const Tensor4 mask = expand_mask(causal_mask(T, T), B);
    const Probe<4> probe({B, H, T, D});
    const auto forward = [&] { return grouped_query_attention(queries, keys, values, mask); };
    const auto loss = [&] { return probe(forward().context); };
    AttentionGradient gradient =
        attention_backward(queries, keys, values, forward().weights, probe.weights);
    check_gradient("queries", span_of(queries), span_of(gradient.queries), loss);
    check_gradient("keys", span_of(keys), span_of(gradient.keys), loss);
    check_gradient("values", span_of(values), span_of(gradient.values), loss);
}

TEST_CASE("the MLPs: input and every matrix, for each activation") {
    Matrix input = random_matrix(N, C, 3);
    const Probe<2> probe({N, C});
    for (const Activation activation : {silu, relu, gelu}) {
        GatedMlp gated{{random_matrix(F, C, 1), {}},
                       {random_matrix(F, C, 2), {}},
                       {random_matrix(C, F, 4), {}},
                       activation};
        GatedMlp gradient{zeros_of(gated.gate_proj), zeros_of(gated.up_proj),
                          zeros_of(gated.down_proj), activation};
        Taken taken = trained(gated, gradient)(input);
        const Matrix back = taken.back(probe.weights);
        const auto loss = [&] { return probe(trained(gated, gradient)(input).output); };
        check_gradient("gated input", span_of(input), {back.data(), back.size()}, loss);
        check_gradient("gate_proj", span_of(gated.gate_proj.weight),
                       span_of(gradient.gate_proj.weight), loss);
        check_gradient("up_proj", span_of(gated.up_proj.weight),
                       span_of(gradient.up_proj.weight), loss);
        check_gradient("down_proj", span_of(gated.down_proj.weight),
                       span_of(gradient.down_proj.weight), loss);

        Mlp plain{{random_matrix(F, C, 1), random_vector(F, 6)},
                  {random_matrix(C, F, 4), random_vector(C, 7)},
                  activation};
        Mlp its{zeros_of(plain.up_proj), zeros_of(plain.down_proj), activation};
        const Matrix plain_back = trained(plain, its)(input).back(probe.weights);
        const auto plain_loss = [&] { return probe(trained(plain, its)(input).output); };
        check_gradient("plain input", span_of(input), {plain_back.data(), plain_back.size()},
                       plain_loss);
        check_gradient("plain up_proj", span_of(plain.up_proj.weight),
                       span_of(its.up_proj.weight), plain_loss);
        check_gradient("plain down_proj's bias", span_of(*plain.down_proj.bias),
                       span_of(*its.down_proj.bias), plain_loss);
    }
    CHECK_THROWS_AS(derivative_of(gelu_tanh), ShapeError);
}

TEST_CASE("cross_entropy: the gradient of every logit") {
    Matrix logits = random_matrix(N, V, 1);
    const IdVector targets{3, 0, 6, 6, 2, 1};
    const Matrix gradient = cross_entropy(logits, targets).gradient;
    check_gradient("logits", span_of(logits), {gradient.data(), gradient.size()},
                   [&] { return cross_entropy(logits, targets).value; });
}

namespace {

// A layer with everything: shared key heads, biases, rotation.
AttentionLayer attention_layer(std::uint32_t seed) {
    Config config;
    config.hidden_size = C;
    config.num_attention_heads = H;
    config.num_key_value_heads = Hkv;
    config.head_dim = D;
    config.attention_bias = true;
    config.use_qk_norm = false;
    Generator generator(seed);
    return {config, make_projections(config, generator), {}, {}};
}

AttentionLayer zeros_of(const AttentionLayer& layer) {
    AttentionLayer zeros = layer;
    for (Linear* linear : {&zeros.projections.q_proj, &zeros.projections.k_proj,
                           &zeros.projections.v_proj, &zeros.projections.o_proj})
        *linear = zeros_of(*linear);
    return zeros;
}

}  // namespace

TEST_CASE("a whole attention layer: input, every matrix and every bias") {
    AttentionLayer layer = attention_layer(1);
    AttentionLayer gradient = zeros_of(layer);
    const Placement placement = causal_placement(layer.config, B, T);
    Matrix input = random_matrix(N, C, 3);
    const Probe<2> probe({N, C});
    const Matrix back = trained(layer, placement, gradient)(input).back(probe.weights);
    const auto loss = [&] {
        const Tensor3 output = layer(reshape(input, {B, T, C}), placement.table,
                                     placement.positions, placement.mask);
        return probe(reshape(output, {N, C}));
    };
    check_gradient("input", span_of(input), {back.data(), back.size()}, loss);
    Projections& numbers = layer.projections;
    Projections& its = gradient.projections;
    check_gradient("q_proj", span_of(numbers.q_proj.weight), span_of(its.q_proj.weight), loss);
    check_gradient("k_proj", span_of(numbers.k_proj.weight), span_of(its.k_proj.weight), loss);
    check_gradient("v_proj", span_of(numbers.v_proj.weight), span_of(its.v_proj.weight), loss);
    check_gradient("o_proj", span_of(numbers.o_proj.weight), span_of(its.o_proj.weight), loss);
    check_gradient("q bias", span_of(*numbers.q_proj.bias), span_of(*its.q_proj.bias), loss);
    check_gradient("v bias", span_of(*numbers.v_proj.bias), span_of(*its.v_proj.bias), loss);
    check_gradient("o bias", span_of(*numbers.o_proj.bias), span_of(*its.o_proj.bias), loss);
}

TEST_CASE("every arrangement of chapter 08: the same output, and the gradient of its input") {
    const AttentionLayer attention = attention_layer(1);
    const Placement placement = causal_placement(attention.config, B, T);
    const GatedMlp mlp{{random_matrix(F, C, 1), {}},
                       {random_matrix(F, C, 2), {}},
                       {random_matrix(C, F, 4), {}}};
    const RMSNorm first{random_vector(C, 5), Real(1e-5)},
        second{random_vector(C, 6), Real(1e-5)};
    AttentionLayer attention_gradient = zeros_of(attention);
    GatedMlp mlp_gradient = mlp;
    RMSNorm first_gradient = first, second_gradient = second;
    const Parts parts{trained(attention, placement, attention_gradient),
                      trained(mlp, mlp_gradient), trained(first, first_gradient),
                      trained(second, second_gradient)};
    const Sublayers sublayers{attention, mlp};
    const std::vector<std::tuple<std::string, Taken (*)(const Matrix&, const Parts&), Block>>
        arrangements = {
            {"pre-norm", pre_norm, PreNormBlock{sublayers, first, second}},
            {"post-norm", post_norm, PostNormBlock{sublayers, first, second}},
            {"res-post-norm", res_post_norm, ResPostNormBlock{sublayers, first, second}},
            {"parallel", parallel, ParallelBlock{sublayers, first}}};
    const Probe<2> probe({N, C});
    for (const auto& [name, arrangement, block] : arrangements) {
        Matrix stream = random_matrix(N, C, 3);
        const auto loss = [&, &block = block] {
            return probe(reshape(block(reshape(stream, {B, T, C}), placement), {N, C}));
        };
        Taken taken = arrangement(stream, parts);
        CHECK(probe(taken.output) == doctest::Approx(loss()).epsilon(1e-12));
        const Matrix back = taken.back(probe.weights);
        check_gradient(name, span_of(stream), {back.data(), back.size()}, loss);
    }
}

TEST_CASE("the whole model: the gradient of every number, tied and untied") {
    for (const bool tied : {true, false}) {
        ModelConfig config;
        config.hidden_size = C;
        config.intermediate_size = F;
        config.num_hidden_layers = 2;
        config.num_attention_heads = H;
        config.num_key_value_heads = Hkv;
        config.head_dim = D;
        config.vocab_size = V;
        config.max_position_embeddings = 9;
        config.tie_word_embeddings = tied;
        Generator generator(7);
        Model model = make_model(config, generator);
        Model gradient = zeros_like(model);
        const IdMatrix inputs{{1, 5, 6}, {0, 2, 2}}, targets{{5, 6, 3}, {2, 2, 0}};
        const double value = loss_and_gradients(model, inputs, targets, gradient);
        const auto loss = [&] { return loss_of(model, inputs, targets); };
        CHECK(value == doctest::Approx(loss()).epsilon(1e-12));
        for (const Parameter& parameter : parameters_of(model, gradient)) {
            const std::vector<Real> pulls(parameter.gradients.begin(),
                                          parameter.gradients.end());
            check_gradient(parameter.name, parameter.numbers, pulls, loss);
        }
    }
}

namespace {

ModelConfig config_of_variants() {
    ModelConfig config;
    config.hidden_size = C;
    config.intermediate_size = 4;
    config.num_hidden_layers = 2;
    config.num_attention_heads = H;
    config.num_key_value_heads = Hkv;
    config.head_dim = D;
    config.vocab_size = V;
    return config;
}

}  // namespace

TEST_CASE("an arrangement without a way back is refused") {
    Generator generator(3);
    CHECK_THROWS_WITH_AS(make_variant(config_of_variants(), Choices{Arrangement::sandwich},
                                      Real(0.5), generator),
                         "training: this arrangement has no way back here", ShapeError);
}

TEST_CASE("every variant: the gradient of every number") {
    const IdMatrix inputs{{1, 5, 6}, {0, 2, 2}}, targets{{5, 6, 3}, {2, 2, 0}};
    for (const Choices& choices :
         {Choices{}, Choices{Arrangement::post_norm}, Choices{Arrangement::res_post_norm},
          Choices{Arrangement::parallel}, Choices{.layer_norm = true},
          Choices{.plain_mlp = true}, Choices{.no_rope = true}}) {
        Generator generator(3);
        Variant variant = make_variant(config_of_variants(), choices, Real(0.5), generator);
        Variant gradient = zeros_like(variant), ignored = gradient;
        loss_and_gradients(variant, inputs, targets, gradient);
        const auto loss = [&] { return loss_and_gradients(variant, inputs, targets, ignored); };
        for (const Parameter& parameter : parameters_of(variant, gradient)) {
            const std::vector<Real> pulls(parameter.gradients.begin(),
                                          parameter.gradients.end());
            check_gradient(parameter.name, parameter.numbers, pulls, loss);
        }
    }
}
