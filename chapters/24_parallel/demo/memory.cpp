#include "chapters/24_parallel/demo/memory.hpp"

#include "chapters/24_parallel/demo/published_configs.hpp"
#include "chapters/24_parallel/training_memory.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

const std::vector<std::pair<std::string, ZeroStage>> stages = {
    {"0: nothing", ZeroStage::none},
    {"1: moving averages", ZeroStage::optimizer_states},
    {"2: and gradients", ZeroStage::gradients},
    {"3: and parameters", ZeroStage::parameters}};

constexpr BytesPerParameter mixed_precision = {2, 2, 12};

std::string gigabytes(std::uint64_t bytes) {
    const double number = double(bytes) / 1e9;
    return number < 100 ? fixed(number, 1) : with_commas(static_cast<std::uint64_t>(number));
}

// The numbers that rank 0 of 4 keeps, counted in its shards and moving averages.
std::vector<std::uint64_t> counted_numbers(const Config& config, ZeroStage stage) {
    TrainingArguments args;
    Generator generator(77);
    const Model model = make_model(config, generator);
    std::vector<std::uint64_t> counts(3);
    run_ranks(4, [&](Communicator& ranks) {
        Model whole = model;
        const std::uint64_t all = num_elements(named_parameters(whole));
        std::vector<std::uint64_t> own = {all, all, 2 * all};
        if (stage != ZeroStage::none) {
            const TrainerState state = make_sharded_optimizer(ranks, model, args);
            own[2] = 0;
            for (const std::vector<Real>& piece : state.optimizer.exp_avg)
                own[2] += 2 * piece.size();
        }
        if (stage >= ZeroStage::gradients) {
            ShardedModel sharded(ranks, model, stage);
            own[1] = num_elements(sharded.gradient_shard());
            if (stage == ZeroStage::parameters)
                own[0] = num_elements(sharded.parameter_shard());
        }
        if (ranks.rank() == 0) counts = own;
    });
    return counts;
}

}  // namespace

void memory_of_ranks() {
    step("What rank 0 of 4 keeps of a model, in numbers, counted");
    Config config = mini_llm_config();
    config.hidden_size = 64;
    config.intermediate_size = 192;
    config.num_hidden_layers = 4;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 512;
    config = validate_model(config);
    std::vector<TableRow> rows;
    for (const auto& [name, stage] : stages) {
        const std::vector<std::uint64_t> counts = counted_numbers(config, stage);
        const std::uint64_t bytes = 4 * (counts[0] + counts[1] + counts[2]);
        const TrainingMemory memory = training_memory(config, stage, 4);
        const double whole = double(training_memory(config, ZeroStage::none, 1).kept());
        rows.push_back({name, with_commas(counts[0]), with_commas(counts[1]),
                        with_commas(counts[2]), bytes == memory.kept() ? "true" : "false",
                        fixed(double(memory.kept()) / whole, 2),
                        fixed(double(memory.peak()) / whole, 2)});
    }
    show_table({"sharded", "parameters", "gradients", "averages", "as formula", "kept", "peak"},
               rows);
}

void memory_of_published_models() {
    step("GB of each rank for published models, in mixed precision");
    std::vector<TableRow> rows;
    for (const auto& [option, name, config] : published_configs())
        for (const std::size_t num_ranks : {8, 64, 512}) {
            TableRow row = {name, to_text(num_ranks)};
            for (const auto& stage : stages)
                row.push_back(gigabytes(
                    training_memory(config, stage.second, num_ranks, mixed_precision).peak()));
            rows.push_back(row);
        }
    show_table({"model", "ranks", "stage 0", "stage 1", "stage 2", "stage 3"}, rows);

    LinePlot panel{"Llama 3.1 8B in mixed precision", "ranks", "GB of each rank", {}};
    for (const auto& [name, stage] : stages) {
        Line line{name, {}, {}};
        for (std::size_t n = 1; n <= 256; n *= 2) {
            line.x.push_back(double(n));
            line.y.push_back(
                double(training_memory(published_configs()[1].config, stage, n, mixed_precision)
                           .peak()) /
                1e9);
        }
        panel.lines.push_back(line);
    }
    panel.lines.push_back({"80 GB: one H100", {1, 256}, {80, 80}, LineStyle::reference});
    panel.log_x = true;
    plot("memory", {panel});
}

}  // namespace llm
