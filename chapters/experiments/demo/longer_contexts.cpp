// Extensions of RoPE, after training on longer sequences.
#include "chapters/17_long_context/demo/loss_by_part.hpp"
#include "chapters/17_long_context/loss_by_position.hpp"
#include "chapters/17_long_context/rope_extension.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "chapters/experiments/longer_context.hpp"

namespace llm {

void compare_longer_contexts(const Model& model, const std::vector<Id>& tokens,
                             const LongerContexts& runs) {
    const std::size_t part_len = model.config.max_position_embeddings;
    const std::size_t num_positions = runs.factor * part_len;
    require(runs.seq_len <= num_positions, "--train-len {} exceeds {} times the context of {}",
            runs.seq_len, runs.factor, part_len);
    const Dataset dataset = train_validation_split(tokens, num_positions);
    step("Fine-tuning for " + to_text(runs.num_steps) + " steps with sequences of " +
         to_text(runs.seq_len));
    TrainingArguments args;
    args.batch_size = 2;
    args.seq_len = runs.seq_len;
    args.lr_schedule = {Real(3e-4), Real(3e-5), runs.num_steps / 10, runs.num_steps};
    const std::vector<NamedExtension>& extensions = rope_extensions();
    const auto table_of = [&](std::size_t i) {
        return extended_rotary_table(model.config, extensions[i].extension, runs.factor);
    };
    std::vector<Model> models(extensions.size(), model);
    run_all(models.size(), [&](std::size_t i) {
        train_on_longer_sequences(models[i], table_of(i), args, dataset.train);
    });
    LossByPart comparison;
    for (std::size_t i = 0; i < extensions.size(); ++i)
        comparison.add(extensions[i].name,
                       loss_by_part(models[i], table_of(i), dataset.validation, part_len, 16));
    comparison.show(part_len);
    plot("fine_tuning", {LinePlot{"After fine-tuning", "position / trained context", "loss",
                                  comparison.lines}});
}

}  // namespace llm
