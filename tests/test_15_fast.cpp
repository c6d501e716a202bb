#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <new>
#include <numeric>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/15_fast/matmul.hpp"
#include "common/system/parallel.hpp"
#include "tests/check.hpp"
#include "tests/count_memory.hpp"

using namespace llm;

namespace {

const Real not_a_number = std::numeric_limits<Real>::quiet_NaN();

std::vector<Real> drawn(std::size_t count, Generator& generator) {
    std::vector<Real> numbers(count);
    generator.fill_normal(numbers);
    return numbers;
}

// Numbers that begin at no round address, between two fences.
struct Fenced {
    std::vector<Real> memory;
    Real fence;

    Fenced(const std::vector<Real>& numbers, Real fence_) : memory(39, fence_), fence(fence_) {
        memory.insert(memory.begin() + 19, numbers.begin(), numbers.end());
    }
    std::span<Real> numbers() { return std::span(memory).subspan(19, memory.size() - 39); }
    bool stands() const {
        const auto same = [&](Real number) { return number == fence; };
        return std::all_of(memory.begin(), memory.begin() + 19, same) &&
               std::all_of(memory.end() - 20, memory.end(), same);
    }
};

double sum_of_products(std::span<const Real> a, std::span<const Real> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * double(b[i]);
    return sum;
}

// What rounding may do to a sum of products.
double slack(std::span<const Real> a, std::span<const Real> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(double(a[i]) * double(b[i]));
    return 1e-6 * sum;
}

// inputs · weightᵀ
Matrix exact_product(const Matrix& inputs, const Matrix& weight) {
    Matrix result = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (const auto [n, o] : every_index(inputs.shape(0), weight.shape(0)))
        result(n, o) = Real(sum_of_products(rows_of(inputs)[n], rows_of(weight)[o]));
    return result;
}

Matrix matrix_of(ConstRows rows) {
    Matrix matrix = xt::zeros<Real>({rows.count, rows.width});
    for (std::size_t n = 0; n < rows.count; ++n) std::ranges::copy(rows[n], &matrix(n, 0));
    return matrix;
}

bool same_bits(const Matrix& a, const Matrix& b) {
    return a.shape() == b.shape() &&
           std::equal(a.begin(), a.end(), b.begin(), [](Real x, Real y) {
               return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
           });
}

// No size is a multiple of another or of 64.
ModelConfig odd_config() {
    ModelConfig config;
    config.hidden_size = 70;
    config.intermediate_size = 130;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 2;
    config.head_dim = 10;
    config.vocab_size = 131;
    config.max_position_embeddings = 1024;
    config.rms_norm_eps = Real(0.1);
    return config;
}

// Every number of the model says something: norms are not ones, biases not zeros, each epsilon
// another one, and attention prefers some tokens.
Model make_lively(const ModelConfig& config, Generator& generator) {
    Model model = make_model(config, generator);
    const auto redraw = [&](Vector& weight) {
        weight = uniform({weight.size()}, Real(0.5), Real(1.5), generator);
    };
    redraw(model.norm.weight);
    model.norm.eps = Real(0.5);
    for (PreNormBlock& layer : model.layers) {
        redraw(layer.attention_norm.weight);
        redraw(layer.ffn_norm.weight);
        layer.attention_norm.eps = Real(0.2);
        layer.ffn_norm.eps = Real(0.05);
        layer.self_attn.projections.q_proj.weight =
            layer.self_attn.projections.q_proj.weight * Real(3);
        layer.self_attn.projections.k_proj.weight =
            layer.self_attn.projections.k_proj.weight * Real(3);
        if (!layer.self_attn.q_norm) continue;
        redraw(*layer.self_attn.q_norm);
        redraw(*layer.self_attn.k_norm);
    }
    return model;
}

struct Kind {
    std::string name;
    Model model;
};

std::vector<Kind> make_kinds() {
    Generator generator(12);
    std::vector<Kind> made;
    const auto add = [&](const std::string& name, const auto& change) -> Model& {
        ModelConfig config = odd_config();
        change(config);
        made.push_back({name, make_lively(config, generator)});
        return made.back().model;
    };
    add("shared key heads", [](ModelConfig&) {});
    add("one key head", [](ModelConfig& config) { config.num_key_value_heads = 1; });
    add("a key head for each query head", [](ModelConfig& config) {
        config.num_key_value_heads = 6;
        config.head_dim = 2;
        config.num_hidden_layers = 3;
    });
    add("Qwen 3", [](ModelConfig& config) { config.use_qk_norm = true; });
    Model& llama4 = add("Llama 4", [](ModelConfig& config) { config.use_qk_norm = true; });
    for (PreNormBlock& layer : llama4.layers) {
        layer.self_attn.q_norm.reset();
        layer.self_attn.k_norm.reset();
    }
    add("an untied head", [](ModelConfig& config) { config.tie_word_embeddings = false; });
    add("Llama 3's scaling", [](ModelConfig& config) {
        config.rope_scaling = Llama3Scaling{8, 1, 4, 32};
        config.rope_theta = 500;
    });
    Model& biased = add("biases", [](ModelConfig& config) {
        config.attention_bias = config.attention_output_bias = true;
    });
    for (PreNormBlock& layer : biased.layers)
        for (Linear* linear : {&layer.mlp.gate_proj, &layer.mlp.up_proj, &layer.mlp.down_proj})
            linear->bias = uniform({linear->weight.shape(0)}, -1, 1, generator);
    Model& half_biased = add("a bias here and there", [](ModelConfig&) {});
    half_biased.layers[0].self_attn.projections.v_proj.bias = uniform({20}, -1, 1, generator);
    half_biased.layers[1].self_attn.projections.q_proj.bias = uniform({60}, -1, 1, generator);
    half_biased.layers[1].mlp.up_proj.bias = uniform({130}, -1, 1, generator);
    return made;
}
const std::vector<Kind>& kinds() {
    static const std::vector<Kind> made = make_kinds();
    return made;
}
const Model& kind(const std::string& name) {
    for (const Kind& candidate : kinds())
        if (candidate.name == name) return candidate.model;
    throw std::invalid_argument(name);
}

std::vector<Id> some_ids(std::size_t count) {
    std::vector<Id> ids(count);
    for (std::size_t t = 0; t < count; ++t) ids[t] = static_cast<Id>((t * t + 7 * t + 3) % 131);
    return ids;
}

Matrix logits_of(const Model& model, std::span<const Id> ids) {
    return xt::view(model(one_sequence(ids)), 0);
}

// Logits of all tokens, (T, V), read one piece after the other into a state.
Matrix in_pieces(const FastModel& model, std::span<const Id> ids,
                 const std::vector<std::size_t>& pieces, FastState& state) {
    Matrix logits = xt::zeros<Real>({ids.size(), model.config.vocab_size});
    std::size_t begin = 0;
    for (const std::size_t piece : pieces) {
        const ConstRows rows =
            compute_logits(model, ids.subspan(begin, piece), state, LogitsOf::all);
        REQUIRE(rows.count == piece);
        for (std::size_t t = 0; t < piece; ++t)
            std::ranges::copy(rows[t], &logits(begin + t, 0));
        begin += piece;
        CHECK(state.length == begin);
    }
    REQUIRE(begin == ids.size());
    return logits;
}
Matrix in_pieces(const FastModel& model, std::span<const Id> ids,
                 const std::vector<std::size_t>& pieces) {
    FastState state = make_state(model, ids.size());
    return in_pieces(model, ids, pieces, state);
}

Matrix at_once(const FastModel& model, std::span<const Id> ids) {
    return in_pieces(model, ids, {ids.size()});
}
Matrix token_by_token(const FastModel& model, std::span<const Id> ids) {
    return in_pieces(model, ids, std::vector<std::size_t>(ids.size(), 1));
}

// The model whose weights were packed and unpacked again.
Model repacked(Model model, Weights kind_of_weights) {
    const auto repack = [&](Matrix& weight) { weight = unpack(pack(weight, kind_of_weights)); };
    repack(model.embed_tokens);
    if (model.lm_head) repack(*model.lm_head);
    for (PreNormBlock& layer : model.layers) {
        Projections& projections = layer.self_attn.projections;
        for (Linear* linear : {&projections.q_proj, &projections.k_proj, &projections.v_proj,
                               &projections.o_proj, &layer.mlp.gate_proj, &layer.mlp.up_proj,
                               &layer.mlp.down_proj})
            repack(linear->weight);
    }
    return model;
}

std::vector<Id> greedy(const FastModel& model, std::vector<Id> ids, std::size_t count) {
    FastState state = make_state(model, ids.size() + count);
    for (std::size_t n = 0; n < count; ++n) {
        const ConstRows logits =
            compute_logits(model, std::span(ids).subspan(state.length), state);
        ids.push_back(std::ranges::max_element(logits[0]) - logits[0].begin());
    }
    return ids;
}

// One head's attention as chapter 05 has it.
Matrix chapter_05(const Matrix& queries, const Matrix& keys, const Matrix& values) {
    const Matrix mask = causal_mask(queries.shape(0), keys.shape(0));
    return attention(queries, keys, values, mask).context;
}
Matrix blockwise(const Matrix& queries, const Matrix& keys, const Matrix& values,
                 std::size_t first_position) {
    Matrix context = xt::ones<Real>({queries.shape(0), queries.shape(1)}) * not_a_number;
    attend_blockwise(rows_of(queries), rows_of(keys), rows_of(values), first_position,
                     rows_of(context));
    return context;
}

}  // namespace

