// Extensions of RoPE, after training on longer sequences, with and without the longer context.
#include "chapters/17_long_context/demo/loss_by_part.hpp"
#include "chapters/17_long_context/loss_by_position.hpp"
#include "chapters/17_long_context/rope_extension.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "chapters/experiments/longer_context.hpp"

namespace llm {
namespace {

RotaryTable first_positions(const RotaryTable& table, std::size_t num_positions) {
    return {xt::view(table.cos, xt::range(0, num_positions), xt::all()),
            xt::view(table.sin, xt::range(0, num_positions), xt::all())};
}

}  // namespace

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
    constexpr std::size_t num_sequences = 16;
    const std::vector<NamedExtension>& extensions = rope_extensions();
    const auto table_of = [&](std::size_t i) {
        return extended_rotary_table(model.config, extensions[i].extension, runs.factor);
    };
    const auto parts_of = [&](const Model& trained, const RotaryTable& table) {
        return loss_by_part(trained, table, dataset.validation, part_len,
                            num_sequences * num_positions / table.cos.shape(0));
    };
    struct Run {
        std::vector<double> parts;    // the loss of each part of the context
        double whole = 0, fresh = 0;  // the mean, and that with a new context for each part
    };
    std::vector<Run> results(extensions.size() * runs.num_seeds);
    run_all(results.size(), [&](std::size_t i) {
        const RotaryTable table = table_of(i / runs.num_seeds);
        TrainingArguments args_of_run = args;
        args_of_run.seed = std::uint32_t(1 + i % runs.num_seeds);
        Model trained = model;
        train_on_longer_sequences(trained, table, args_of_run, dataset.train);
        const std::vector<double> parts = parts_of(trained, table);
        results[i] = {parts, mean_of(parts),
                      mean_of(parts_of(trained, first_positions(table, part_len)))};
    });
    LossByPart comparison;
    std::vector<TableRow> rows;
    for (std::size_t e = 0; e < extensions.size(); ++e) {
        const std::span<const Run> of_seeds(&results[e * runs.num_seeds], runs.num_seeds);
        comparison.add(extensions[e].name, of_seeds.front().parts);
        rows.push_back({extensions[e].name, fixed(mean_of(parts_of(model, table_of(e))), 2),
                        mean_and_spread(of_seeds, &Run::whole, 1, 2),
                        mean_and_spread(of_seeds, &Run::fresh, 1, 2)});
    }
    comparison.show(part_len);
    show_table({"mean loss", "before", "after", "after, each " + to_text(part_len) + " alone"},
               rows);
    plot("fine_tuning", {LinePlot{"After fine-tuning", "position / trained context", "loss",
                                  comparison.lines}});
}

}  // namespace llm
