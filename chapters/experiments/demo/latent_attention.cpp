// Multi-head, grouped-query, multi-query and latent attention on the same text.
#include "chapters/19_latent_attention/attention_cost.hpp"
#include "chapters/19_latent_attention/latent_attention_backward.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

constexpr std::size_t seq_len = 128;

struct Variant {
    std::string name;
    std::size_t num_key_value_heads = 4;  // without latent attention
    std::optional<LatentSizes> latent = std::nullopt;
    std::size_t intermediate_size = 176;
};

LatentSizes latent_sizes(std::size_t kv_lora_rank, std::size_t qk_rope_head_dim) {
    return {64, 4, std::nullopt, kv_lora_rank, 16, qk_rope_head_dim, 16};
}

Config config_of(const Variant& variant, std::size_t vocab_size) {
    Config config = small_config(vocab_size, 256);
    config.num_key_value_heads = variant.num_key_value_heads;
    config.intermediate_size = variant.intermediate_size;
    return config;
}

AttentionCost cost_of(const Variant& variant) {
    return variant.latent ? attention_cost(*variant.latent, seq_len)
                          : attention_cost(config_of(variant, 1), seq_len);
}

// Four layers as they are, and each with an MLP whose width makes its parameters those of the
// layer with multi-head attention.
std::vector<Variant> make_variants() {
    std::vector<Variant> variants = {{"multi-head", 4},
                                     {"grouped-query", 2},
                                     {"multi-query", 1},
                                     {"latent, 64 cached", 4, latent_sizes(48, 16)},
                                     {"latent, 32 cached", 4, latent_sizes(24, 8)}};
    const std::uint64_t parameters = cost_of(variants[0]).parameters + 3 * 64 * 176;
    const std::size_t count = variants.size();
    for (std::size_t v = 1; v < count; ++v) {
        Variant equal = variants[v];
        equal.name += ", equal parameters";
        equal.intermediate_size = (parameters - cost_of(equal).parameters) / (3 * 64);
        variants.push_back(equal);
    }
    return variants;
}

double run_variant(const Variant& variant, const Dataset& dataset, std::size_t vocab_size,
                   const TrainingArguments& args) {
    Generator generator(args.seed);
    const Config config = config_of(variant, vocab_size);
    if (variant.latent)
        return train_and_evaluate(make_latent_decoder(config, *variant.latent, generator),
                                  dataset, args, generator);
    return train_and_evaluate(make_model(config, generator), dataset, args, generator);
}

}  // namespace

void compare_latent_attention(const std::vector<Id>& tokens, std::size_t vocab_size,
                              std::size_t num_steps, std::size_t num_seeds) {
    const Dataset dataset = train_validation_split(tokens, seq_len);
    const std::vector<Variant> variants = make_variants();
    step("Attention with caches of different sizes, on the same text");
    std::vector<double> losses(variants.size() * num_seeds);
    run_all(losses.size(), [&](std::size_t i) {
        losses[i] = run_variant(
            variants[i / num_seeds], dataset, vocab_size,
            small_run_arguments(seq_len, num_steps, std::uint32_t(1 + i % num_seeds)));
    });
    std::vector<TableRow> rows;
    for (std::size_t v = 0; v < variants.size(); ++v) {
        const auto begin = losses.begin() + std::ptrdiff_t(v * num_seeds);
        const AttentionCost cost = cost_of(variants[v]);
        rows.push_back({variants[v].name, to_text(cost.cached_numbers),
                        with_commas(cost.parameters), to_text(variants[v].intermediate_size),
                        mean_and_spread({begin, begin + std::ptrdiff_t(num_seeds)})});
    }
    show_table({"attention", "cached", "parameters", "F", "validation loss"}, rows);
}

}  // namespace llm