// ---- rungs

namespace {

struct NamedProduct {
    std::string name;
    Product compute;
};
const std::vector<NamedProduct> products = {{"down the columns", product_down_the_columns},
                                            {"along the rows", product_along_the_rows},
                                            {"by expression", product_by_expression},
                                            {"in lanes", product_in_lanes},
                                            {"by BLAS", product_by_blas}};

}  // namespace

TEST_CASE("products: all five are inputs times the transposed weight, whatever the sizes") {
    Generator generator(1);
    for (const auto [N, in, out] : std::vector<std::array<std::size_t, 3>>{
             {1, 1, 1}, {3, 5, 7}, {2, 64, 1}, {5, 63, 2}, {1, 65, 9}, {7, 200, 130}}) {
        const Matrix inputs = randn({N, in}, generator), weight = randn({out, in}, generator);
        const Matrix expected = exact_product(inputs, weight);
        for (const NamedProduct& product : products) {
            INFO(product.name);
            CHECK_CLOSE(product.compute(inputs, weight), expected, 2e-6);
        }
    }
}

TEST_CASE("products name both shapes when they do not fit") {
    for (const NamedProduct& product : products) {
        INFO(product.name);
        CHECK_THROWS_WITH_AS(product.compute(counting({2, 3}), counting({4, 5})),
                             "product: inputs of (2, 3) do not fit a weight of (4, 5)",
                             ShapeError);
        CHECK_THROWS_AS(product.compute(counting({2, 3}), counting({3, 2})), ShapeError);
    }
}

TEST_CASE("forward_with is the model's forward, by every product, for every kind of model") {
    const IdMatrix ids{{3, 130, 0, 5, 5, 17, 99}, {9, 1, 2, 3, 4, 4, 0}};
    for (const Kind& each : kinds()) {
        const Tensor3 expected = each.model(ids);
        for (const NamedProduct& product : products) {
            INFO(each.name, ", ", product.name);
            CHECK_CLOSE(forward_with(product.compute, each.model, ids), expected, 1e-5);
        }
    }
    CHECK_THROWS_WITH_AS(forward_with(product_by_blas, kinds()[0].model, IdMatrix{{131}}),
                         "model: there is no token 131 in a vocabulary of 131", ShapeError);
}

TEST_CASE("forward_with hands every linear layer and the head to the product") {
    static int calls;
    calls = 0;
    const Product counted = [](const Matrix& inputs, const Matrix& weight) {
        ++calls;
        return product_by_blas(inputs, weight);
    };
    forward_with(counted, kinds()[0].model, IdMatrix{{1, 2}});
    CHECK(calls == 2 * 7 + 1);
}

TEST_CASE("the limits are those of work that is done: a whole product, a whole memory") {
    const auto product_of = [](void (LimitWork::*multiply)()) {
        LimitWork work;
        (work.*multiply)();
        return Matrix(work.product());
    };
    const Real size = LimitWork::size;
    const Matrix expected = xt::ones<Real>({LimitWork::size, LimitWork::size}) * size;
    CHECK_CLOSE(product_of(&LimitWork::multiply_on_one_core), expected, 0);
    CHECK_CLOSE(product_of(&LimitWork::multiply_on_all_cores), expected, 0);
    CHECK_CLOSE(product_of(&LimitWork::multiply_together), expected, 0);
    LimitWork work;
    work.read();
    CHECK(work.largest_found() == std::vector<Real>(LimitWork::num_pieces, 1));
}

TEST_CASE("operations and bytes: Mini-LLM and 512 tokens, by hand") {
    // A token meets 16 * (4 * 384 * 384 + 3 * 384 * 1536) + 32000 * 384 = 50,036,736 numbers,
    // twice: 512 tokens take 51,237,617,664 operations. Token t sees t + 1 positions, in all
    // 512 * 513 / 2 = 131,328, with 4 * 16 * 384 operations each: 3,227,516,928.
    const ModelConfig config = complete(ModelConfig());
    CHECK(operations_of_prefill(config, 512) == 54465134592.0);
    CHECK(operations_of_prefill(config, 1) == 2 * 50036736.0 + 4 * 16 * 384);
    CHECK(operations_of_prefill(config, 0) == 0);
    // A key and a value of 6 heads of 64 floats in 16 layers.
    CHECK(cache_bytes(config, 512) == 512 * 2 * 6 * 64 * 16 * 4);
    CHECK(cache_bytes(complete(odd_config()), 3) == 3 * 2 * 2 * 10 * 2 * 4);
    CHECK(cache_bytes(config, 0) == 0);
}

// ---- lanes

TEST_CASE("dot: sums of products of every size, and nothing from behind the end") {
    Generator generator(2);
    for (std::size_t size = 0; size <= 200; ++size) {
        Fenced a(drawn(size, generator), not_a_number), b(drawn(size, generator), not_a_number);
        const double gap =
            dot(a.numbers(), b.numbers()) - sum_of_products(a.numbers(), b.numbers());
        CHECK(std::abs(gap) <= slack(a.numbers(), b.numbers()));
    }
}

TEST_CASE("dot and unpack of bfloat16: the numbers whose upper halves they are") {
    Generator generator(3);
    for (std::size_t size = 0; size <= 200; ++size) {
        std::vector<Real> weights = drawn(size, generator);
        Fenced inputs(drawn(size, generator), not_a_number);
        std::vector<Bfloat16> row(size + 1, Bfloat16{0x7FC0});  // NaN behind the end
        for (std::size_t i = 0; i < size; ++i) {
            const auto bits = std::bit_cast<std::uint32_t>(weights[i]);
            row[i].bits = static_cast<std::uint16_t>(bits >> 16);
            weights[i] = std::bit_cast<float>(bits & 0xFFFF0000);
        }
        const std::span<const Bfloat16> numbers = std::span(row).first(size);
        const double gap =
            dot(numbers, inputs.numbers()) - sum_of_products(weights, inputs.numbers());
        CHECK(std::abs(gap) <= slack(weights, inputs.numbers()));

        Fenced unpacked(std::vector<Real>(size), 77);
        unpack(numbers, unpacked.numbers());
        CHECK(std::ranges::equal(unpacked.numbers(), weights));
        CHECK(unpacked.stands());
    }
}

TEST_CASE("dot and unpack of int8: each number times the scale of its 64") {
    Generator generator(4);
    for (std::size_t size = 0; size <= 200; ++size) {
        std::vector<Real> weights(size);
        Fenced inputs(drawn(size, generator), not_a_number);
        std::vector<std::int8_t> numbers(size + 64, 99);
        const std::vector<Real> scales = {0.5f, -3, 0.01f, 7, not_a_number};
        for (std::size_t i = 0; i < size; ++i) {
            const auto number = static_cast<int>(generator.next_32_bits() % 255) - 127;
            numbers[i] = static_cast<std::int8_t>(number);
            weights[i] = static_cast<Real>(number) * scales[i / 64];
        }
        const Int8Row row{std::span(numbers).first(size), scales};
        const double gap =
            dot(row, inputs.numbers()) - sum_of_products(weights, inputs.numbers());
        CHECK(std::abs(gap) <= slack(weights, inputs.numbers()));

        Fenced unpacked(std::vector<Real>(size), 77);
        unpack(row, unpacked.numbers());
        CHECK(std::ranges::equal(unpacked.numbers(), weights));
        CHECK(unpacked.stands());
    }
}

