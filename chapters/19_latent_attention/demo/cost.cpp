#include "chapters/19_latent_attention/demo/cost.hpp"

#include <vector>

#include "chapters/19_latent_attention/absorbed_attention.hpp"
#include "chapters/19_latent_attention/attention_cost.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// An attention layer by its sizes, and how many of them a model has.
struct PublishedAttention {
    std::string model, kind;
    std::size_t num_hidden_layers;
    std::variant<Config, LatentSizes> sizes;

    AttentionCost cost(std::uint64_t seq_len) const {
        return std::visit([&](const auto& any) { return attention_cost(any, seq_len); }, sizes);
    }
    // In 16 bits, of all layers.
    std::uint64_t cache_bytes_per_token() const {
        return 2 * num_hidden_layers * cost(1).cached_numbers;
    }
};

Config heads_of(std::size_t hidden_size, std::size_t num_attention_heads,
                std::size_t num_key_value_heads, std::size_t head_dim) {
    Config config;
    config.hidden_size = hidden_size;
    config.num_attention_heads = num_attention_heads;
    config.num_key_value_heads = num_key_value_heads;
    config.head_dim = head_dim;
    return config;
}

const LatentSizes deepseek_v3{7168, 128, 1536, 512, 128, 64, 128};
const std::vector<PublishedAttention> published = {
    {"Llama 2 7B", "multi-head", 32, heads_of(4096, 32, 32, 128)},
    {"Llama 3 8B", "grouped-query", 32, heads_of(4096, 32, 8, 128)},
    {"Gemma 2B", "multi-query", 18, heads_of(2048, 8, 1, 256)},
    {"MiniCPM3 4B", "latent", 62, LatentSizes{2560, 40, 768, 256, 64, 32, 64}},
    {"DeepSeek-V2-Lite", "latent", 27, LatentSizes{2048, 16, {}, 512, 128, 64, 128}},
    {"DeepSeek-V3", "latent", 61, deepseek_v3},
    {"(multi-head instead)", "multi-head", 61, heads_of(7168, 128, 128, 128)}};

constexpr std::uint64_t seq_len = 4096;

TableRow cache_row(const PublishedAttention& layer) {
    const AttentionCost cost = layer.cost(1);
    const double kilobytes = double(layer.cache_bytes_per_token()) / 1e3;
    return {layer.model,
            layer.kind,
            with_commas(cost.cached_numbers),
            to_text(layer.num_hidden_layers),
            fixed(kilobytes, 1),
            fixed(kilobytes * 131'072 / 1e6, 1)};
}

TableRow flops_row(const PublishedAttention& layer) {
    const AttentionCost cost = layer.cost(seq_len);
    return {layer.model, fixed(double(cost.parameters) / 1e6, 1),
            fixed(double(cost.prefill_flops) / 1e9 / double(seq_len), 3),
            fixed(double(cost.decode_flops) / 1e9, 3)};
}

const TableRow cache_headings = {"model",  "attention", "cached",
                                 "layers", "KB/token",  "GB at 128k"};
const TableRow flops_headings = {"one layer of", "M parameters", "GFLOPs/token, prefill",
                                 "GFLOPs, decode"};

template <class Row>
void show_rows(const TableRow& headings, const Row& row_of) {
    std::vector<TableRow> rows;
    for (const PublishedAttention& layer : published) rows.push_back(row_of(layer));
    show_table(headings, rows);
}

// The sizes of the attention layers of a config.json.
PublishedAttention read_attention(const std::string& file) {
    const JsonFile json = models::open_config(file);
    const std::size_t C = json.size("hidden_size"), H = json.size("num_attention_heads");
    PublishedAttention result{json.has("model_type") ? json.text("model_type") : "model", "",
                              json.size("num_hidden_layers"), Config{}};
    if (json.has("kv_lora_rank")) {
        LatentSizes sizes{C,
                          H,
                          {},
                          json.size("kv_lora_rank"),
                          json.size("qk_nope_head_dim"),
                          json.size("qk_rope_head_dim"),
                          json.size("v_head_dim")};
        if (json.has("q_lora_rank")) sizes.q_lora_rank = json.size("q_lora_rank");
        result.kind = "latent";
        result.sizes = sizes;
        return result;
    }
    const std::size_t num_kv_heads = json.size_or("num_key_value_heads", H);
    if (H % num_kv_heads != 0)
        json.reject("num_key_value_heads", "must divide num_attention_heads, " + to_text(H));
    result.kind = num_kv_heads == H   ? "multi-head"
                  : num_kv_heads == 1 ? "multi-query"
                                      : "grouped-query";
    result.sizes = heads_of(C, H, num_kv_heads, json.size_or("head_dim", C / H));
    return result;
}

}  // namespace

void cached_numbers() {
    step("What published models cache of each token");
    show_rows(cache_headings, cache_row);
    std::vector<std::string> names;
    std::vector<double> kilobytes;
    for (const PublishedAttention& layer : published) {
        if (layer.model.starts_with("(")) continue;  // so large that the others would vanish
        names.push_back(layer.model);
        kilobytes.push_back(double(layer.cache_bytes_per_token()) / 1e3);
    }
    plot("cache", {BarChart{"KV cache in 16 bits", "KB per token", names, {{"", kilobytes}}}});
}

void parameters_and_flops() {
    step("Parameters and FLOPs of one layer, with 4096 tokens");
    show_rows(flops_headings, flops_row);
}

void orders_by_length() {
    step("Which order needs fewer FLOPs: DeepSeek-V3, 4096 tokens in the cache");
    std::vector<TableRow> rows;
    Line expanded{"expanded", {}, {}}, absorbed{"absorbed", {}, {}};
    for (std::uint64_t new_tokens = 1; new_tokens <= seq_len; new_tokens *= 4) {
        const double gflops[] = {
            double(expanded_flops(deepseek_v3, new_tokens, seq_len)) / 1e9,
            double(absorbed_flops(deepseek_v3, new_tokens, seq_len)) / 1e9};
        rows.push_back(
            {to_text(new_tokens), fixed(gflops[0], 1), fixed(gflops[1], 1),
             absorbing_is_cheaper(deepseek_v3, new_tokens, seq_len) ? "absorbed" : "expanded"});
        for (Line* line : {&expanded, &absorbed}) line->x.push_back(double(new_tokens));
        expanded.y.push_back(gflops[0]);
        absorbed.y.push_back(gflops[1]);
    }
    show_table({"new tokens", "expanded, GFLOPs", "absorbed, GFLOPs", "fewer"}, rows);
    std::uint64_t first = 1;
    while (absorbing_is_cheaper(deepseek_v3, first, seq_len)) ++first;
    show("expanding_is_cheaper_from", first);
    plot("orders", {LinePlot{"DeepSeek-V3, 4096 cached tokens",
                             "new tokens",
                             "GFLOPs per layer",
                             {expanded, absorbed},
                             true,
                             true}});
}

void cost_of_config(const std::string& file) {
    const PublishedAttention layer = read_attention(file);
    step("What this model caches of each token");
    show_table(cache_headings, {cache_row(layer)});
    step("Parameters and FLOPs of one layer, with 4096 tokens");
    show_table(flops_headings, {flops_row(layer)});
}

}  // namespace llm
