#include "chapters/12_gradients/training.hpp"

#include <cmath>

namespace llm {
namespace {

Matrix rows_of(const Tensor3& states) {  // (B, T, C) -> (N, C)
    const auto [batch_size, seq_len, width] = dims(states);
    return reshape(states, {batch_size * seq_len, width});
}

IdVector flat(const IdMatrix& ids) { return reshape(ids, {ids.size()}); }  // (B, T) -> (N)

// (N, H*D) <-> (B, H, T, D)
Tensor4 heads_of(const Matrix& rows, std::size_t batch_size, std::size_t num_heads) {
    const auto [count, width] = dims(rows);
    return split_heads(reshape(rows, {batch_size, count / batch_size, width}), num_heads);
}
Matrix side_by_side(const Tensor4& heads) { return rows_of(merge_heads(heads)); }

Matrix rows_of_table(const Matrix& table, const IdMatrix& ids) {  // (V, C), (B, T) -> (N, C)
    const std::size_t width = table.shape(1);
    Matrix rows = xt::zeros<Real>({ids.size(), width});
    for (std::size_t n = 0; n < ids.size(); ++n)
        std::copy_n(table.data() + static_cast<std::size_t>(ids.data()[n]) * width, width,
                    rows.data() + n * width);
    return rows;
}

}  // namespace

Loss cross_entropy(const Matrix& logits, const IdVector& targets) {
    const auto [count, vocab_size] = dims(logits);
    require(targets.size() == count, "cross_entropy: {} targets do not fit logits of {}",
            targets.size(), logits.shape());
    Loss loss{0, softmax(logits)};
    const Real share = 1 / static_cast<Real>(count);
    for (std::size_t n = 0; n < count; ++n) {
        const auto target = static_cast<std::size_t>(targets(n));
        require(targets(n) >= 0 && target < vocab_size,
                "cross_entropy: there is no token {} in a vocabulary of {}", targets(n),
                vocab_size);

        // -ln p from the logits, not from p: that may be 0 in a float.
        Real highest = logits(n, 0);
        for (std::size_t v = 0; v < vocab_size; ++v) highest = std::max(highest, logits(n, v));
        double sum = 0;
        for (std::size_t v = 0; v < vocab_size; ++v)
            sum += static_cast<double>(std::exp(logits(n, v) - highest));
        loss.value += (std::log(sum) + static_cast<double>(highest - logits(n, target))) /
                      static_cast<double>(count);

        loss.gradient(n, target) -= 1;
        for (std::size_t v = 0; v < vocab_size; ++v) loss.gradient(n, v) *= share;
    }
    return loss;
}

Function trained(const RMSNorm& norm, RMSNorm& gradient) {
    require(!norm.bias, "training: an RMSNorm with a bias is not supported");
    return [&](const Matrix& input) {
        return Taken{norm(input), [&, input](const Matrix& output_gradient) {
                         return rms_norm_backward(norm, input, output_gradient, gradient);
                     }};
    };
}

Function trained(const LayerNorm& norm, LayerNorm& gradient) {
    return [&](const Matrix& input) {
        return Taken{norm(input), [&, input](const Matrix& output_gradient) {
                         return layer_norm_backward(norm, input, output_gradient, gradient);
                     }};
    };
}

Function trained(const GatedMlp& mlp, GatedMlp& gradient) {
    return [&](const Matrix& input) {
        Matrix gate = mlp.gate_proj(input), up = mlp.up_proj(input);  // (N, F)
        Matrix product = up;                                          // (N, F)
        for (std::size_t i = 0; i < up.size(); ++i)
            product.data()[i] *= mlp.activation(gate.data()[i]);
        Matrix output = mlp.down_proj(product);  // (N, C)
        return Taken{std::move(output), [&, input, gate = std::move(gate),
                                         up = std::move(up)](const Matrix& output_gradient) {
                         return gated_mlp_backward(mlp, input, gate, up, output_gradient,
                                                   gradient);
                     }};
    };
}

Function trained(const Mlp& mlp, Mlp& gradient) {
    return [&](const Matrix& input) {
        Matrix up = mlp.up_proj(input);  // (N, F)
        Matrix bent = up;                // (N, F)
        for (Real& number : bent) number = mlp.activation(number);
        Matrix output = mlp.down_proj(bent);  // (N, C)
        return Taken{std::move(output),
                     [&, input, up = std::move(up)](const Matrix& output_gradient) {
                         return mlp_backward(mlp, input, up, output_gradient, gradient);
                     }};
    };
}

namespace {

// What an attention layer keeps for its way back.
struct Attended {
    Matrix input;                            // (N, C)
    Tensor4 queries, keys, values, weights;  // rotated; (B, H or Hkv, T, D), (B, H, T, T)
    Matrix context;                          // (N, H*D)
};

Matrix attention_layer_backward(const AttentionLayer& layer, const Placement& placement,
                                const Attended& there, const Matrix& output_gradient,
                                AttentionLayer& gradient) {
    const Projections& forward = layer.projections;
    Projections& backward = gradient.projections;
    const Matrix context_gradient =
        linear_backward(forward.o_proj, there.context, output_gradient, backward.o_proj);
    const AttentionGradient heads =
        attention_backward(there.queries, there.keys, there.values, there.weights,
                           heads_of(context_gradient, placement.positions.shape(0),
                                    layer.config.num_attention_heads));
    const auto unrotated = [&](const Tensor4& states) {
        return side_by_side(rotate_back(states, placement.table, placement.positions));
    };

    // Queries, keys and values were made of the same input.
    return linear_backward(forward.q_proj, there.input, unrotated(heads.queries),
                           backward.q_proj) +
           linear_backward(forward.k_proj, there.input, unrotated(heads.keys),
                           backward.k_proj) +
           linear_backward(forward.v_proj, there.input, side_by_side(heads.values),
                           backward.v_proj);
}

}  // namespace

Function trained(const AttentionLayer& layer, const Placement& placement,
                 AttentionLayer& gradient) {
    require(!layer.config.use_qk_norm, "training: layers with a QK norm are not supported");
    return [&](const Matrix& input) {
        const Projections& projections = layer.projections;
        const std::size_t batch_size = placement.positions.shape(0);
        const std::size_t num_kv_heads = layer.config.num_key_value_heads;
        const auto rotated = [&](const Tensor4& heads) {
            return rotate_split_half(heads, placement.table, placement.positions);
        };
        Attended there;
        there.input = input;
        there.queries = rotated(
            heads_of(projections.q_proj(input), batch_size, layer.config.num_attention_heads));
        there.keys = rotated(heads_of(projections.k_proj(input), batch_size, num_kv_heads));
        there.values = heads_of(projections.v_proj(input), batch_size, num_kv_heads);
        Attention attention =
            grouped_query_attention(there.queries, there.keys, there.values, placement.mask);
        there.weights = std::move(attention.weights);
        there.context = side_by_side(attention.context);
        return Taken{projections.o_proj(there.context),
                     [&, there = std::move(there)](const Matrix& output_gradient) {
                         return attention_layer_backward(layer, placement, there,
                                                         output_gradient, gradient);
                     }};
    };
}

// A sum hands its gradient to both summands as it is: the stream's own part comes back
// untouched, however many blocks there are.
Taken pre_norm(const Matrix& stream, const Parts& parts) {
    Taken first_norm = parts.attention_norm(stream);
    Taken attended = parts.attend(first_norm.output);
    const Matrix middle = stream + attended.output;
    Taken second_norm = parts.ffn_norm(middle);
    Taken bent = parts.mlp(second_norm.output);
    return {middle + bent.output,
            [normalize = std::move(first_norm.back), attend = std::move(attended.back),
             normalize_again = std::move(second_norm.back),
             bend = std::move(bent.back)](const Matrix& output_gradient) {
                const Matrix middle_gradient =
                    output_gradient + normalize_again(bend(output_gradient));
                return middle_gradient + normalize(attend(middle_gradient));
            }};
}

// Here it goes through every norm.
Taken post_norm(const Matrix& stream, const Parts& parts) {
    Taken attended = parts.attend(stream);
    Taken first_norm = parts.attention_norm(stream + attended.output);
    Taken bent = parts.mlp(first_norm.output);
    Taken second_norm = parts.ffn_norm(first_norm.output + bent.output);
    return {std::move(second_norm.output),
            [attend = std::move(attended.back), normalize = std::move(first_norm.back),
             bend = std::move(bent.back),
             normalize_again = std::move(second_norm.back)](const Matrix& output_gradient) {
                const Matrix sum_gradient = normalize_again(output_gradient);
                const Matrix first_sum_gradient = normalize(sum_gradient + bend(sum_gradient));
                return first_sum_gradient + attend(first_sum_gradient);
            }};
}

Taken res_post_norm(const Matrix& stream, const Parts& parts) {
    Taken attended = parts.attend(stream);
    Taken first_norm = parts.attention_norm(attended.output);
    const Matrix middle = stream + first_norm.output;
    Taken bent = parts.mlp(middle);
    Taken second_norm = parts.ffn_norm(bent.output);
    return {middle + second_norm.output,
            [attend = std::move(attended.back), normalize = std::move(first_norm.back),
             bend = std::move(bent.back),
             normalize_again = std::move(second_norm.back)](const Matrix& output_gradient) {
                const Matrix middle_gradient =
                    output_gradient + bend(normalize_again(output_gradient));
                return middle_gradient + attend(normalize(middle_gradient));
            }};
}

Taken parallel(const Matrix& stream, const Parts& parts) {
    Taken norm = parts.attention_norm(stream);
    Taken attended = parts.attend(norm.output);
    Taken bent = parts.mlp(norm.output);
    return {stream + attended.output + bent.output,
            [normalize = std::move(norm.back), attend = std::move(attended.back),
             bend = std::move(bent.back)](const Matrix& output_gradient) {
                return output_gradient +
                       normalize(attend(output_gradient) + bend(output_gradient));
            }};
}

double there_and_back(const IdMatrix& inputs, const IdMatrix& targets, const Table& embedding,
                      const std::vector<Function>& steps, const Table& head) {
    require(inputs.shape() == targets.shape(),
            "training: inputs of {} do not fit targets of {}", inputs.shape(), targets.shape());

    // There: each step remembers what its way back needs.
    Matrix stream = rows_of_table(embedding.weight, inputs);  // (N, C)
    std::vector<std::function<Matrix(const Matrix&)>> ways_back;
    for (const Function& step : steps) {
        Taken taken = step(stream);
        stream = std::move(taken.output);
        ways_back.push_back(std::move(taken.back));
    }
    const Matrix logits = xt::linalg::dot(stream, xt::transpose(head.weight));  // (N, V)
    const Loss loss = cross_entropy(logits, flat(targets));

    // And back, the last step first. A tied head and the embedding add to one gradient.
    add_product(head.gradient, loss.gradient, stream);                     // (V, C)
    Matrix stream_gradient = xt::linalg::dot(loss.gradient, head.weight);  // (N, C)
    for (auto back = ways_back.rbegin(); back != ways_back.rend(); ++back)
        stream_gradient = (*back)(stream_gradient);
    embedding_backward(inputs, stream_gradient, embedding.gradient);
    return loss.value;
}

Function block_of(Taken (*arrangement)(const Matrix&, const Parts&), Parts parts) {
    return [arrangement, parts = std::move(parts)](const Matrix& stream) {
        return arrangement(stream, parts);
    };
}

double loss_and_gradients(const Model& model, const IdMatrix& inputs, const IdMatrix& targets,
                          Model& gradient) {
    check_input(model.config, inputs);
    const Placement placement = model.placement(inputs.shape(0), inputs.shape(1));
    std::vector<Function> steps;
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const PreNormBlock& layer = model.layers[n];
        PreNormBlock& its = gradient.layers[n];
        steps.push_back(block_of(pre_norm, {trained(layer.self_attn, placement, its.self_attn),
                                            trained(layer.mlp, its.mlp),
                                            trained(layer.attention_norm, its.attention_norm),
                                            trained(layer.ffn_norm, its.ffn_norm)}));
    }
    steps.push_back(trained(model.norm, gradient.norm));
    const Table embedding{model.embed_tokens, gradient.embed_tokens};
    if (!model.lm_head) return there_and_back(inputs, targets, embedding, steps, embedding);
    return there_and_back(inputs, targets, embedding, steps,
                          {*model.lm_head, *gradient.lm_head});
}

double loss_of(const Model& model, const IdMatrix& inputs, const IdMatrix& targets) {
    const Matrix logits = [&] {
        const Tensor3 all = model(inputs);
        return reshape(all, {inputs.size(), model.config.vocab_size});
    }();
    return cross_entropy(logits, flat(targets)).value;
}

}  // namespace llm