TEST_CASE("add_scaled: what was there and factor times the numbers, of every size") {
    Generator generator(5);
    for (std::size_t size = 0; size <= 200; ++size) {
        const std::vector<Real> before = drawn(size, generator);
        Fenced sums(before, 77), numbers(drawn(size, generator), not_a_number);
        add_scaled(sums.numbers(), Real(-1.7), numbers.numbers());
        for (std::size_t i = 0; i < size; ++i)
            CHECK(sums.numbers()[i] ==
                  doctest::Approx(before[i] - 1.7 * numbers.numbers()[i]).epsilon(1e-6));
        CHECK(sums.stands());
    }
}

TEST_CASE("largest finds it at every place of every size, and -inf where there is nothing") {
    for (std::size_t size = 0; size <= 200; ++size) {
        // What lies outside is larger than all.
        Fenced numbers(std::vector<Real>(size, -500), 1e9f);
        CHECK(largest(numbers.numbers()) == (size == 0 ? -infinity : -500));
        for (std::size_t i = 0; i < size; ++i) {
            numbers.numbers()[i] = Real(-3.5);
            CHECK(largest(numbers.numbers()) == Real(-3.5));
            numbers.numbers()[i] = -infinity;
        }
        CHECK(largest(numbers.numbers()) == -infinity);
    }
}

TEST_CASE("exponentials: e to every number, of every size, and their sum") {
    for (std::size_t size = 0; size <= 200; ++size) {
        std::vector<Real> before(size);
        for (std::size_t i = 0; i < size; ++i)
            before[i] = static_cast<Real>((i * 37 + size) % 101) / 4 - 12;
        Fenced numbers(before, 77);
        const double sum = exponentials(numbers.numbers(), Real(0.5), Real(1.25));
        double expected_sum = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const double expected = std::exp(0.5 * before[i] - 1.25);  // no rounding so far
            CHECK(std::abs(numbers.numbers()[i] / expected - 1) < 1e-6);
            expected_sum += expected;
        }
        CHECK(std::abs(sum - expected_sum) <= 1e-6 * expected_sum);
        CHECK(numbers.stands());
    }
}

TEST_CASE("exponentials: six digits from -80 to 80, in lanes and behind them") {
    double worst = 0;
    for (Real x = -80; x <= 80; x += Real(0.015625)) {
        std::array<Real, 17> numbers;  // 16 in lanes, one behind them
        numbers.fill(x);
        exponentials(numbers, 1, 0);
        for (const Real number : numbers)
            worst = std::max(worst, std::abs(number / std::exp(double(x)) - 1));
    }
    CHECK(worst < 1e-6);
}

TEST_CASE("exponentials: what is hidden counts exactly nothing, what is no number stays none") {
    for (const std::size_t size : {1u, 3u, 16u, 19u, 64u}) {
        std::vector<Real> hidden(size, -infinity);
        CHECK(exponentials(hidden, Real(0.1), 5) == 0);
        for (const Real number : hidden) CHECK(number == 0);
        std::vector<Real> tiny(size, -200), huge(size, 200);
        CHECK(exponentials(tiny, 1, 0) < 1e-30);
        CHECK(exponentials(huge, 1, 0) == infinity);

        for (std::size_t place = 0; place < size; ++place) {
            std::vector<Real> numbers(size, 1);
            numbers[place] = not_a_number;
            CHECK(std::isnan(exponentials(numbers, 1, 0)));
            for (std::size_t i = 0; i < size; ++i)
                CHECK(std::isnan(numbers[i]) == (i == place));
        }
    }
}

TEST_CASE("apply_gate is silu of the gate times up, of every size") {
    Generator generator(6);
    for (std::size_t size = 0; size <= 200; ++size) {
        std::vector<Real> before = drawn(size, generator);
        for (Real& number : before) number *= 4;
        Fenced gate(before, 77), up(drawn(size, generator), not_a_number);
        apply_gate(gate.numbers(), up.numbers());
        for (std::size_t i = 0; i < size; ++i) {
            const double expected =
                before[i] / (1 + std::exp(-double(before[i]))) * up.numbers()[i];
            CHECK(std::abs(gate.numbers()[i] - expected) <= 1e-6 * std::abs(expected) + 1e-30);
        }
        CHECK(gate.stands());
    }
}

TEST_CASE("apply_gate: shut far below zero, open far above") {
    for (const std::size_t size : {1u, 16u, 19u}) {
        for (const auto& [gate, expected] : std::vector<std::pair<Real, Real>>{
                 {-100, 0}, {-1000, 0}, {-1e30f, 0}, {0, 0}, {100, -300}, {1000, -3000}}) {
            std::vector<Real> numbers(size, gate);
            apply_gate(numbers, std::vector<Real>(size, -3));
            for (const Real number : numbers) CHECK(std::abs(number - expected) < 1e-30);
        }
    }
}

TEST_CASE("normalize is chapter 07's norm of one row, of every size, in place too") {
    Generator generator(20);
    for (std::size_t size = 1; size <= 200; ++size) {
        Fenced row(drawn(size, generator), not_a_number),
            weight(drawn(size, generator), not_a_number);
        const double mean_square = sum_of_products(row.numbers(), row.numbers()) / double(size);
        std::vector<double> expected(size);
        for (std::size_t i = 0; i < size; ++i)
            expected[i] =
                row.numbers()[i] / std::sqrt(mean_square + 0.25) * weight.numbers()[i];
        Fenced normalized(std::vector<Real>(size), 77);
        normalize(row.numbers(), weight.numbers(), Real(0.25), normalized.numbers());
        CHECK(normalized.stands());
        normalize(row.numbers(), weight.numbers(), Real(0.25), row.numbers());
        for (std::size_t i = 0; i < size; ++i) {
            CHECK(std::abs(normalized.numbers()[i] - expected[i]) <=
                  1e-6 * std::abs(expected[i]));
            CHECK(row.numbers()[i] == doctest::Approx(normalized.numbers()[i]).epsilon(1e-6));
        }
    }
}

TEST_CASE("rotate is chapter 04's rotation of one head, of every size") {
    Generator generator(21);
    for (std::size_t half = 0; half <= 100; ++half) {
        const std::vector<Real> before = drawn(2 * half, generator);
        Fenced head(before, 77), cos(drawn(half, generator), not_a_number),
            sin(drawn(half, generator), not_a_number);
        rotate_head(head.numbers(), cos.numbers(), sin.numbers());
        for (std::size_t i = 0; i < half; ++i) {
            const double c = cos.numbers()[i], s = sin.numbers()[i];
            const double x = before[i], y = before[i + half];
            CHECK(std::abs(head.numbers()[i] - (x * c - y * s)) < 2e-6);
            CHECK(std::abs(head.numbers()[i + half] - (y * c + x * s)) < 2e-6);
        }
        CHECK(head.stands());
    }
}

// ---- blockwise

TEST_CASE("OnlineSoftmax: pieces of any sizes give the softmax of the whole row") {
    Generator generator(7);
    const std::vector<Real> scores = drawn(300, generator);
    const double scale = 2.5;
    double total = 0;
    for (const Real score : scores) total += std::exp(scale * score);

    for (const std::vector<std::size_t>& pieces : std::vector<std::vector<std::size_t>>{
             {300}, {1, 299}, {299, 1}, {64, 64, 64, 64, 44}, {7, 0, 93, 100, 0, 99, 1}}) {
        OnlineSoftmax softmax;
        std::vector<Real> weights;
        for (const std::size_t piece : pieces) {
            const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(weights.size());
            std::vector<Real> part(begin, begin + static_cast<std::ptrdiff_t>(piece));
            const Real factor = softmax.add(part, Real(scale));
            for (Real& weight : weights) weight *= factor;
            weights.insert(weights.end(), part.begin(), part.end());
        }
        for (std::size_t i = 0; i < scores.size(); ++i)
            CHECK(weights[i] / softmax.sum ==
                  doctest::Approx(std::exp(scale * scores[i]) / total).epsilon(1e-5));
        CHECK(softmax.maximum == Real(scale) * std::ranges::max(scores));
    }
}

