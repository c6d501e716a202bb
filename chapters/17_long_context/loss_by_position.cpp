#include "chapters/17_long_context/loss_by_position.hpp"

#include "chapters/14_fine_tuning/log_probs.hpp"

namespace llm {

Vector loss_by_position(const Tensor3& logits, const IdMatrix& targets) {
    const Matrix log_probs = token_log_probs(logits, targets);  // (B, T)
    const auto [batch_size, seq_len] = dims(log_probs);
    Vector losses = xt::zeros<Real>({seq_len});  // (T)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t) losses(t) -= log_probs(b, t);
    return losses / static_cast<Real>(batch_size);
}

Vector loss_by_position(const Model& model, const RotaryTable& rotary_table,
                        const IdMatrix& input_ids, const IdMatrix& targets) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const AttentionInputs inputs = causal_attention_inputs(rotary_table, batch_size, seq_len);
    const DecoderOutput output = run_layers(model.layers, model.embed(input_ids), inputs);
    return loss_by_position(model.logits(output.last_hidden_state), targets);
}

}  // namespace llm
