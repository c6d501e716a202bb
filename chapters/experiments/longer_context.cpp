#include "chapters/experiments/longer_context.hpp"

#include "chapters/13_training/training_loop.hpp"

namespace llm {

void train_on_longer_sequences(Model& model, const RotaryTable& rotary_table,
                               const TrainingArguments& args, const std::vector<Id>& tokens) {
    // Positions beyond those of the configuration are those of the table.
    model.config.max_position_embeddings = rotary_table.cos.shape(0);
    const AttentionInputs inputs =
        causal_attention_inputs(rotary_table, args.batch_size, args.seq_len);
    Generator generator(args.seed);
    run_training_loop<Model>(model, args, [&](Model& gradient) {
        const Batch batch = random_batch(tokens, args.batch_size, args.seq_len, generator);
        return forward_backward(model, batch.input_ids, batch.targets, inputs, gradient);
    });
}

}  // namespace llm
