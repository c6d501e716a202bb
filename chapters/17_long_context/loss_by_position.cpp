#include "chapters/17_long_context/loss_by_position.hpp"

#include <algorithm>

#include "chapters/13_training/data.hpp"
#include "chapters/14_fine_tuning/log_probs.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

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

std::vector<double> loss_by_part(const Model& given, const RotaryTable& rotary_table,
                                 const std::vector<Id>& tokens, std::size_t part_len,
                                 std::size_t max_sequences) {
    const std::size_t num_positions = rotary_table.cos.shape(0);  // P
    require(part_len > 0 && num_positions % part_len == 0 && tokens.size() > num_positions,
            "loss_by_part: parts of {} and {} tokens do not match {} positions", part_len,
            tokens.size(), num_positions);
    const std::size_t num_sequences =
        std::min(max_sequences, (tokens.size() - 1) / num_positions);
    Model model = given;
    model.config.max_position_embeddings = num_positions;
    Matrix losses = xt::zeros<Real>({num_sequences, num_positions});
    parallel_for(num_sequences, [&](std::size_t n) {
        InterruptHandler::throw_if_interrupted();
        const Batch batch = batch_at(tokens, {n * num_positions}, num_positions);
        xt::view(losses, n, xt::all()) =
            loss_by_position(model, rotary_table, batch.input_ids, batch.targets);
    });
    std::vector<double> parts(num_positions / part_len);
    for (std::size_t n = 0; n < num_sequences; ++n)
        for (std::size_t t = 0; t < num_positions; ++t)
            parts[t / part_len] += double(losses(n, t)) / double(num_sequences * part_len);
    return parts;
}

}  // namespace llm
