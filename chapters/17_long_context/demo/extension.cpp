// The demos of chapter 17 about RoPE beyond the context of training.
#include <numbers>

#include "chapters/17_long_context/demo/demo.hpp"
#include "chapters/17_long_context/loss_by_position.hpp"
#include "common/output/plot.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

struct NamedExtension {
    std::string name;
    RopeExtension extension;
};
const std::vector<NamedExtension> extensions = {
    {"none", RopeExtension::none},
    {"position interpolation", RopeExtension::position_interpolation},
    {"NTK-aware", RopeExtension::ntk_aware},
    {"Llama 3's", RopeExtension::llama3},
    {"YaRN", RopeExtension::yarn}};

// The mean loss in each part of the context that is as long as that of training: (factor).
// Up to max_sequences adjacent sequences of P tokens are evaluated.
std::vector<double> loss_by_part(const Model& given, const RotaryTable& rotary_table,
                                 const std::vector<Id>& tokens, std::size_t part_len,
                                 std::size_t max_sequences) {
    const std::size_t num_positions = rotary_table.cos.shape(0);  // P
    const std::size_t num_sequences =
        std::min(max_sequences, (tokens.size() - 1) / num_positions);
    Model model = given;
    model.config.max_position_embeddings = num_positions;
    Matrix losses = xt::zeros<Real>({num_sequences, num_positions});
    parallel_for(num_sequences, [&](std::size_t n) {
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

// A table of losses by part of the context, and its lines.
struct Comparison {
    std::vector<TableRow> rows;
    std::vector<Line> lines;

    void add(const std::string& name, const std::vector<double>& losses) {
        TableRow row = {name};
        Line line{name, {}, losses};
        for (std::size_t part = 0; part < losses.size(); ++part) {
            row.push_back(fixed(losses[part], 2));
            line.x.push_back(double(part + 1));
        }
        rows.push_back(row);
        lines.push_back(line);
    }
    void show(std::size_t part_len) const {
        TableRow headings = {"positions up to"};
        for (std::size_t part = 1; part < rows[0].size(); ++part)
            headings.push_back(to_text(part * part_len - 1));
        show_table(headings, rows);
    }
};

}  // namespace

void frequencies_of_pairs(const Config& config, std::size_t factor) {
    step("What each extension divides the frequencies by");
    const Vector original = inverse_frequencies(config.head_dim, config.rope_theta);  // (D/2)
    const double context = double(config.max_position_embeddings);
    std::vector<Line> lines;
    std::vector<TableRow> rows(original.size());
    for (std::size_t i = 0; i < original.size(); ++i)
        rows[i] = {to_text(i),
                   fixed(context * double(original(i)) / (2 * std::numbers::pi), 2)};
    for (const auto& [name, extension] : extensions) {
        if (extension == RopeExtension::none) continue;
        const Vector frequencies = extended_frequencies(config, extension, factor);  // (D/2)
        Line line{name, {}, {}};
        for (std::size_t i = 0; i < original.size(); ++i) {
            const double divisor = double(original(i) / frequencies(i));
            rows[i].push_back(fixed(divisor, 2));
            line.x.push_back(double(i));
            line.y.push_back(divisor);
        }
        lines.push_back(line);
    }
    show_table({"pair", "rotations", "interpolation", "NTK-aware", "Llama 3's", "YaRN"}, rows);
    plot("frequencies", {LinePlot{"Divisor of the frequency", "pair", "divisor", lines}});
}

void loss_beyond_the_context(const Model& model, const std::vector<Id>& tokens,
                             std::size_t factor, std::size_t num_sequences) {
    step("Loss by position, from 1 to " + to_text(factor) + " times the trained context");
    const std::size_t part_len = model.config.max_position_embeddings;
    Comparison comparison;
    for (const auto& [name, extension] : extensions)
        comparison.add(
            name, loss_by_part(model, extended_rotary_table(model.config, extension, factor),
                               tokens, part_len, num_sequences));
    comparison.show(part_len);
    plot("extension", {LinePlot{"Loss beyond the context", "position / trained context", "loss",
                                comparison.lines}});
}

void fine_tune_on_longer_sequences(const Model& model, const std::vector<Id>& tokens,
                                   const ExtensionRuns& runs, std::size_t num_steps) {
    const InterruptHandler interrupt_handler;
    const std::size_t part_len = model.config.max_position_embeddings;
    const std::size_t num_positions = runs.factor * part_len;
    const Dataset dataset = train_validation_split(tokens, num_positions);
    step("Fine-tuning for " + to_text(num_steps) + " steps with sequences of " +
         to_text(runs.seq_len));
    TrainingArguments args;
    args.batch_size = 2;
    args.seq_len = runs.seq_len;
    args.lr_schedule = {Real(3e-4), Real(3e-5), num_steps / 10, num_steps};
    std::vector<Model> models(extensions.size(), model);
    parallel_for(
        models.size(),
        [&](std::size_t i) {
            fine_tune(models[i],
                      extended_rotary_table(model.config, extensions[i].extension, runs.factor),
                      args, dataset.train);
        },
        [&](std::size_t done) {
            show_progress("run " + to_text(done) + " of " + to_text(models.size()));
        });
    show_progress("");
    Comparison comparison;
    for (std::size_t i = 0; i < extensions.size(); ++i) {
        const RotaryTable table =
            extended_rotary_table(model.config, extensions[i].extension, runs.factor);
        comparison.add(extensions[i].name,
                       loss_by_part(models[i], table, dataset.validation, part_len, 16));
    }
    comparison.show(part_len);
    plot("fine_tuning", {LinePlot{"After fine-tuning", "position / trained context", "loss",
                                  comparison.lines}});
}

}  // namespace llm
