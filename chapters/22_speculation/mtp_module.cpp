#include "chapters/22_speculation/mtp_module.hpp"

namespace llm {

MtpModule make_mtp_module(const Config& target, Generator& generator) {
    Config config = target;
    config.num_hidden_layers = 1;
    Model model = make_model(config, generator);
    init_normal(model, Real(0.02), generator);
    const std::size_t hidden_size = config.hidden_size;
    Linear fc{randn({hidden_size, 2 * hidden_size}, generator) * Real(0.02), std::nullopt};
    return {model.norm, model.norm, std::move(fc), std::move(model.layers[0]), model.norm};
}

std::vector<Parameter> named_parameters(MtpModule& module) {
    ParameterList list;
    add_parameters(list, "mtp.pre_fc_norm_embedding", module.pre_fc_norm_embedding);
    add_parameters(list, "mtp.pre_fc_norm_hidden", module.pre_fc_norm_hidden);
    add_parameters(list, "mtp.fc", module.fc);
    add_parameters(list, "mtp.layers.0", module.layer);
    add_parameters(list, "mtp.norm", module.norm);
    return list;
}

ForwardPass<MtpActivations> mtp_forward(const MtpModule& module, const Tensor3& embeddings,
                                        const Tensor3& hidden_states,
                                        const AttentionInputs& attention_inputs) {
    // Normalize both inputs, join them, and project 2C features to C.
    const Tensor3 normalized_embeddings = module.pre_fc_norm_embedding(embeddings);
    const Tensor3 normalized_states = module.pre_fc_norm_hidden(hidden_states);
    Tensor3 joined =  // (B, T, 2C)
        xt::concatenate(xt::xtuple(normalized_embeddings, normalized_states), 2);
    const Tensor3 projected = module.fc(joined);  // (B, T, C)

    // Apply the layer and the norm.
    auto [last_hidden_state, layer] = block_forward(module.layer, projected, attention_inputs);
    Tensor3 output = module.norm(last_hidden_state);  // (B, T, C)
    return {std::move(output),
            {embeddings, hidden_states, std::move(joined), attention_inputs, std::move(layer),
             std::move(last_hidden_state)}};
}

void mtp_backward(const MtpModule& module, const MtpActivations& saved,
                  const Tensor3& output_gradient, MtpModule& gradient) {
    // The norm and the layer.
    const Tensor3 hidden_gradient =  // (B, T, C)
        norm_backward(module.norm, saved.last_hidden_state, output_gradient, gradient.norm);
    const Tensor3 projected_gradient =  // (B, T, C)
        block_backward(module.layer, saved.attention_inputs, saved.layer, hidden_gradient,
                       gradient.layer);

    // The projection, and the norms of the two halves of its input.
    const Tensor3 joined_gradient =  // (B, T, 2C)
        linear_backward(module.fc, saved.joined, projected_gradient, gradient.fc);
    const std::size_t hidden_size = saved.embeddings.shape(2);
    const Tensor3 embedding_half =  // (B, T, C)
        xt::view(joined_gradient, xt::all(), xt::all(), xt::range(0, hidden_size));
    const Tensor3 hidden_half =  // (B, T, C)
        xt::view(joined_gradient, xt::all(), xt::all(),
                 xt::range(hidden_size, 2 * hidden_size));
    norm_backward(module.pre_fc_norm_embedding, saved.embeddings, embedding_half,
                  gradient.pre_fc_norm_embedding);
    norm_backward(module.pre_fc_norm_hidden, saved.hidden_states, hidden_half,
                  gradient.pre_fc_norm_hidden);
}

MtpBatch make_mtp_batch(const Model& target, const IdMatrix& input_ids,
                        const IdMatrix& next_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    require(seq_len >= 2, "multi-token prediction: a sequence needs at least 2 tokens");
    const RotaryTable table = target.rotary_table(seq_len);
    const DecoderOutput decoder =
        run_layers(target.layers, target.embed(input_ids),
                   causal_attention_inputs(table, batch_size, seq_len));
    const Tensor3 normalized = target.norm(decoder.last_hidden_state);  // (B, T, C)

    // next_ids has x_{t+1} at position t, and so x_{t+2} at position t + 1.
    const IdMatrix read_ids =  // (B, T - 1)
        xt::view(next_ids, xt::all(), xt::range(0, seq_len - 1));
    const IdMatrix targets =  // (B, T - 1)
        xt::view(next_ids, xt::all(), xt::range(1, seq_len));
    const Tensor3 hidden_states =  // (B, T - 1, C)
        xt::view(normalized, xt::all(), xt::range(0, seq_len - 1), xt::all());
    return {hidden_states, target.embed(read_ids), targets,
            causal_attention_inputs(table, batch_size, seq_len - 1)};
}

Tensor3 mtp_logits(const MtpModule& module, const Model& target, const MtpBatch& batch) {
    const Tensor3 output =
        mtp_forward(module, batch.embeddings, batch.hidden_states, batch.attention_inputs)
            .output;
    return lm_head(target.head(), output);
}

double forward_backward(const MtpModule& module, const Model& target, const MtpBatch& batch,
                        MtpModule& gradient) {
    const auto [output, saved] =
        mtp_forward(module, batch.embeddings, batch.hidden_states, batch.attention_inputs);
    const Tensor3 logits = lm_head(target.head(), output);  // (B, T - 1, V)

    // The head is frozen: the gradient goes through it to its input.
    const auto [batch_size, seq_len, vocab_size] = dims(logits);
    const Matrix logits_gradient = reshape(cross_entropy_backward(logits, batch.targets),
                                           {batch_size * seq_len, vocab_size});
    const Matrix output_gradient = matmul(logits_gradient, target.head());  // (N, C)
    mtp_backward(module, saved,
                 reshape(output_gradient, {batch_size, seq_len, output.shape(2)}), gradient);
    return cross_entropy(logits, batch.targets);
}

}  // namespace llm
