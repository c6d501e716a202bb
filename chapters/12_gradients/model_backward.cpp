#include "chapters/12_gradients/model_backward.hpp"

#include "common/tensors/matmul.hpp"

namespace llm {

Tensor3 lm_head_backward(const Matrix& weight, const Tensor3& hidden_states,
                         const Tensor3& logits_gradient, Matrix& gradient) {
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
    const std::size_t num_rows = batch_size * seq_len, vocab_size = weight.shape(0);
    const Matrix hidden_rows = reshape(hidden_states, {num_rows, hidden_size});
    const Matrix gradient_rows = reshape(logits_gradient, {num_rows, vocab_size});

    // linear_backward without a bias.
    accumulate_product(gradient, gradient_rows, hidden_rows);  // (V, C)
    Matrix hidden_gradient = matmul(gradient_rows, weight);    // (B*T, C)
    return reshape(std::move(hidden_gradient), {batch_size, seq_len, hidden_size});
}

Matrix logit_softcap_backward(const Matrix& capped, Real cap, const Matrix& output_gradient) {
    // d tanh(x) / dx = 1 - tanh(x)²; the cap outside and 1/cap inside cancel.
    const Matrix tanh = capped / cap;
    return output_gradient - output_gradient * tanh * tanh;
}

Tensor3 logit_softcap_backward(const Tensor3& capped, Real cap,
                               const Tensor3& output_gradient) {
    const Tensor3 tanh = capped / cap;
    return output_gradient - output_gradient * tanh * tanh;
}

double evaluate_loss(const Model& model, const IdMatrix& input_ids, const IdMatrix& targets,
                     const AttentionInputs& attention_inputs) {
    const DecoderOutput decoder =
        run_layers(model.layers, model.embed(input_ids), attention_inputs);
    return cross_entropy(model.logits(decoder.last_hidden_state), targets);
}

}  // namespace llm
