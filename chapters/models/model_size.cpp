#include "chapters/models/model_size.hpp"

#include <algorithm>

#include "chapters/17_long_context/pattern_attention.hpp"
#include "chapters/19_latent_attention/absorbed_attention.hpp"
#include "chapters/19_latent_attention/attention_cost.hpp"
#include "chapters/20_linear_attention/linear_cost.hpp"
#include "chapters/models/parameter_count.hpp"
#include "common/output/show.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {
namespace {

// What a mixer computes and caches besides its matrices.
struct MixerCost {
    std::uint64_t position;  // of the token
    std::uint64_t seq_len;   // cached tokens
    bool is_prefill = false;

    // FLOPs: two per feature of the query and of the value for each key that is attended to.
    std::uint64_t flops(const AttentionConfig& attention) const {
        return num_attended(attention.pattern, position) * 4 * attention.num_attention_heads *
               attention.head_dim;
    }
    // Chapter 19: a prefill expands each token's keys and values once, which is counted with
    // the matrices (kv_b_proj). A decode step expands all of them, or absorbs kv_b_proj into
    // its query and output: the cheaper order.
    std::uint64_t flops(const LatentConfig& latent) const {
        const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = latent.sizes;
        const std::uint64_t kv_len = position + 1;
        if (is_prefill) return kv_len * 2 * H * (Dn + Dr + Dv);
        const std::uint64_t of_kv_b_proj = std::uint64_t{2} * H * R * (Dn + Dv);
        return std::min(expanded_flops(latent.sizes, 1, kv_len),
                        absorbed_flops(latent.sizes, 1, kv_len)) -
               of_kv_b_proj;
    }
    // Token by token.
    std::uint64_t flops(const LinearSizes& sizes) const {
        return sizes.num_value_heads *
               recurrent_flops(1, sizes.key_head_dim, sizes.value_head_dim);
    }
    // Two gates.
    std::uint64_t flops(const GatedConvolutionSizes& sizes) const {
        return 2 * sizes.hidden_size;
    }

    // Cached numbers.
    std::uint64_t cached(const AttentionConfig& attention) const {
        return num_cached_tokens(attention.pattern, seq_len) * 2 *
               attention.num_key_value_heads * attention.head_dim;
    }
    std::uint64_t cached(const LatentConfig& latent) const {
        return seq_len * (latent.sizes.kv_lora_rank + latent.sizes.qk_rope_head_dim);
    }
    std::uint64_t cached(const LinearSizes& sizes) const { return state_numbers(sizes); }
    std::uint64_t cached(const GatedConvolutionSizes& sizes) const {
        return std::uint64_t{sizes.conv_kernel_dim - 1} * sizes.hidden_size;
    }
};

std::uint64_t mixer_flops(const LayerConfig& layer, std::uint64_t position,
                          bool is_prefill = false) {
    return std::visit(
        [&](const auto& mixer) {
            return MixerCost{position, 0, is_prefill}.flops(mixer);
        },
        layer.mixer);
}

template <class Mixer>
bool has_mixer(const FamilyConfig& config) {
    return std::any_of(
        config.layers.begin(), config.layers.end(),
        [](const LayerConfig& layer) { return std::holds_alternative<Mixer>(layer.mixer); });
}

}  // namespace

std::string bytes_as_text(double number) {
    const std::array units = {"bytes", "kB", "MB", "GB", "TB"};
    std::size_t unit = 0;
    for (; number >= 1000 && unit + 1 < units.size(); ++unit) number /= 1000;
    return fixed(number, unit == 0 ? 0 : 2) + " " + units[unit];
}

std::string flops_as_text(double number) {
    const std::array units = {"MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs"};
    number /= 1e6;
    std::size_t unit = 0;
    for (; number >= 1000 && unit + 1 < units.size(); ++unit) number /= 1000;
    return fixed(number, 2) + " " + units[unit];
}

