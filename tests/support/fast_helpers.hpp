// What the tests of chapters 15 and 16 share: guarded memory, sums in double, and models of
// each kind.
#pragma once

#include <bit>
#include <cmath>
#include <numeric>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/15_fast/inference.hpp"
#include "tests/support/check.hpp"

namespace llm {

inline constexpr std::array block_dtypes = {DType::q8_0, DType::q4_0, DType::q5_0, DType::q4_k,
                                            DType::q6_k};

inline const Real not_a_number = std::numeric_limits<Real>::quiet_NaN();

inline std::vector<Real> random_values(std::size_t count, Generator& generator) {
    std::vector<Real> values(count);
    generator.fill_normal(values);
    return values;
}

// Values at an unaligned address, with guard values before and after them.
struct Guarded {
    std::vector<Real> memory;
    Real guard;

    Guarded(const std::vector<Real>& values, Real guard_) : memory(39, guard_), guard(guard_) {
        memory.insert(memory.begin() + 19, values.begin(), values.end());
    }
    std::span<Real> values() { return std::span(memory).subspan(19, memory.size() - 39); }
    bool intact() const {
        const auto same = [&](Real value) { return value == guard; };
        return std::all_of(memory.begin(), memory.begin() + 19, same) &&
               std::all_of(memory.end() - 20, memory.end(), same);
    }
};

inline double sum_of_products(std::span<const Real> a, std::span<const Real> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += double(a[i]) * double(b[i]);
    return sum;
}

// The rounding error that a sum of products may have.
inline double tolerance_of(std::span<const Real> a, std::span<const Real> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(double(a[i]) * double(b[i]));
    return 1e-6 * sum;
}

// inputs * weightᵀ, with sums in double.
inline Matrix exact_product(const Matrix& inputs, const Matrix& weight) {
    Matrix result = xt::zeros<Real>({inputs.shape(0), weight.shape(0)});
    for (const auto [n, o] : every_index(inputs.shape(0), weight.shape(0)))
        result(n, o) = Real(sum_of_products(view_of(inputs)[n], view_of(weight)[o]));
    return result;
}

// A copy.
inline Matrix matrix_of(ConstMatrixView rows) {
    Matrix matrix = xt::zeros<Real>({rows.num_rows, rows.num_columns});
    for (std::size_t n = 0; n < rows.num_rows; ++n) std::ranges::copy(rows[n], &matrix(n, 0));
    return matrix;
}

// Equal in every bit.
inline bool identical(const Matrix& a, const Matrix& b) {
    return a.shape() == b.shape() &&
           std::equal(a.begin(), a.end(), b.begin(), [](Real x, Real y) {
               return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
           });
}

// No size is a multiple of another or of the block sizes of the kernels.
inline Config odd_config() {
    Config config = mini_llm_config();
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

// Initializes a model so that each parameter affects the logits: norm weights are not 1, each
// epsilon is different, and attention weights are not uniform.
inline Model make_test_model(const Config& config, Generator& generator) {
    Model model = make_model(config, generator);
    const auto init_norm = [&](Vector& weight) {
        weight = uniform({weight.size()}, Real(0.5), Real(1.5), generator);
    };
    init_norm(model.norm.weight);
    model.norm.eps = Real(0.5);
    for (PreNormBlock& layer : model.layers) {
        init_norm(layer.attention_norm.weight);
        init_norm(layer.ffn_norm.weight);
        layer.attention_norm.eps = Real(0.2);
        layer.ffn_norm.eps = Real(0.05);
        layer.self_attn.projections.q_proj.weight =
            layer.self_attn.projections.q_proj.weight * Real(3);
        layer.self_attn.projections.k_proj.weight =
            layer.self_attn.projections.k_proj.weight * Real(3);
        if (auto* norm = std::get_if<QKNormWithWeights>(&layer.self_attn.qk_norm)) {
            init_norm(norm->q_weight);
            init_norm(norm->k_weight);
        }
    }
    return model;
}

struct NamedModel {
    std::string name;
    Model model;
};

inline std::vector<NamedModel> make_models() {
    Generator generator(12);
    std::vector<NamedModel> made;
    const auto add = [&](const std::string& name, const auto& change) -> Model& {
        Config config = odd_config();
        change(config);
        made.push_back({name, make_test_model(config, generator)});
        return made.back().model;
    };
    add("GQA", [](Config&) {});
    add("MQA", [](Config& config) { config.num_key_value_heads = 1; });
    add("MHA", [](Config& config) {
        config.num_key_value_heads = 6;
        config.head_dim = 2;
        config.num_hidden_layers = 3;
    });
    add("Qwen 3", [](Config& config) { config.qk_norm = QKNormType::with_weights; });
    add("Llama 4", [](Config& config) { config.qk_norm = QKNormType::without_weights; });
    add("an untied head", [](Config& config) { config.tie_word_embeddings = false; });
    add("Llama 3's scaling", [](Config& config) {
        config.rope_scaling = Llama3Scaling{8, 1, 4, 32};
        config.rope_theta = 500;
    });
    Model& biased =
        add("biases", [](Config& config) { config.attention_bias = AttentionBias::qkvo; });
    for (PreNormBlock& layer : biased.layers)
        for (Linear* linear : {&layer.mlp.gate_proj, &layer.mlp.up_proj, &layer.mlp.down_proj})
            linear->bias = uniform({linear->weight.shape(0)}, -1, 1, generator);
    Model& partly_biased = add("some biases", [](Config&) {});
    partly_biased.layers[0].self_attn.projections.v_proj.bias = uniform({20}, -1, 1, generator);
    partly_biased.layers[1].self_attn.projections.q_proj.bias = uniform({60}, -1, 1, generator);
    partly_biased.layers[1].mlp.up_proj.bias = uniform({130}, -1, 1, generator);
    return made;
}
inline const std::vector<NamedModel>& all_models() {
    static const std::vector<NamedModel> made = make_models();
    return made;
}
inline const Model& model_named(const std::string& name) {
    for (const NamedModel& candidate : all_models())
        if (candidate.name == name) return candidate.model;
    throw ValueError(name);
}

inline std::vector<Id> some_ids(std::size_t count) {
    std::vector<Id> ids(count);
    for (std::size_t t = 0; t < count; ++t) ids[t] = static_cast<Id>((t * t + 7 * t + 3) % 131);
    return ids;
}

inline Matrix logits_of(const Model& model, std::span<const Id> ids) {
    return xt::view(model(one_sequence(ids)), 0);
}

// Logits of all tokens, (T, V), computed in one call per chunk.
inline Matrix in_chunks(const FastModel& model, std::span<const Id> ids,
                        const std::vector<std::size_t>& chunks, RunState& state) {
    Matrix logits = xt::zeros<Real>({ids.size(), model.config.vocab_size});
    std::size_t begin = 0;
    for (const std::size_t chunk : chunks) {
        const ConstMatrixView rows =
            compute_logits(model, ids.subspan(begin, chunk), state, LogitsToKeep::all);
        REQUIRE(rows.num_rows == chunk);
        for (std::size_t t = 0; t < chunk; ++t)
            std::ranges::copy(rows[t], &logits(begin + t, 0));
        begin += chunk;
        CHECK(state.seq_len == begin);
    }
    REQUIRE(begin == ids.size());
    return logits;
}
inline Matrix in_chunks(const FastModel& model, std::span<const Id> ids,
                        const std::vector<std::size_t>& chunks) {
    RunState state = make_run_state(model, ids.size());
    return in_chunks(model, ids, chunks, state);
}

inline Matrix in_one_call(const FastModel& model, std::span<const Id> ids) {
    return in_chunks(model, ids, {ids.size()});
}
inline Matrix token_by_token(const FastModel& model, std::span<const Id> ids) {
    return in_chunks(model, ids, std::vector<std::size_t>(ids.size(), 1));
}

// The model with weight matrices that have been quantized, each with the kernels that are
// chosen for its in_features, and dequantized.
inline Model dequantized_model(Model model, const ChooseKernels& kernels) {
    for (const auto& [name, shape, values] : named_parameters(model)) {
        if (shape.size() != 2) continue;  // norms and biases
        const MatrixView rows{values.data(), shape[0], shape[1], shape[1]};
        const WeightMatrix quantized = quantize(matrix_of(rows), kernels(shape[1]));
        for (std::size_t row = 0; row < rows.num_rows; ++row)
            quantized.dequantize_row(row, rows[row]);
    }
    return model;
}
inline Model dequantized_model(const Model& model, DType dtype) {
    return dequantized_model(
        model, [&](std::size_t) -> const WeightKernels& { return kernels_of(dtype); });
}

inline std::vector<Id> greedy(const FastModel& model, std::vector<Id> ids, std::size_t count) {
    RunState state = make_run_state(model, ids.size() + count);
    for (std::size_t n = 0; n < count; ++n) {
        const ConstMatrixView logits =
            compute_logits(model, std::span(ids).subspan(state.seq_len), state);
        ids.push_back(std::ranges::max_element(logits[0]) - logits[0].begin());
    }
    return ids;
}

}  // namespace llm