TEST_CASE("OnlineSoftmax: the factor shrinks only what was relative to a smaller maximum") {
    OnlineSoftmax softmax;
    const auto add = [&](std::vector<Real> scores) { return softmax.add(scores, 2); };
    CHECK(add({}) == 1);
    CHECK(softmax.maximum == -infinity);
    CHECK(softmax.sum == 0);
    CHECK(add({1, 0}) == 0);  // nothing was there
    CHECK(softmax.maximum == 2);
    CHECK(softmax.sum == doctest::Approx(1 + std::exp(-2.0)));
    CHECK(add({0.5, -3}) == 1);  // smaller ones: all stays
    CHECK(softmax.maximum == 2);
    CHECK(add({}) == 1);
    CHECK(add({-infinity}) == 1);
    CHECK(add({4}) == doctest::Approx(std::exp(-6.0)));
    CHECK(softmax.maximum == 8);
    const double before = 1 + std::exp(-2.0) + std::exp(-1.0) + std::exp(-8.0);
    CHECK(softmax.sum == doctest::Approx(1 + before * std::exp(-6.0)));
}

TEST_CASE("OnlineSoftmax: scores whose powers no float holds, growing and falling") {
    for (const bool growing : {true, false}) {
        OnlineSoftmax softmax;
        Real taken = 0;  // the numbers 0 to 9, by weight
        for (int i = 0; i < 10; ++i) {
            std::array<Real, 1> score = {Real(growing ? i : -i) * 1000 + 5000};
            taken = taken * softmax.add(score, 1) + score[0] * Real(i);
        }
        CHECK(taken / softmax.sum == (growing ? 9 : 0));
    }
}

TEST_CASE("attend_blockwise is chapter 05's attention, for all lengths and widths") {
    Generator generator(8);
    for (const std::size_t T : {1u, 63u, 64u, 65u, 130u, 200u})
        for (const std::size_t more : {0u, 1u, 37u, 64u, 100u})
            for (const std::size_t D : {1u, 8u, 64u}) {
                const std::size_t S = T + more;
                const Matrix queries = randn({T, D}, generator) * Real(2);
                const Matrix keys = randn({S, D}, generator), values = randn({S, D}, generator);
                INFO("T ", T, ", S ", S, ", D ", D);
                CHECK_CLOSE(blockwise(queries, keys, values, more),
                            chapter_05(queries, keys, values), 1e-5);
            }
}

TEST_CASE("attend_blockwise: rows with gaps between them, and keys that nobody sees yet") {
    Generator generator(9);
    const std::size_t T = 70, S = 100, D = 8, first = 20;  // the last query stands at 89
    const Matrix queries = randn({T, 3 * D}, generator);
    Matrix keys = randn({S, 2 * D}, generator), values = randn({S, 2 * D}, generator);
    const auto columns = [&](const Matrix& matrix, std::size_t begin, std::size_t rows) {
        return Matrix(xt::view(matrix, xt::range(0, rows), xt::range(begin, begin + D)));
    };
    const Matrix expected =
        chapter_05(columns(queries, D, T), columns(keys, 3, 90), columns(values, 5, 90));
    for (const auto [s, d] : every_index(S - 90, 2 * D))
        keys(90 + s, d) = values(90 + s, d) = not_a_number;

    Matrix context = xt::ones<Real>({T, 3 * D}) * Real(77);
    attend_blockwise(rows_of(queries).columns(D, D), rows_of(std::as_const(keys)).columns(3, D),
                     rows_of(std::as_const(values)).columns(5, D), first,
                     rows_of(context).columns(2 * D, D));
    CHECK_CLOSE(columns(context, 2 * D, T), expected, 1e-5);
    for (const auto [t, d] : every_index(T, 2 * D)) CHECK(context(t, d) == 77);
}

TEST_CASE("attend_blockwise: what a query must not see changes nothing, not a bit") {
    Generator generator(10);
    const std::size_t T = 150, D = 8;
    const Matrix queries = randn({T, D}, generator), keys = randn({T, D}, generator),
                 values = randn({T, D}, generator);
    const Matrix context = blockwise(queries, keys, values, 0);
    for (const std::size_t seen : {1u, 2u, 63u, 64u, 65u, 100u, 128u, 149u}) {
        Matrix other_keys = keys, other_values = values;
        xt::view(other_keys, xt::range(seen, T)) *= Real(1e4);
        xt::view(other_values, xt::range(seen, T)) = Real(1e30);
        const Matrix other = blockwise(queries, other_keys, other_values, 0);
        CHECK(same_bits(Matrix(xt::view(other, xt::range(0, seen))),
                        Matrix(xt::view(context, xt::range(0, seen)))));
        CHECK_FALSE(difference(other, context, 1).empty());  // those behind do see it
    }
}

TEST_CASE("attend_blockwise: very large scores choose the best key and do not overflow") {
    // The best key of all comes first, last, or in the middle; all scores lie within ±1000.
    const std::size_t T = 140, D = 4;
    for (const std::size_t best : {0u, 70u, 139u}) {
        Matrix queries = xt::ones<Real>({T, D}), keys = xt::ones<Real>({T, D}) * Real(-500);
        xt::view(keys, best) = Real(500);
        const Matrix values = counting({T, D}) / Real(T * D);
        const Matrix context = blockwise(queries, keys, values, 0);
        CHECK_CLOSE(context, chapter_05(queries, keys, values), 1e-5);
        CHECK_CLOSE(Vector(xt::view(context, T - 1)), Vector(xt::view(values, best)), 1e-6);
    }
    Generator generator(11);
    const Matrix queries = randn({T, D}, generator) * Real(30),
                 keys = randn({T, D}, generator) * Real(30), values = randn({T, D}, generator);
    CHECK_CLOSE(blockwise(queries, keys, values, 0), chapter_05(queries, keys, values), 1e-4);
}

TEST_CASE("attend_blockwise names the sizes that do not fit") {
    Matrix context = counting({5, 4}), narrow = counting({5, 3});
    const auto attend = [&](const Matrix& queries, const Matrix& keys, const Matrix& values,
                            std::size_t first, Rows result) {
        attend_blockwise(rows_of(queries), rows_of(keys), rows_of(values), first, result);
    };
    const Matrix five = counting({5, 4}), seven = counting({7, 4});
    CHECK_NOTHROW(attend(five, seven, seven, 2, rows_of(context)));
    CHECK_THROWS_WITH_AS(attend(five, seven, seven, 3, rows_of(context)),
                         "attention: 5 queries at 3 do not fit 7 keys and 7 values",
                         ShapeError);
    CHECK_THROWS_WITH_AS(attend(five, seven, five, 0, rows_of(context)),
                         "attention: 5 queries at 0 do not fit 7 keys and 5 values",
                         ShapeError);
    CHECK_THROWS_AS(attend(five, counting({7, 5}), seven, 0, rows_of(context)), ShapeError);
    CHECK_THROWS_AS(attend(five, seven, seven, 0, rows_of(narrow)), ShapeError);
}

TEST_CASE("attend_one is the last row of chapter 05's attention") {
    Generator generator(12);
    for (const std::size_t S : {1u, 2u, 15u, 64u, 65u, 200u})
        for (const std::size_t D : {1u, 6u, 64u}) {
            const Matrix query = randn({std::size_t{1}, D}, generator) * Real(3),
                         keys = randn({S, 2 * D}, generator),
                         values = randn({S, D + 1}, generator);
            Fenced weights(std::vector<Real>(S, not_a_number), 77),
                context(std::vector<Real>(D, not_a_number), 77);
            attend_one(rows_of(query)[0], rows_of(keys).columns(D, D),
                       rows_of(values).columns(1, D), weights.numbers(), context.numbers());
            const Matrix expected =
                chapter_05(query, xt::view(keys, xt::all(), xt::range(D, 2 * D)),
                           xt::view(values, xt::all(), xt::range(1, D + 1)));
            CHECK_CLOSE(matrix_of({context.numbers().data(), 1, D, D}), expected, 1e-5);
            CHECK(weights.stands());
            CHECK(context.stands());
        }
}

