#include "chapters/09_full_model/exercise.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 9.1 — predict: the three logits of a tiny model with C = 2 and V = 3. The residual
// stream after its last layer is (1, 7), the weight of the final norm is (10, 5), and the tied
// embedding matrix has the rows (1, 0), (0, 1) and (1, -1). Neglect epsilon.
Vector predicted_logits() {
    TODO("predicted_logits");
    // return {?, ?, ?};
}

// Exercise 9.2 — predict two losses: the first loss of a model with a vocabulary of 65,536 that
// gives every token the same probability, and the loss of a model that gives the actual next
// tokens of a text the probabilities 0.5, 0.25 and 0.125. A tolerance of 0.05 is allowed.
Vector predicted_losses() {
    TODO("predicted_losses");
    // return {?, ?};
}

// Exercise 9.3 — predict: the number of parameters of a model without biases and QK norm, with
// V = 1000, C = 64, L = 2, H = 4, Hkv = 2, D = 16 and F = 128: with a tied head, and without.
Vector predicted_parameter_counts() {
    TODO("predicted_parameter_counts");
    // return {?, ?};
}

// Exercise 9.4 — predict: in a sequence of five tokens, the token at position 2 (the third one)
// is replaced by another token. At which positions 0 to 4 do the logits change? 1: yes, 0: no.
Vector predicted_changes() {
    TODO("predicted_changes");
    // return {?, ?, ?, ?, ?};
}

// Exercise 9.5 — find the bug. The loss of the untrained model of this page is 0 with this
// function, and every model that is trained with it only learns to repeat its input.
double next_token_loss(const Tensor3& logits, const IdMatrix& input_ids) {
    const std::size_t num_predictions = logits.shape(1) - 1;
    const Matrix rows = xt::view(logits, 0);
    double sum = 0;
    for (std::size_t t = 0; t < num_predictions; ++t) {
        double exponentials = 0;
        const double highest = xt::amax(xt::view(rows, t))();
        for (std::size_t v = 0; v < rows.shape(1); ++v)
            exponentials += std::exp(double(rows(t, v)) - highest);
        const auto target = static_cast<std::size_t>(input_ids(0, t));
        sum += highest + std::log(exponentials) - double(rows(t, target));
    }
    return sum / static_cast<double>(num_predictions);
}

// Exercise 9.6 — find the bug. The logits are right for a model with one layer, and wrong for
// deeper models.
Tensor3 model_logits(const Model& model, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const AttentionInputs inputs =
        causal_attention_inputs(model.rotary_table(seq_len), batch_size, seq_len);
    Tensor3 hidden_states = model.embed(input_ids);  // (B, T, C)
    for (const PreNormBlock& layer : model.layers) {
        const Tensor3 after_layer = layer(hidden_states, inputs).hidden_states;
        hidden_states = model.norm(after_layer);
    }
    const Linear head{model.head(), std::nullopt};
    return head(hidden_states);
}

// Exercise 9.7 — write memory_bytes: all parameters, and a KV cache of num_tokens tokens. Does
// Llama-3-8B with its full context of 8192 tokens fit into 16 GiB, at two bytes per element?
std::uint64_t memory_bytes([[maybe_unused]] const Config& config,
                           [[maybe_unused]] std::size_t bytes_per_element,
                           [[maybe_unused]] std::size_t num_tokens) {
    TODO("memory_bytes");
}

// A model from an empty file: exercises 9.8 to 9.12. Use functions of chapters 01 to 08, and
// none of chapter 09 except SafeTensors::read. Each step may call those before it.

// Exercise 9.8 — write load_weights: read all tensors of the checkpoint with file.read(name,
// {sizes}). The sizes are in the configuration.
Weights load_weights([[maybe_unused]] const SafeTensors& file,
                     [[maybe_unused]] const Config& config) {
    TODO("load_weights");
}

// Exercise 9.9 — write attention_update: norm, projections, RoPE, causal grouped-query
// attention and o_proj of one layer, for the positions 0 to T - 1. The residual connection is
// not part of it.
Tensor3 attention_update([[maybe_unused]] const LayerWeights& layer,
                         [[maybe_unused]] const Config& config,
                         [[maybe_unused]] const Tensor3& hidden_states) {
    TODO("attention_update");
}

// Exercise 9.10 — write mlp_update: norm and SwiGLU of one layer, without the residual
// connection.
Tensor3 mlp_update([[maybe_unused]] const LayerWeights& layer,
                   [[maybe_unused]] const Config& config,
                   [[maybe_unused]] const Tensor3& hidden_states) {
    TODO("mlp_update");
}

// Exercise 9.11 — write next_token_logits: embedding, all layers with their residual
// connections, final norm and tied head. Apply the last two to the last position only. Throw a
// ValueError (with require) if there are no ids, or if an id is not in the vocabulary.
Vector next_token_logits([[maybe_unused]] const Weights& weights,
                         [[maybe_unused]] const Config& config,
                         [[maybe_unused]] const std::vector<Id>& ids) {
    TODO("next_token_logits");
}

// Exercise 9.12 — write greedy_ids: append the most likely token, count times, and return the
// new tokens. No cache: compute the whole sequence for each token. Throw a ValueError if the
// prompt and the new tokens together exceed max_position_embeddings.
std::vector<Id> greedy_ids([[maybe_unused]] const Weights& weights,
                           [[maybe_unused]] const Config& config,
                           [[maybe_unused]] const std::vector<Id>& prompt,
                           [[maybe_unused]] std::size_t count) {
    TODO("greedy_ids");
}

}  // namespace exercise
