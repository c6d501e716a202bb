// MoE models against dense models.
#include "chapters/18_experts/moe_training.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/parameter_count.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
using namespace runs;

using namespace models;

namespace {

constexpr std::size_t seq_len = 128, layer_shown = 2;

struct Variant {
    std::string name;
    std::size_t intermediate_size = 176;  // of a dense MLP
    ExpertSizes sizes;                    // no experts: dense
    BalanceArguments balance;
    bool sigmoid_routing = false;
    std::optional<double> capacity_factor = std::nullopt;
};

// Two of eight experts, and four of sixteen half as large, are multiplied by as many parameters
// as a dense MLP of 176; all of them together have as many as one of 704.
std::vector<Variant> make_variants() {
    const ExpertSizes coarse{8, 2, 88, 0}, fine{16, 4, 44, 0}, shared{15, 3, 44, 1};
    const BalanceArguments none, aux{{Real(0.01), 0}, 0}, bias{{}, Real(0.001)};
    return {{"dense, equal active size", 176, {}, none},
            {"dense, equal total size", 704, {}, none},
            {"2 of 8, no balancing", 0, coarse, none},
            {"2 of 8, auxiliary loss", 0, coarse, aux},
            {"2 of 8, bias update", 0, coarse, bias, true},
            {"2 of 8, capacity factor 1", 0, coarse, aux, false, 1.0},
            {"4 of 16, auxiliary loss", 0, fine, aux},
            {"1 shared and 3 of 15", 0, shared, aux}};
}
constexpr std::size_t saved_variant = 3;

Config config_of(const Variant& variant, std::size_t vocab_size) {
    Config config = small_config(vocab_size, 256);
    if (variant.intermediate_size > 0) config.intermediate_size = variant.intermediate_size;
    return config;
}

struct Result {
    MoeDecoder decoder;
    MoeRun run;
    double validation_loss = 0, violation = 0;  // MaxVio on held-out text, a mean over layers
};

Result train_variant(const Variant& variant, const Dataset& dataset, std::size_t vocab_size,
                     const TrainingArguments& args) {
    Generator generator(args.seed);
    const Routing routing =
        variant.sigmoid_routing
            ? Routing{SigmoidRouting{xt::zeros<Real>({variant.sizes.num_experts})}}
            : Routing{SoftmaxRouting{}};
    Result result;
    result.decoder =
        make_moe_decoder(config_of(variant, vocab_size), variant.sizes, routing, generator);
    set_capacity_factor(result.decoder, variant.capacity_factor);
    result.run = train_moe(result.decoder, args, variant.balance, dataset.train, generator);
    set_capacity_factor(result.decoder, std::nullopt);
    const auto batches = evaluation_batches(dataset.validation, 16, seq_len, 16);
    result.validation_loss = mean_cross_entropy(result.decoder, batches);
    if (variant.sizes.num_experts == 0) return result;
    for (const RoutedTokens& routed : routed_tokens(result.decoder, batches[0].input_ids))
        result.violation +=
            max_violation(expert_load(routed.experts, variant.sizes.num_experts)) /
            double(result.decoder.layers.size());
    return result;
}

ParametersByPart count_of(const Variant& variant, std::size_t vocab_size) {
    FamilyConfig config = config_with(mixtral_family(), config_of(variant, vocab_size));
    if (variant.sizes.num_experts > 0) {
        const MoeConfig moe = make_experts(config, variant.sizes, SoftmaxRouting{});
        for (LayerConfig& layer : config.layers) layer.mlp = moe;
    }
    return count_parameters(config);
}

// The load of each expert in one layer, as means over fiftieths of the run, and as references
// the largest possible load, 1/K, and that of a balanced router, 1/E.
LinePlot load_over_steps(const Variant& variant, const MoeRun& run) {
    const std::size_t num_steps = run.load.size(), num_experts = variant.sizes.num_experts;
    const double largest = 1 / double(variant.sizes.num_experts_per_tok);
    const std::vector<double> ends = {0, double(num_steps)};
    LinePlot plot{variant.name, "step", "load of each expert", {}};
    plot.high = 0.55;
    const std::size_t width = std::max<std::size_t>(1, num_steps / 50);
    for (std::size_t e = 0; e < num_experts; ++e) {
        Line line{to_text(e), {}, {}};
        for (std::size_t step = 0; step + width <= num_steps; step += width) {
            double sum = 0;
            for (std::size_t i = step; i < step + width; ++i)
                sum += double(run.load[i][layer_shown](e)) / double(width);
            line.x.push_back(double(step + width / 2));
            line.y.push_back(sum);
        }
        plot.lines.push_back(line);
    }
    for (const double load : {largest, 1 / double(num_experts)})
        plot.lines.push_back({"", ends, {load, load}, LineStyle::reference});
    return plot;
}

}  // namespace

void compare_experts(const std::vector<Id>& tokens, std::size_t vocab_size,
                     std::size_t num_steps, std::size_t num_seeds,
                     const std::string& save_folder) {
    const Dataset dataset = train_validation_split(tokens, seq_len);
    const std::vector<Variant> variants = make_variants();
    step("MoE models against dense models, on the same text");
    std::vector<Result> results(variants.size() * num_seeds);
    run_all(results.size(), [&](std::size_t i) {
        results[i] = train_variant(
            variants[i / num_seeds], dataset, vocab_size,
            small_run_arguments(seq_len, num_steps, std::uint32_t(1 + i % num_seeds)));
    });
    std::vector<TableRow> rows;
    std::vector<Panel> panels;
    for (std::size_t v = 0; v < variants.size(); ++v) {
        const std::span<const Result> of_variant{results.data() + v * num_seeds, num_seeds};
        const ParametersByPart count = count_of(variants[v], vocab_size);
        const bool moe = variants[v].sizes.num_experts > 0;
        rows.push_back({variants[v].name, with_commas(count.total()),
                        with_commas(count.active()),
                        mean_and_spread(of_variant, &Result::validation_loss),
                        moe ? mean_and_spread(of_variant, &Result::violation) : ""});
        if (v >= 2 && v <= 4) panels.push_back(load_over_steps(variants[v], of_variant[0].run));
    }
    show_table({"model", "parameters", "active", "validation loss", "MaxVio"}, rows);
    for (std::size_t v = 0; v < variants.size(); ++v)
        if (variants[v].capacity_factor)
            show("% of the choices dropped, " + variants[v].name,
                 100 * results[v * num_seeds].run.dropped);
    plot("load", panels);
    if (save_folder.empty()) return;
    const Result& saved = results[saved_variant * num_seeds];
    models::export_model(make_mixtral(saved.decoder), save_folder, DType::bfloat16);
    show("saved to", save_folder);
}

}  // namespace llm