TEST_CASE("attend_one names the sizes that do not fit") {
    std::vector<Real> numbers(7);
    const std::span<Real> four = std::span(numbers).first(4),
                          five = std::span(numbers).first(5);
    const Matrix keys = counting({5, 4}), longer = counting({6, 4}), wider = counting({5, 7});
    const auto attend = [&](std::span<Real> query, const Matrix& values,
                            std::span<Real> weights, std::span<Real> context) {
        attend_one(query, rows_of(keys), rows_of(values), weights, context);
    };
    CHECK_NOTHROW(attend(four, keys, five, four));
    CHECK_THROWS_WITH_AS(
        attend(five, keys, five, four),
        "attention: a query of 5, 5 weights and a context of 4 do not fit keys "
        "of (5, 4) and values of (5, 4)",
        ShapeError);
    CHECK_THROWS_AS(attend(four, keys, four, four), ShapeError);
    CHECK_THROWS_AS(attend(four, keys, numbers, four), ShapeError);
    CHECK_THROWS_AS(attend(four, longer, five, four), ShapeError);
    CHECK_THROWS_AS(attend(four, wider, five, four), ShapeError);
    CHECK_THROWS_AS(attend(four, keys, five, five), ShapeError);
}

TEST_CASE("attend_blockwise names the sizes that do not fit") {
    const Matrix queries = counting({5, 4}), wider = counting({5, 3});
    Matrix context = counting({5, 4});
    const auto attend = [&](ConstRows q, ConstRows k, ConstRows v, Rows result) {
        attend_blockwise(q, k, v, 0, result);
    };
    const ConstRows rows = rows_of(queries), other = rows_of(wider);
    CHECK_NOTHROW(attend(rows, rows, rows, rows_of(context)));
    CHECK_THROWS_WITH_AS(attend(rows, rows, rows, rows_of(context).rows(0, 2)),
                         "attention: queries of (5, 4), keys of (5, 4) and values of (5, 4) do "
                         "not make (2, 4)",
                         ShapeError);
    CHECK_THROWS_AS(attend(other, rows, rows, rows_of(context)), ShapeError);
    CHECK_THROWS_AS(attend(rows, other, rows, rows_of(context)), ShapeError);
    CHECK_THROWS_AS(attend(rows, rows, other, rows_of(context)), ShapeError);
    CHECK_THROWS_AS(attend(rows, rows, rows.rows(0, 4), rows_of(context)), ShapeError);
}

TEST_CASE("project_tokens names the sizes that do not fit, whatever the weights") {
    const Matrix inputs = counting({5, 4});
    Matrix outputs = counting({5, 3});
    std::vector<Real> scratch;
    for (const Weights weights : all_weights) {
        const PackedMatrix packed = pack(counting({3, 4}), weights);
        CHECK_NOTHROW(project_tokens(packed, rows_of(inputs), rows_of(outputs), scratch));
        CHECK_THROWS_WITH_AS(
            project_tokens(packed, rows_of(inputs), rows_of(outputs).columns(0, 2), scratch),
            "project: weights of (3, 4) do not map (5, 4) to (5, 2)", ShapeError);
        CHECK_THROWS_AS(
            project_tokens(packed, rows_of(inputs), rows_of(outputs).rows(0, 4), scratch),
            ShapeError);
        CHECK_THROWS_AS(
            project_tokens(packed, rows_of(inputs).columns(0, 3), rows_of(outputs), scratch),
            ShapeError);
    }
}

TEST_CASE("a cache of another model is refused") {
    Generator generator(3);
    ModelConfig config = odd_config();
    const FastModel fast = make_fast(make_lively(config, generator), Weights::float32);
    config.num_hidden_layers += 1;
    const FastModel deeper = make_fast(make_lively(config, generator), Weights::float32);
    FastState state = make_state(fast, 8);
    CHECK_THROWS_AS(compute_logits(deeper, std::vector<Id>{1}, state), ShapeError);
    CHECK_NOTHROW(compute_logits(fast, std::vector<Id>{1}, state));
}

#ifndef LLM_SANITIZE
TEST_CASE("attend_blockwise and attend_one ask for no memory") {
    const Matrix rows = counting({200, 8}) / Real(1600);
    Matrix context = rows;
    std::vector<Real> weights(200);
    attend_blockwise(rows_of(rows), rows_of(rows), rows_of(rows), 0, rows_of(context));
    const std::size_t before = times_asked;
    attend_blockwise(rows_of(rows), rows_of(rows), rows_of(rows), 0, rows_of(context));
    attend_one(rows_of(rows)[0], rows_of(rows), rows_of(rows), weights, rows_of(context)[0]);
    CHECK(times_asked == before);
}
#endif

// ---- packed

TEST_CASE("pack: bfloat16 as chapter 07 rounds, and as PyTorch does") {
    Matrix weights = fixture<2>("15_fast/weights");
    CHECK(same_bits(unpack(pack(weights, Weights::bfloat16)), fixture<2>("15_fast/bfloat16")));

    Generator generator(13);
    Matrix bits = xt::zeros<Real>({40, 50});
    for (Real& number : bits)  // all signs and sizes, the smallest too
        do number = std::bit_cast<Real>(generator.next_32_bits());
        while (!std::isfinite(to_bfloat16(number)));
    bits(0, 0) = Real(-0.0);
    bits(0, 1) = Real(1.00390625);  // halfway, to the even one
    bits(0, 2) = Real(1.01171875);
    Matrix expected = bits;
    for (Real& number : expected) number = to_bfloat16(number);
    const PackedMatrix packed = pack(bits, Weights::bfloat16);
    CHECK(same_bits(unpack(packed), expected));
    CHECK(packed.bfloats.size() == 2000);
    CHECK(packed.memory() == 4000);
}

TEST_CASE("pack: int8 as a few lines of PyTorch do it, in groups of 64") {
    const Matrix weights = fixture<2>("15_fast/weights");  // 64, 64 and 22 in a row
    const PackedMatrix packed = pack(weights, Weights::int8);
    const Matrix numbers = fixture<2>("15_fast/numbers"), scales = fixture<2>("15_fast/scales");
    REQUIRE(packed.bytes.size() == numbers.size());
    REQUIRE(packed.scales.size() == scales.size());
    for (std::size_t i = 0; i < numbers.size(); ++i)
        CHECK(packed.bytes[i] == numbers.data()[i]);
    for (std::size_t i = 0; i < scales.size(); ++i) CHECK(packed.scales[i] == scales.data()[i]);
    CHECK_CLOSE(unpack(packed), fixture<2>("15_fast/int8"), 0);
}

TEST_CASE(
    "pack: int8 is wrong by half a scale at most, and the largest is exactly 127 scales") {
    Generator generator(14);
    for (const std::size_t width : {1u, 2u, 63u, 64u, 65u, 128u, 130u}) {
        const std::size_t groups = (width + 63) / 64;
        Matrix weights = randn({std::size_t{3}, width}, generator);
        xt::view(weights, 1) = Real(0);
        weights(2, width - 1) = -100;  // the largest of its group is negative
        const PackedMatrix packed = pack(weights, Weights::int8);
        REQUIRE(packed.scales.size() == 3 * groups);
        const Matrix unpacked = unpack(packed);
        for (const auto [row, i] : every_index(3, width)) {
            const Real scale = packed.scales[row * groups + i / 64];
            CHECK(std::abs(unpacked(row, i) - weights(row, i)) <= 0.500001 * scale);
        }
        for (const auto [row, group] : every_index(3, groups)) {
            int largest_number = 0;
            for (std::size_t i = group * 64; i < std::min(width, group * 64 + 64); ++i)
                largest_number =
                    std::max(largest_number, std::abs(int(packed.bytes[row * width + i])));
            CHECK(largest_number == (row == 1 ? 0 : 127));
        }
        CHECK(packed.bytes.back() == -127);
        CHECK(unpacked(2, width - 1) == doctest::Approx(-100));
    }
}

TEST_CASE("pack: int8 of weights so small that no float is their scale stays within 127") {
    for (const int steps : {1, 100, 150, 190, 250, 1000}) {  // of 2^-149, the smallest float
        const Real weight = std::ldexp(Real(steps), -149);
        const PackedMatrix packed = pack(Matrix{{weight, 0, -weight}}, Weights::int8);
        CHECK(packed.bytes[0] <= 127);
        CHECK(packed.bytes[0] >= (steps == 1 ? 0 : 100));
        CHECK(packed.bytes[1] == 0);
        CHECK(packed.bytes[2] == -packed.bytes[0]);
    }
}

