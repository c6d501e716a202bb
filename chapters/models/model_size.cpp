#include "chapters/models/model_size.hpp"

#include <algorithm>

#include "chapters/17_long_context/pattern_attention.hpp"
#include "chapters/19_latent_attention/attention_cost.hpp"
#include "chapters/20_linear_attention/linear_cost.hpp"
#include "chapters/models/moe_parameters.hpp"
#include "common/output/show.hpp"
#include "common/tensors/block_types.hpp"

namespace llm::models {
namespace {

// Of the attention of one layer, output gate included.
std::uint64_t attention_elements(const PublishedConfig& config, const LayerConfig& layer) {
    const std::uint64_t C = config.hidden_size, D = config.head_dim;
    const std::uint64_t heads = config.num_attention_heads, kv = config.num_key_value_heads;
    if (layer.is_linear) return linear_multiplications(*config.linear);
    if (config.latent) return attention_cost(*config.latent, 1).parameters;
    return C * D * (2 * heads + 2 * kv + (config.family->output_gate ? heads : 0));
}

// The elements of the matrices by which a token is multiplied, biases excluded.
std::uint64_t active_matrix_elements(const PublishedConfig& config) {
    const std::uint64_t C = config.hidden_size, F = config.experts.moe_intermediate_size;
    const ExpertSizes& experts = config.experts;
    const std::uint64_t shared = experts.n_shared_experts > 0 ? experts.shared_width() : 0;
    const std::uint64_t gate = config.family->names.shared_gate.empty() ? 0 : C;
    std::uint64_t elements = std::uint64_t{config.vocab_size} * C;  // the head, tied or not
    for (const LayerConfig& layer : config.layers) {
        elements += attention_elements(config, layer);
        if (layer.is_moe)
            elements += C * experts.num_experts +
                        3 * C * (F * experts.num_experts_per_tok + shared) + gate;
        else
            elements += (config.family->mlp_has_gate ? 3 : 2) * C * config.intermediate_size;
    }
    return elements;
}

// Of one token and layer: two per feature of the queries and of the values. Latent attention is
// counted with expanded keys and values.
std::uint64_t flops_per_key(const PublishedConfig& config) {
    const std::uint64_t heads = config.num_attention_heads;
    if (!config.latent) return 4 * heads * config.head_dim;
    const auto& [C, H, q_lora_rank, R, Dn, Dr, Dv] = *config.latent;
    return 2 * heads * (Dn + Dr + Dv);
}

// Of one token in the states of a layer with linear attention, token by token.
std::uint64_t flops_of_states(const PublishedConfig& config) {
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

std::uint64_t flops_per_token(const PublishedConfig& config, std::uint64_t position) {
    std::uint64_t flops = 2 * active_matrix_elements(config);
    for (const LayerConfig& layer : config.layers)
        flops += layer.is_linear
                     ? flops_of_states(config)
                     : num_attended(layer.pattern, position) * flops_per_key(config);
    return flops;
}

double flops_of_prefill(const PublishedConfig& config, std::uint64_t seq_len) {
    double flops = 2 * double(active_matrix_elements(config)) * double(seq_len);
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

std::uint64_t kv_cache_bytes(const PublishedConfig& config, std::uint64_t seq_len,
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
    const PublishedConfig& config = example.config;
    require(seq_len <= config.max_position_embeddings,
            "--context {} exceeds max_position_embeddings of {}", seq_len,
            config.max_position_embeddings);
    const double parameters = double(num_parameters(config));
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
                    bytes(2 * double(active_matrix_elements(config)) +
                          double(kv_cache_bytes(config, seq_len, batch_size, 2))),
                    "bfloat16 weights, cache", "15"});
    rows.push_back({"training, AdamW", bytes(16 * parameters), "16 bytes each, float32", "13"});
    show_table({"what", "how much", "formula", "chapter"}, rows);
}

}  // namespace llm::models