std::vector<TableRow> weight_rows(double parameters) {
    std::vector<TableRow> rows;
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::q8_0, DType::q4_0}) {
        const double bytes_per_weight = double(bytes_per_row(dtype, 256)) / 256;
        rows.push_back({"weights, " + std::string(to_text(dtype)),
                        bytes_as_text(parameters * bytes_per_weight),
                        fixed(8 * bytes_per_weight, 1) + " bits each", "16"});
    }
    return rows;
}

TableRow training_row(double parameters) {
    return {"training, AdamW", bytes_as_text(16 * parameters), "16 bytes each, float32", "13"};
}

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
    for (const LayerConfig& layer : config.layers) flops += mixer_flops(layer, position);
    return flops;
}

double flops_of_prefill(const FamilyConfig& config, std::uint64_t seq_len) {
    double flops =
        2 * double(count_parameters(config).active_matrix_elements) * double(seq_len);
    for (const LayerConfig& layer : config.layers)
        for (std::uint64_t position = 0; position < seq_len; ++position)
            flops += double(mixer_flops(layer, position, true));
    return flops;
}

std::uint64_t kv_cache_bytes(const FamilyConfig& config, std::uint64_t seq_len,
                             std::uint64_t batch_size, std::size_t bytes_per_element) {
    std::uint64_t numbers = 0;  // of all layers
    for (const LayerConfig& layer : config.layers)
        numbers += std::visit(
            [&](const auto& mixer) {
                return MixerCost{0, seq_len}.cached(mixer);
            },
            layer.mixer);
    return batch_size * numbers * bytes_per_element;
}

void show_size(const PublishedExample& example, std::uint64_t seq_len,
               std::uint64_t batch_size) {
    const FamilyConfig& config = example.config;
    require(seq_len <= config.max_position_embeddings,
            "--context {} exceeds max_position_embeddings of {}", seq_len,
            config.max_position_embeddings);
    const double parameters = double(count_parameters(config).total());
    const bool linear =
                   has_mixer<LinearSizes>(config) || has_mixer<GatedConvolutionSizes>(config),
               latent = has_mixer<LatentConfig>(config);
    const bool windows =
        std::any_of(config.layers.begin(), config.layers.end(), [](const LayerConfig& layer) {
            const AttentionConfig* attention = attention_of(layer);
            return attention && !std::holds_alternative<FullAttention>(attention->pattern);
        });
    const std::string length = with_commas(seq_len);
    step(example.name + ", " + to_text(batch_size) + " × " + length + " tokens");
    std::vector<TableRow> rows = {
        {"parameters", with_commas(std::uint64_t(parameters)), "of all tensors", "09"}};
    if (first_moe(config))
        rows.push_back({"active per token", with_commas(count_parameters(config).active()),
                        "K of E experts", "18"});
    if (const auto biases = count_parameters(config).router_biases; biases > 0)
        rows.push_back(
            {"router biases", with_commas(biases), "no gradient changes them", "18"});
    for (const TableRow& row : weight_rows(parameters)) rows.push_back(row);
    rows.push_back({"KV cache, float16",
                    bytes_as_text(double(kv_cache_bytes(config, seq_len, batch_size, 2))),
                    linear    ? "4 Hkv D a token, states"
                    : latent  ? "2 L (R + Dr) a token"
                    : windows ? "4 Hkv D, windows at most W"
                              : "4 L Hkv D a token",
                    linear    ? "20"
                    : latent  ? "19"
                    : windows ? "17"
                              : "05"});
    rows.push_back({"prefill",
                    flops_as_text(double(batch_size) * flops_of_prefill(config, seq_len)),
                    "2 a weight, 4 L H D a pair", "09"});
    rows.push_back({"one more token",
                    flops_as_text(double(batch_size * flops_per_token(config, seq_len - 1))),
                    latent ? "the cheaper order" : "the same, of one token",
                    latent ? "19" : "09"});
    rows.push_back({"its reads at least",
                    bytes_as_text(2 * double(count_parameters(config).active_matrix_elements) +
                                  double(kv_cache_bytes(config, seq_len, batch_size, 2))),
                    "bfloat16 weights, cache", "15"});
    rows.push_back(training_row(parameters));
    show_table({"what", "how much", "formula", "chapter"}, rows);
}

}  // namespace llm::models
