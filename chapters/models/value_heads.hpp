// The order of the value heads of linear attention in llama.cpp's files.
#pragma once

#include "chapters/20_linear_attention/linear_attention.hpp"

namespace llm::models {

// The same layer with its value heads in another order: r heads for key head 0, then r for key
// head 1 (here, and Hugging Face), or the first of each key head, then the second (llama.cpp,
// which repeats all key heads r times). Source: llama.cpp, conversion/qwen.py,
// _reorder_v_heads.
enum class ValueHeadOrder { by_key_head, tiled };

inline LinearAttention reorder_value_heads(const LinearAttention& layer, ValueHeadOrder order) {
    const std::size_t Hk = layer.num_key_heads, Hv = layer.num_value_heads;
    const std::size_t Dv = layer.value_head_dim(), ratio = Hv / Hk;
    // Head h of the result is this head of the layer.
    const std::size_t period = order == ValueHeadOrder::tiled ? Hk : ratio;
    const auto source = [&](std::size_t h) { return h % period * (Hv / period) + h / period; };
    // All of `first` elements, and then those of the heads, which have `size` each.
    const auto elements = [&](std::size_t first, std::size_t size) {
        std::vector<std::size_t> result(first + Hv * size);
        for (std::size_t i = 0; i < result.size(); ++i)
            result[i] =
                i < first ? i : first + source((i - first) / size) * size + (i - first) % size;
        return result;
    };
    const auto rows = [&](const Matrix& matrix, std::size_t size) -> Matrix {
        const std::size_t first = matrix.shape(0) - Hv * size;
        return xt::view(matrix, xt::keep(elements(first, size)), xt::all());
    };
    const auto of_heads = [&](const Vector& vector) -> Vector {
        return xt::view(vector, xt::keep(elements(0, 1)));
    };
    LinearAttention result = layer;
    result.in_proj_qkv.weight = rows(layer.in_proj_qkv.weight, Dv);
    result.in_proj_z.weight = rows(layer.in_proj_z.weight, Dv);
    result.conv1d = rows(layer.conv1d, Dv);
    result.out_proj.weight =
        xt::view(layer.out_proj.weight, xt::all(), xt::keep(elements(0, Dv)));
    if (layer.in_proj_b) result.in_proj_b->weight = rows(layer.in_proj_b->weight, 1);
    if (layer.decay) {
        result.decay->in_proj_a.weight = rows(layer.decay->in_proj_a.weight, 1);
        result.decay->A_log = of_heads(layer.decay->A_log);
        result.decay->dt_bias = of_heads(layer.decay->dt_bias);
    }
    return result;
}

}  // namespace llm::models