TEST_CASE("pack: float32 keeps every bit, and memory counts bytes") {
    Generator generator(15);
    const Matrix weights = randn({5, 130}, generator);
    CHECK(same_bits(unpack(pack(weights, Weights::float32)), weights));
    CHECK(pack(weights, Weights::float32).memory() == 5 * 130 * 4);
    CHECK(pack(weights, Weights::bfloat16).memory() == 5 * 130 * 2);
    CHECK(pack(weights, Weights::int8).memory() == 5 * (130 + 3 * 4));
    CHECK(pack(counting({2, 64}), Weights::int8).memory() == 2 * (64 + 4));
    for (const Weights weights_kind : all_weights) {
        const PackedMatrix packed = pack(weights, weights_kind);
        CHECK(packed.kind == weights_kind);
        CHECK(packed.out_features == 5);
        CHECK(packed.in_features == 130);
    }
}

TEST_CASE("pack refuses what is not finite") {
    for (const Weights weights_kind : all_weights)
        for (const Real bad : {infinity, -infinity, not_a_number})
            for (const std::size_t place : {0u, 5u}) {
                Matrix weights = counting({2, 3});
                weights.data()[place] = bad;
                CHECK_THROWS_WITH_AS(pack(weights, weights_kind),
                                     "pack: a matrix of (2, 3) holds inf or NaN", ShapeError);
            }
}

TEST_CASE("rows of a packed matrix: unpacked and multiplied, each by itself") {
    Generator generator(16);
    for (const std::size_t width : {1u, 63u, 64u, 65u, 130u}) {
        const Matrix weights = randn({std::size_t{4}, width}, generator);
        Fenced inputs(drawn(width, generator), not_a_number);
        for (const Weights weights_kind : all_weights) {
            const PackedMatrix packed = pack(weights, weights_kind);
            const Matrix unpacked = unpack(packed);
            CHECK_CLOSE(unpacked, weights, 0.02);
            for (std::size_t row = 0; row < 4; ++row) {
                Fenced alone(std::vector<Real>(width), 77);
                packed.unpack_row(row, alone.numbers());
                CHECK(std::ranges::equal(alone.numbers(), rows_of(unpacked)[row]));
                CHECK(alone.stands());
                const double gap = packed.dot_row(row, inputs.numbers()) -
                                   sum_of_products(alone.numbers(), inputs.numbers());
                CHECK(std::abs(gap) <= slack(alone.numbers(), inputs.numbers()));
            }
        }
    }
}

TEST_CASE("project_token: all outputs of one token, over the old ones or added to them") {
    Generator generator(17);
    const std::size_t parts = 4 * num_cores();
    for (const std::size_t out :
         {std::size_t{1}, std::size_t{2}, std::size_t{3}, parts - 1, parts, parts + 1,
          2 * parts + 3, std::size_t{64}, std::size_t{65}, 9 * parts + 1})
        for (const std::size_t in : {1u, 63u, 64u, 65u, 130u}) {
            const Matrix weights = randn({out, in}, generator);
            const Matrix inputs = randn({std::size_t{1}, in}, generator);
            for (const Weights weights_kind : all_weights) {
                const PackedMatrix packed = pack(weights, weights_kind);
                const Matrix expected = exact_product(inputs, unpack(packed));
                const auto row_of = [&](Fenced& fenced) {
                    return matrix_of({fenced.numbers().data(), 1, out, out});
                };
                Fenced outputs(std::vector<Real>(out, not_a_number), 77);
                project_token(packed, rows_of(inputs)[0], outputs.numbers());
                CHECK_CLOSE(row_of(outputs), expected, 2e-6);
                project_token(packed, rows_of(inputs)[0], outputs.numbers(), Old::keep);
                CHECK_CLOSE(row_of(outputs), expected * Real(2), 2e-6);
                project_token(packed, rows_of(inputs)[0], outputs.numbers(), Old::replace);
                CHECK_CLOSE(row_of(outputs), expected, 2e-6);
                CHECK(outputs.stands());
            }
        }
}

TEST_CASE("project_token names the sizes that do not fit") {
    const PackedMatrix packed = pack(counting({3, 2}), Weights::int8);
    std::vector<Real> two(2), three(3);
    CHECK_NOTHROW(project_token(packed, two, three));
    CHECK_THROWS_WITH_AS(project_token(packed, three, three),
                         "project: weights of (3, 2) do not map 3 numbers to 3", ShapeError);
    CHECK_THROWS_WITH_AS(project_token(packed, two, two),
                         "project: weights of (3, 2) do not map 2 numbers to 2", ShapeError);
}

TEST_CASE("project_tokens: all outputs of many tokens, over the old ones or added to them") {
    Generator generator(18);
    std::vector<Real> scratch;
    for (const std::size_t out : {1u, 2u, 63u, 64u, 65u, 130u})
        for (const std::size_t in : {1u, 64u, 65u, 130u})
            for (const std::size_t N : {1u, 3u, 70u}) {
                const Matrix weights = randn({out, in}, generator);
                const Matrix wide = randn({N, in + 3}, generator);
                const Matrix inputs = xt::view(wide, xt::all(), xt::range(2, in + 2));
                for (const Weights weights_kind : all_weights) {
                    const PackedMatrix packed = pack(weights, weights_kind);
                    const Matrix expected = exact_product(inputs, unpack(packed));
                    Matrix memory = xt::ones<Real>({N, out + 2}) * not_a_number;
                    xt::view(memory, xt::all(), 0) = Real(77);
                    xt::view(memory, xt::all(), out + 1) = Real(77);
                    const Rows outputs = rows_of(memory).columns(1, out);
                    const ConstRows rows = rows_of(wide).columns(2, in);
                    project_tokens(packed, rows, outputs, scratch);
                    CHECK_CLOSE(matrix_of(outputs), expected, 2e-6);
                    project_tokens(packed, rows, outputs, scratch, Old::keep);
                    CHECK_CLOSE(matrix_of(outputs), expected * Real(2), 2e-6);
                    project_tokens(packed, rows, outputs, scratch, Old::replace);
                    CHECK_CLOSE(matrix_of(outputs), expected, 2e-6);
                    for (std::size_t n = 0; n < N; ++n)
                        CHECK((memory(n, 0) == 77 && memory(n, out + 1) == 77));
                }
            }
}

// ---- fast

TEST_CASE("a fast model's logits are the model's, for every kind of model and in any pieces") {
    const std::vector<Id> ids = some_ids(40);
    for (const Kind& each : kinds()) {
        INFO(each.name);
        const Matrix expected = logits_of(each.model, ids);
        const FastModel fast = make_fast(each.model, Weights::float32);
        CHECK_CLOSE(at_once(fast, ids), expected, 1e-5);
        CHECK_CLOSE(token_by_token(fast, ids), expected, 1e-5);
        CHECK_CLOSE(in_pieces(fast, ids, {5, 1, 7, 2, 24, 1}), expected, 1e-5);
        CHECK_CLOSE(in_pieces(fast, ids, {1, 39}), expected, 1e-5);
    }
}

TEST_CASE("a fast model's logits are the model's behind hundreds of tokens, too") {
    const std::vector<Id> ids = some_ids(530);  // nine tiles, the last of 18; more than 2 * 256
    for (const std::string name : {"Qwen 3", "biases"}) {
        INFO(name);
        const Matrix expected = logits_of(kind(name), ids);
        const FastModel fast = make_fast(kind(name), Weights::float32);
        CHECK_CLOSE(at_once(fast, ids), expected, 1e-5);
        CHECK_CLOSE(token_by_token(fast, ids), expected, 1e-5);
        CHECK_CLOSE(in_pieces(fast, ids, {5, 1, 7, 1, 64, 130, 65, 1, 256}), expected, 1e-5);
    }
}

