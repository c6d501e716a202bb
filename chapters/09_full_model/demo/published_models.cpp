#include "chapters/09_full_model/demo/published_models.hpp"

#include "chapters/09_full_model/parameters.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

struct PublishedModel {
    std::string name;
    Config config;
    std::uint64_t parameters;  // as published; 0 if it is not
};

Config make_config(std::size_t hidden_size, std::size_t num_hidden_layers,
                   std::size_t num_attention_heads, std::size_t num_key_value_heads,
                   std::size_t head_dim, std::size_t intermediate_size, std::size_t vocab_size,
                   bool tie_word_embeddings, QKNormType qk_norm = QKNormType::none) {
    Config config = mini_llm_config();
    config.hidden_size = hidden_size;
    config.num_hidden_layers = num_hidden_layers;
    config.num_attention_heads = num_attention_heads;
    config.num_key_value_heads = num_key_value_heads;
    config.head_dim = head_dim;
    config.intermediate_size = intermediate_size;
    config.vocab_size = vocab_size;
    config.tie_word_embeddings = tie_word_embeddings;
    config.qk_norm = qk_norm;
    return config;
}

const std::vector<PublishedModel>& published_models() {
    constexpr QKNormType qwen3 = QKNormType::with_weights;
    static const std::vector<PublishedModel> models = {
        {"Mini-LLM", mini_llm_config(), 0},
        {"Llama-3.2-1B", make_config(2048, 16, 32, 8, 64, 8192, 128256, true), 1235814400},
        {"Llama-2-7B", make_config(4096, 32, 32, 32, 128, 11008, 32000, false), 6738415616},
        {"Llama-3-8B", make_config(4096, 32, 32, 8, 128, 14336, 128256, false), 8030261248},
        {"Qwen3-0.6B", make_config(1024, 28, 16, 8, 128, 3072, 151936, true, qwen3), 596049920},
        {"Qwen3-8B", make_config(4096, 36, 32, 8, 128, 12288, 151936, false, qwen3),
         8190735360}};
    return models;
}

// GPT-2: learned position embeddings, LayerNorms, biases, an MLP of width 4C, a tied head.
std::uint64_t gpt2_parameters(std::uint64_t C, std::uint64_t num_hidden_layers) {
    const std::uint64_t attention = 4 * C * C + 4 * C;
    const std::uint64_t mlp = mlp_parameters(C, 4 * C) + 4 * C + C;
    const std::uint64_t norm = 2 * C;
    return (50257 + 1024) * C + num_hidden_layers * (attention + mlp + 2 * norm) + norm;
}

}  // namespace

void show_published_parameters() {
    step("Published models: parameters computed from their configurations");
    std::vector<TableRow> rows;
    for (const auto& [name, config, published] : published_models()) {
        const ParameterCount count = count_parameters(config);
        const auto millions = [](std::uint64_t parameters) {
            return fixed(static_cast<double>(parameters) / 1e6, 1);
        };
        rows.push_back({name, millions(count.embedding), millions(count.attention),
                        millions(count.mlp), millions(count.head), with_commas(count.total()),
                        published == 0               ? "-"
                        : published == count.total() ? "equal"
                                                     : with_commas(published)});
    }
    show_table({"millions", "embedding", "attention", "MLP", "head", "total", "published"},
               rows);
    show("GPT-2 (published: 124,439,808)", with_commas(gpt2_parameters(768, 12)));
    show("GPT-2 XL (published: 1,557,611,200)", with_commas(gpt2_parameters(1600, 48)));
}

void show_costs() {
    step("Share of the head, FLOPs per token, KV cache per token");
    std::vector<TableRow> rows;
    std::vector<Line> lines;
    for (const auto& [name, config, published] : published_models()) {
        const auto gigaflops = [&, &given = config](std::size_t position) {
            return static_cast<double>(flops_per_token(given, position)) / 1e9;
        };
        const Config full = validate_model(config);  // with head_dim
        const std::uint64_t head = std::uint64_t{full.vocab_size} * full.hidden_size;
        const std::uint64_t untied =
            count_parameters(full).total() + (full.tie_word_embeddings ? head : 0);
        const std::uint64_t cache = kv_cache_bytes_per_token(
            full.num_hidden_layers, full.num_key_value_heads, full.head_dim, 2);
        rows.push_back({name, full.tie_word_embeddings ? "yes" : "no",
                        fixed(100 * double(head) / double(untied), 1), fixed(gigaflops(0), 2),
                        fixed(gigaflops(32767), 2), fixed(double(cache) / 1024, 0)});

        lines.push_back({name, {}, {}});
        for (std::size_t position = 0; position <= 32768; position += 4096) {
            lines.back().x.push_back(static_cast<double>(position));
            lines.back().y.push_back(gigaflops(position));
        }
    }
    show_table({"", "tied", "untied head, %", "GFLOPs at 0", "at 32767", "cache, KiB"}, rows);
    plot("flops", {LinePlot{"FLOPs per token", "position", "GFLOPs", lines, true}});
}

void show_design_choices() {
    struct Design {
        std::string name;
        double hidden_size, layers, heads, head_dim, intermediate_size, matrices;
        std::size_t vocab_size;
        std::string languages, dropout, weight_decay;
    };
    const std::vector<Design> designs = {
        {"GPT-3 175B", 12288, 96, 96, 128, 49152, 2, 50257, "English", "?", "0.1"},
        {"T5-11B", 1024, 24, 128, 128, 65536, 2, 32128, "English", "0.1", "0"},
        {"PaLM 540B", 18432, 118, 48, 256, 73728, 3, 256000, "many", "0", "lr^2"},
        {"BLOOM 176B", 14336, 70, 112, 128, 57344, 2, 250880, "many", "0", "0.1"},
        {"mT5-XXL", 4096, 24, 64, 64, 10240, 3, 250112, "many", "0", "0"},
        {"Llama-2-7B", 4096, 32, 32, 128, 11008, 3, 32000, "English", "?", "0.1"},
        {"Llama-3-8B", 4096, 32, 32, 128, 14336, 3, 128256, "many", "?", "?"},
        {"Qwen3-8B", 4096, 36, 32, 128, 12288, 3, 151936, "many", "?", "?"}};
    step("Design choices");
    std::vector<TableRow> rows;
    for (const Design& d : designs)
        rows.push_back(
            {d.name, fixed(d.matrices, 0), fixed(d.intermediate_size / d.hidden_size, 2),
             fixed(d.heads * d.head_dim / d.hidden_size, 2), fixed(d.hidden_size / d.layers, 0),
             with_commas(d.vocab_size), d.languages, d.dropout, d.weight_decay});
    show_table(
        {"", "matrices", "F / C", "H D / C", "C / L", "V", "languages", "dropout", "decay"},
        rows);
}

}  // namespace llm
