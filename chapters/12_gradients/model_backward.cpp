#include "chapters/12_gradients/model_backward.hpp"

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/norms_backward.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

Tensor3 model_forward(const Model& model, const IdMatrix& input_ids, ModelActivations& saved,
                      Generator* dropout_generator) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const AttentionInputs inputs =
        causal_attention_inputs(model.rotary_table(seq_len), batch_size, seq_len);
    return model_forward(model, input_ids, inputs, saved, dropout_generator);
}

Tensor3 model_forward(const Model& model, const IdMatrix& input_ids,
                      const AttentionInputs& attention_inputs, ModelActivations& saved,
                      Generator* dropout_generator) {
    const Tensor3 embeddings = model.embed(input_ids);  // (B, T, C)
    saved.input_ids = input_ids;
    saved.attention_inputs = attention_inputs;

    // Run the layers with the loop of chapter 09; each saves its activations.
    saved.layers.resize(model.layers.size());
    std::vector<SavingLayer<PreNormBlock, BlockActivations>> layers;
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        layers.push_back({&model.layers[n], &saved.layers[n], dropout_generator});
    saved.last_hidden_state =
        run_layers(layers, embeddings, saved.attention_inputs).last_hidden_state;

    saved.normalized = model.norm(saved.last_hidden_state);
    return model.logits(saved.last_hidden_state);  // (B, T, V)
}

void model_backward(const Model& model, const ModelActivations& saved,
                    const Tensor3& logits_gradient, Model& gradient) {
    // The LM head. If it is tied, its gradient is accumulated in that of the embedding.
    Matrix& head_gradient = model.lm_head ? *gradient.lm_head : gradient.embed_tokens;
    const Tensor3 normalized_gradient =
        lm_head_backward(model.head(), saved.normalized, logits_gradient, head_gradient);
    Tensor3 hidden_gradient =
        norm_backward(model.norm, saved.last_hidden_state, normalized_gradient, gradient.norm);

    // The layers, last to first.
    for (std::size_t n = model.layers.size(); n-- > 0;)
        hidden_gradient = block_backward(model.layers[n], saved.attention_inputs,
                                         saved.layers[n], hidden_gradient, gradient.layers[n]);
    embedding_backward(saved.input_ids, hidden_gradient, gradient.embed_tokens);
}

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

double forward_backward(const Model& model, const IdMatrix& input_ids, const IdMatrix& targets,
                        Model& gradient, Generator* dropout_generator) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const AttentionInputs inputs =
        causal_attention_inputs(model.rotary_table(seq_len), batch_size, seq_len);
    return forward_backward(model, input_ids, targets, inputs, gradient, dropout_generator);
}

double forward_backward(const Model& model, const IdMatrix& input_ids, const IdMatrix& targets,
                        const AttentionInputs& attention_inputs, Model& gradient,
                        Generator* dropout_generator) {
    ModelActivations saved;
    const Tensor3 logits =
        model_forward(model, input_ids, attention_inputs, saved, dropout_generator);
    const double loss = cross_entropy(logits, targets);
    model_backward(model, saved, cross_entropy_backward(logits, targets), gradient);
    return loss;
}

double evaluate_loss(const Model& model, const IdMatrix& input_ids, const IdMatrix& targets) {
    return cross_entropy(model(input_ids), targets);
}

double evaluate_loss(const Model& model, const IdMatrix& input_ids, const IdMatrix& targets,
                     const AttentionInputs& attention_inputs) {
    const DecoderOutput decoder =
        run_layers(model.layers, model.embed(input_ids), attention_inputs);
    return cross_entropy(model.logits(decoder.last_hidden_state), targets);
}

}  // namespace llm