TEST_CASE("a fast model gives the last token's logits alone, if asked for no others") {
    const FastModel fast = make_fast(kind("an untied head"), Weights::float32);
    const std::vector<Id> ids = some_ids(90);
    const Matrix expected = logits_of(kind("an untied head"), ids);
    FastState state = make_state(fast, 90);
    std::size_t end = 0;
    for (const std::size_t piece : {70u, 1u, 2u, 17u}) {
        const ConstRows logits =
            compute_logits(fast, std::span(ids).subspan(end, piece), state);
        end += piece;
        REQUIRE(logits.count == 1);
        CHECK_CLOSE(matrix_of(logits), Matrix(xt::view(expected, xt::range(end - 1, end))),
                    1e-5);
    }
    CHECK(state.logits.shape(0) == 1);
}

TEST_CASE("a fast model of packed weights is the model of the unpacked ones") {
    const std::vector<Id> ids = some_ids(80);
    for (const Weights weights_kind : {Weights::bfloat16, Weights::int8})
        for (const std::string name : {"shared key heads", "an untied head", "biases"}) {
            INFO(name);
            const Model& model = kind(name);
            const Matrix expected = logits_of(repacked(model, weights_kind), ids);
            CHECK_FALSE(difference(expected, logits_of(model, ids), 1e-3).empty());
            const FastModel fast = make_fast(model, weights_kind);
            CHECK_CLOSE(at_once(fast, ids), expected, 1e-5);
            CHECK_CLOSE(token_by_token(fast, ids), expected, 1e-5);
            CHECK_CLOSE(in_pieces(fast, ids, {5, 1, 7, 67}), expected, 1e-5);
        }
}

TEST_CASE("fast models of checkpoints give PyTorch's logits") {
    const IdMatrix ids{{3, 16, 0, 5, 5}, {9, 1, 2, 3, 4}};
    for (const std::string name : {"llama", "qwen2", "qwen3", "mistral", "mini_llm"}) {
        INFO(name);
        const Model model = load_model(fixture_path("09_full_model/" + name));
        const FastModel fast = make_fast(model, Weights::float32);
        const Tensor3 pinned = fixture<3>("09_full_model/" + name + "_logits");
        for (const std::size_t b : {0, 1}) {
            const std::span<const Id> text(&ids(b, 0), 5);
            const Matrix expected = xt::view(pinned, b);
            CHECK_CLOSE(at_once(fast, text), expected, 1e-5);
            CHECK_CLOSE(token_by_token(fast, text), expected, 1e-5);
        }
    }
}

TEST_CASE("Mini-LLM, fast: its first logits equal PyTorch's") {
    ModelConfig config;
    config.interleaved_rope = true;
    Generator generator(77);
    const FastModel fast = make_fast(make_model(config, generator), Weights::float32);
    const std::vector<Id> ids = {1, 334, 3855, 288};
    const Matrix expected = xt::view(fixture<3>("09_full_model/walk_logits"), 0);
    const auto thinned = [](const Matrix& logits) {
        return Matrix(xt::view(logits, xt::all(), xt::range(0, 32000, 97)));
    };
    CHECK_CLOSE(thinned(at_once(fast, ids)), expected, 1e-5);
    CHECK_CLOSE(thinned(token_by_token(fast, ids)), expected, 1e-5);
    CHECK(fast.weight_memory() == 50036736 * 4);
}

TEST_CASE("the model of assets/ goes on as PyTorch's does, with weights of any kind") {
    const Model model = load_model(asset("king_james"));
    const IdMatrix ids = id_fixture<2>("13_training/king_james_ids");
    const std::vector<Id> text(ids.begin(), ids.end());
    for (const Weights weights_kind : all_weights)
        CHECK(greedy(make_fast(model, weights_kind), {text.begin(), text.begin() + 3}, 24) ==
              text);

    // It was stored as bfloat16, so that nothing is lost in those.
    for (const Weights weights_kind : {Weights::float32, Weights::bfloat16}) {
        const FastModel fast = make_fast(model, weights_kind);
        FastState state = make_state(fast, 26);
        CHECK_CLOSE(matrix_of(compute_logits(fast, std::span(text).first(26), state)),
                    fixture<2>("13_training/king_james_logits"), 1e-5);
    }
}

TEST_CASE("make_fast lays out what the model has, in bytes of the kind asked for") {
    const std::size_t C = 70, F = 130, V = 131, qkv = (6 + 2 * 2) * 10, attended = 60;
    const std::size_t rows_of_C = 2 * (qkv + 2 * F);
    const std::size_t numbers = rows_of_C * C + 2 * (C * attended + C * F);
    for (const std::string name : {"shared key heads", "an untied head"}) {
        const Model& model = kind(name);  // the head is read whether it is tied or not
        CHECK(make_fast(model, Weights::float32).weight_memory() == 4 * (numbers + V * C));
        CHECK(make_fast(model, Weights::bfloat16).weight_memory() == 2 * (numbers + V * C));
        // Scales: 2 for a row of C, 1 for one of H*D, 3 for one of F.
        const std::size_t scales = 2 * (rows_of_C + V) + 2 * C * (1 + 3);
        CHECK(make_fast(model, Weights::int8).weight_memory() == numbers + V * C + 4 * scales);
        CHECK(make_fast(model, Weights::int8).lm_head.has_value() == model.lm_head.has_value());
    }
}

