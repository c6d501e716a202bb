#include "chapters/models/model_size.hpp"

#include <algorithm>

#include "chapters/17_long_context/pattern_attention.hpp"
#include "chapters/19_latent_attention/attention_cost.hpp"
#include "chapters/20_linear_attention/linear_cost.hpp"
#include "chapters/models/parameter_count.hpp"
#include "common/output/show.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {
namespace {

// Of one token and layer: two per feature of the queries and of the values. Latent attention is
// counted with expanded keys and values.
std::uint64_t flops_per_key(const FamilyConfig& config) {
    const std::uint64_t heads = config.num_attention_heads;
    if (!config.latent) return 4 * heads * config.head_dim;
    const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = *config.latent;
    return 2 * heads * (Dn + Dr + Dv);
}

// Of one token in the states of a layer with linear attention, token by token.
std::uint64_t flops_of_states(const FamilyConfig& config) {
    const LinearSizes& sizes = *config.linear;
    return sizes.num_value_heads * recurrent_flops(1, sizes.key_head_dim, sizes.value_head_dim);
}

std::string bytes(double number) {
    const std::array units = {"bytes", "kB", "MB", "GB", "TB"};
    std::size_t unit = 0;
    for (; number >= 1000 && unit + 1 < units.size(); ++unit) number /= 1000;
    return fixed(number, unit == 0 ? 0 : 2) + " " + units[unit];
}

std::string flops(double number) {
    const std::array units = {"MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs"};
    number /= 1e6;
    std::size_t unit = 0;
    for (; number >= 1000 && unit + 1 < units.size(); ++unit) number /= 1000;
    return fixed(number, 2) + " " + units[unit];
}

double bytes_per_weight(DType dtype) { return double(bytes_per_row(dtype, 256)) / 256; }

}  // namespace

std::string shared_experts_of(const ExpertSizes& experts) {
    if (experts.n_shared_experts == 0) return "";
    return ", " + (experts.n_shared_experts == 1 ? "one" : to_text(experts.n_shared_experts)) +
           " shared";
}

std::uint64_t num_attended(const AttentionPattern& pattern, std::uint64_t position) {
    const std::uint64_t all = position + 1;
    if (const auto* sliding = std::get_if<SlidingWindow>(&pattern))
        return std::min<std::uint64_t>(all, sliding->window);
    if (const auto* chunked = std::get_if<ChunkedAttention>(&pattern))
        return position % chunked->chunk_size + 1;
    if (const auto* sinks = std::get_if<SinksAndWindow>(&pattern))
        return std::min<std::uint64_t>(all, sinks->num_sinks + sinks->window);
    return all;
}

std::uint64_t flops_per_token(const FamilyConfig& config, std::uint64_t position) {
    std::uint64_t flops = 2 * count_parameters(config).active_matrix_elements;
    for (const LayerConfig& layer : config.layers)
        flops += layer.is_linear
                     ? flops_of_states(config)
                     : num_attended(layer.pattern, position) * flops_per_key(config);
    return flops;
}

double flops_of_prefill(const FamilyConfig& config, std::uint64_t seq_len) {
    double flops =
        2 * double(count_parameters(config).active_matrix_elements) * double(seq_len);
    for (const LayerConfig& layer : config.layers) {
        if (layer.is_linear) {
            flops += double(flops_of_states(config)) * double(seq_len);
            continue;
        }
        double attended = 0;
        for (std::uint64_t position = 0; position < seq_len; ++position)
            attended += double(num_attended(layer.pattern, position));
        flops += attended * double(flops_per_key(config));
    }
    return flops;
}

std::uint64_t kv_cache_bytes(const FamilyConfig& config, std::uint64_t seq_len,
                             std::uint64_t batch_size, std::size_t bytes_per_element) {
    std::uint64_t numbers = 0;  // of all layers
    for (const LayerConfig& layer : config.layers)
        numbers += layer.is_linear
                       ? state_numbers(*config.linear)
                       : num_cached_tokens(layer.pattern, seq_len) * cached_numbers(config);
    return batch_size * numbers * bytes_per_element;
}

void show_size(const PublishedExample& example, std::uint64_t seq_len,
               std::uint64_t batch_size) {
    const FamilyConfig& config = example.config;
    require(seq_len <= config.max_position_embeddings,
            "--context {} exceeds max_position_embeddings of {}", seq_len,
            config.max_position_embeddings);
    const double parameters = double(count_parameters(config).total());
    const bool windows =
        std::any_of(config.layers.begin(), config.layers.end(), [](const LayerConfig& layer) {
            return !std::holds_alternative<FullAttention>(layer.pattern);
        });
    const std::string length = with_commas(seq_len);
    step(example.name + ", " + to_text(batch_size) + " × " + length + " tokens");
    std::vector<TableRow> rows = {
        {"parameters", with_commas(std::uint64_t(parameters)), "of all tensors", "09"}};
    if (config.experts.num_experts > 0)
        rows.push_back({"active per token", with_commas(count_parameters(config).active()),
                        "K of E experts", "18"});
    if (const auto biases = count_parameters(config).router_biases; biases > 0)
        rows.push_back(
            {"router biases", with_commas(biases), "no gradient changes them", "18"});
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::q8_0, DType::q4_0})
        rows.push_back({"weights, " + std::string(to_text(dtype)),
                        bytes(parameters * bytes_per_weight(dtype)),
                        fixed(8 * bytes_per_weight(dtype), 1) + " bits each", "16"});
    rows.push_back({"KV cache, float16",
                    bytes(double(kv_cache_bytes(config, seq_len, batch_size, 2))),
                    config.linear   ? "4 Hkv D a token, states"
                    : config.latent ? "2 L (R + Dr) a token"
                    : windows       ? "4 Hkv D, windows at most W"
                                    : "4 L Hkv D a token",
                    config.linear   ? "20"
                    : config.latent ? "19"
                    : windows       ? "17"
                                    : "05"});
    rows.push_back({"prefill", flops(double(batch_size) * flops_of_prefill(config, seq_len)),
                    "2 a weight, 4 L H D a pair", "09"});
    rows.push_back({"one more token",
                    flops(double(batch_size * flops_per_token(config, seq_len - 1))),
                    "the same, of one token", "09"});
    rows.push_back({"its reads at least",
                    bytes(2 * double(count_parameters(config).active_matrix_elements) +
                          double(kv_cache_bytes(config, seq_len, batch_size, 2))),
                    "bfloat16 weights, cache", "15"});
    rows.push_back({"training, AdamW", bytes(16 * parameters), "16 bytes each, float32", "13"});
    show_table({"what", "how much", "formula", "chapter"}, rows);
}

}  // namespace llm::models