TEST_CASE(
    "make_fast keeps biases where there are some, side by side with zeros for the others") {
    for (const FastLayer& layer : make_fast(kind("shared key heads"), Weights::float32).layers)
        for (const PackedLinear* linear :
             {&layer.qkv_proj, &layer.o_proj, &layer.gate_up_proj, &layer.down_proj})
            CHECK(linear->bias.empty());
    const Model& model = kind("a bias here and there");
    const FastModel fast = make_fast(model, Weights::float32);
    const std::vector<Real>& bias = fast.layers[0].qkv_proj.bias;  // 60, 20 and 20
    const Vector& v_bias = *model.layers[0].self_attn.projections.v_proj.bias;
    REQUIRE(bias.size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(bias[i] == (i < 80 ? 0 : v_bias(i - 80)));
    CHECK(fast.layers[1].gate_up_proj.bias.size() == 260);
    CHECK(fast.layers[0].gate_up_proj.bias.empty());
}

TEST_CASE("make_fast refuses what it would compute otherwise") {
    const auto refused = [](const auto& change) {
        Model model = kind("an untied head");
        change(model);
        CHECK_THROWS_WITH_AS(make_fast(model, Weights::float32),
                             "fast model: only RMSNorm without bias and SwiGLU",
                             std::invalid_argument);
    };
    const Vector shift = xt::zeros<Real>({70});
    refused([&](Model& model) { model.norm.bias = shift; });
    refused([&](Model& model) { model.layers[0].attention_norm.bias = shift; });
    refused([&](Model& model) { model.layers[0].ffn_norm.bias = shift; });
    refused([&](Model& model) { model.layers[1].attention_norm.bias = shift; });
    refused([](Model& model) { model.layers[0].mlp.activation = gelu; });
    refused([](Model& model) { model.layers[1].mlp.activation = relu; });
}

TEST_CASE("make_fast refuses norms of queries and keys that chapter 05 refuses") {
    const auto refused = [](const std::string& name, const auto& change) {
        Model model = kind(name);
        change(model.layers[1].self_attn);
        CHECK_THROWS_WITH_AS(make_fast(model, Weights::float32),
                             "fast model: norm weights for queries and keys come together, and "
                             "with use_qk_norm",
                             ShapeError);
    };
    const Vector ones = xt::ones<Real>({10});
    refused("Qwen 3", [](AttentionLayer& layer) { layer.q_norm.reset(); });
    refused("Qwen 3", [](AttentionLayer& layer) { layer.k_norm.reset(); });
    refused("shared key heads",
            [&](AttentionLayer& layer) { layer.q_norm = layer.k_norm = ones; });
}

TEST_CASE("make_fast refuses weights that are not finite, and those that read something else") {
    const auto refused = [](const auto& matrix_of_model) {
        Model model = kind("an untied head");
        Matrix& matrix = matrix_of_model(model);
        matrix(matrix.shape(0) - 1, 0) = not_a_number;
        for (const Weights weights_kind : all_weights)
            CHECK_THROWS_AS(make_fast(model, weights_kind), ShapeError);
    };
    refused([](Model& model) -> Matrix& { return model.embed_tokens; });
    refused([](Model& model) -> Matrix& { return *model.lm_head; });
    for (const std::size_t n : {0, 1}) {
        using Layer = PreNormBlock;
        for (Matrix& (*part)(Layer&) : std::initializer_list<Matrix& (*)(Layer&)>{
                 [](Layer& x) -> Matrix& { return x.self_attn.projections.q_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.self_attn.projections.k_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.self_attn.projections.v_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.self_attn.projections.o_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.mlp.gate_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.mlp.up_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.mlp.down_proj.weight; }})
            refused([&](Model& model) -> Matrix& { return part(model.layers[n]); });
    }
    Model model = kind("an untied head");
    model.layers[1].self_attn.projections.k_proj.weight = counting({20, 71});
    CHECK_THROWS_AS(make_fast(model, Weights::float32), ShapeError);
}

TEST_CASE("make_state: at least one position, at most as many as the model has") {
    const FastModel fast = make_fast(kind("shared key heads"), Weights::int8);
    CHECK_NOTHROW(make_state(fast, 1));
    CHECK_NOTHROW(make_state(fast, 1024));
    CHECK_THROWS_WITH_AS(
        make_state(fast, 0),
        "fast model: 0 tokens are none or exceed max_position_embeddings of 1024", ShapeError);
    CHECK_THROWS_WITH_AS(
        make_state(fast, 1025),
        "fast model: 1025 tokens are none or exceed max_position_embeddings of 1024",
        ShapeError);
}

TEST_CASE("a refused call says why in one line and leaves the state as it was") {
    const FastModel fast = make_fast(kind("Qwen 3"), Weights::float32);
    const std::vector<Id> ids = some_ids(12);
    const Matrix undisturbed = in_pieces(fast, ids, {7, 5});
    FastState state = make_state(fast, 12);
    compute_logits(fast, std::span(ids).first(7), state);
    const Tensor4 keys = state.keys, values = state.values;
    const auto refused = [&](const std::vector<Id>& new_ids, const std::string& message) {
        for (const LogitsOf which : {LogitsOf::all, LogitsOf::last})
            CHECK_THROWS_WITH_AS(compute_logits(fast, new_ids, state, which), message.c_str(),
                                 ShapeError);
        CHECK(state.length == 7);
        CHECK(state.keys == keys);
        CHECK(state.values == values);
    };
    refused({}, "fast model: there is no token to begin with");
    refused({131}, "model: there is no token 131 in a vocabulary of 131");
    refused({-1}, "model: there is no token -1 in a vocabulary of 131");
    refused({1, 2, 3, 4, 131}, "model: there is no token 131 in a vocabulary of 131");
    refused({1, 2, 3, 4, 5, 6}, "cache: 6 tokens behind 7 do not fit into 12 positions");
    refused({1, 2, 3, 4, 5, 200}, "cache: 6 tokens behind 7 do not fit into 12 positions");

    const Matrix rest =
        matrix_of(compute_logits(fast, std::span(ids).subspan(7), state, LogitsOf::all));
    CHECK(same_bits(rest, Matrix(xt::view(undisturbed, xt::range(7, 12)))));
    CHECK(state.length == 12);
    CHECK_THROWS_AS(compute_logits(fast, std::span(ids).first(1), state), ShapeError);
}

TEST_CASE("length 0 begins again: the same numbers, whatever the state held before") {
    const std::vector<Id> ids = some_ids(200);
    for (const Weights weights_kind : all_weights) {
        const FastModel fast = make_fast(kind("Qwen 3"), weights_kind);
        const std::vector<std::size_t> pieces = {130, 1, 1, 5, 63};
        const Matrix first = in_pieces(fast, ids, pieces);

        FastState state = make_state(fast, 300);
        const auto again = [&] {
            state.length = 0;
            return in_pieces(fast, ids, pieces, state);
        };
        CHECK(same_bits(again(), first));
        CHECK(same_bits(again(), first));
        state.length = 0;
        compute_logits(fast, some_ids(290), state, LogitsOf::all);
        CHECK(same_bits(again(), first));

        // No number of the workspace and none of the cache is read before it is written.
        for (Matrix* matrix : {&state.stream, &state.qkv, &state.context, &state.logits})
            matrix->fill(not_a_number);
        state.keys.fill(not_a_number);
        state.values.fill(not_a_number);
        for (FastState::Desk& desk : state.desks) {
            desk.normalized.fill(not_a_number);
            desk.gate_up.fill(not_a_number);
            std::ranges::fill(desk.unpacked, not_a_number);
            std::ranges::fill(desk.weights, not_a_number);
        }
        CHECK(same_bits(again(), first));
    }
}

TEST_CASE("which core does what changes no bit: alone, on all, and two texts at a time") {
    const FastModel fast = make_fast(kind("biases"), Weights::bfloat16);
    const std::vector<Id> ids = some_ids(150);
    const std::vector<std::size_t> pieces = {100, 1, 1, 1, 47};
    const Matrix expected = in_pieces(fast, ids, pieces);
    for (int times = 0; times < 5; ++times)
        CHECK(same_bits(in_pieces(fast, ids, pieces), expected));
    std::vector<Matrix> both(2);
    in_parallel(2, [&](std::size_t i) { both[i] = in_pieces(fast, ids, pieces); });
    CHECK(same_bits(both[0], expected));
    CHECK(same_bits(both[1], expected));
}

TEST_CASE("memory grows with the text, not with its square") {
    ModelConfig config = odd_config();
    config.max_position_embeddings = 4096;
    Generator generator(19);
    const FastModel fast = make_fast(make_lively(config, generator), Weights::bfloat16);
    for (const std::size_t T : {512u, 1024u, 2048u}) {
        const std::size_t before = bytes_asked;
        FastState state = make_state(fast, T);
        compute_logits(fast, some_ids(T), state);
        [[maybe_unused]] const std::size_t asked = bytes_asked - before;

        // A token's stream, queries, keys, values and context, 80 numbers in the cache and 10
        // in the table, and on one of the desks 70 and 260. A matrix of (T, T) for one head
        // would not fit in.
        const std::size_t numbers_of_token = 70 + 100 + 60 + 80 + 10 + 70 + 260;
        const std::size_t on_every_desk = 64 * 130 + T + 330;  // unpacked rows, weights
        const std::size_t most = T * numbers_of_token + num_cores() * on_every_desk + 131;
        CHECK(state.memory() > 4 * T * (70 + 100 + 60 + 80));
        CHECK(state.memory() <= 4 * most);
#ifndef LLM_SANITIZE
        // It says what was asked for, but for the table. (A desk may have been too small.)
        CHECK(state.memory() <= asked);
        CHECK(state.memory() * 2 >= asked);
#endif
    }
}

TEST_CASE("memory counts what a call adds to the workspace") {
    const FastModel fast = make_fast(kind("shared key heads"), Weights::float32);
    FastState state = make_state(fast, 50);
    const std::size_t fresh = state.memory();
    CHECK(fresh >= 4 * 50 * (2 * 2 * 2 * 10 + num_cores()));  // cache, weights of queries
    compute_logits(fast, some_ids(1), state);
    // The stream, queries, keys and values, contexts, normalized, gate and up, logits.
    CHECK(state.memory() - fresh == 4 * (70 + 100 + 60 + 70 + 260 + 131));
    compute_logits(fast, some_ids(20), state);
    const std::size_t last = state.memory();
    state.length = 1;
    compute_logits(fast, some_ids(20), state, LogitsOf::all);
    CHECK(state.memory() - last >= 4 * 19 * 131);
}

#ifndef LLM_SANITIZE
TEST_CASE("a decode step asks for no memory, but for the first") {
    for (const Weights weights_kind : all_weights) {
        const FastModel fast = make_fast(kind("Qwen 3"), weights_kind);
        const std::vector<Id> ids = some_ids(60);
        FastState state = make_state(fast, 60);
        const auto decode_steps = [&](std::size_t count) {
            const std::size_t before = times_asked;
            for (std::size_t n = 0; n < count; ++n)
                compute_logits(fast, std::span(ids).subspan(state.length, 1), state);
            return times_asked - before;
        };
        CHECK(decode_steps(2) > 0);
        CHECK(decode_steps(20) == 0);
        compute_logits(fast, std::span(ids).subspan(22, 30), state);
        CHECK(decode_steps(8) == 0);
    }
}
#endif
