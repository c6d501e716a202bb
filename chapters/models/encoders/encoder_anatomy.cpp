#include "chapters/models/encoders/encoder_anatomy.hpp"

#include <algorithm>

#include "chapters/models/activations.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/model_size.hpp"

namespace llm::models {
namespace {

std::size_t num_windows(const EncoderFamilyConfig& config) {
    return std::size_t(std::count(config.windows.begin(), config.windows.end(), true));
}

// As of ModernBERT: pre-norm, gated MLPs, RoPE. BERT has post-norm and learned positions.
bool has_rope(const EncoderFamilyConfig& config) { return config.rope_theta.has_value(); }

Choice positions_of(const EncoderFamilyConfig& config) {
    if (has_rope(config)) return {"positions", "RoPE", "04_rope.md"};
    return {"positions", "learned", "04_rope.md#optional-absolute-position-embeddings"};
}

Choice theta_of(const EncoderFamilyConfig& config) {
    if (!has_rope(config)) return {"theta", "-", ""};
    std::string text = with_commas(std::uint64_t(*config.rope_theta));
    if (num_windows(config) > 0 && config.windowed->rope_theta != *config.rope_theta)
        text += ", " + with_commas(std::uint64_t(config.windowed->rope_theta));
    return {"theta", text, "04_rope.md#formula"};
}

Choice window_of(const EncoderFamilyConfig& config) {
    if (num_windows(config) == 0) return {"window", "-", ""};
    return {"window",
            "± " + to_text(config.windowed->window) + ", " + to_text(num_windows(config)) +
                "/" + to_text(config.num_hidden_layers),
            "25_encoders.md#what-a-token-sees"};
}

Choice biases_of(const EncoderFamilyConfig& config) {
    const bool both = config.attention_bias && config.mlp_bias;
    const std::string text = both                    ? "all"
                             : config.attention_bias ? "attention"
                             : config.mlp_bias       ? "MLP"
                                                     : "-";
    return {"biases", text, text == "-" ? "" : "02_projections.md"};
}

Choice mlp_of(const EncoderFamilyConfig& config) {
    const bool gelu_or_tanh = config.hidden_act.function == GELU.function ||
                              config.hidden_act.function == GELUTanh.function;
    const std::string name(config.hidden_act.name);
    const std::string plain = gelu_or_tanh ? "GELU" : name,
                      gated = gelu_or_tanh ? "GeGLU" : "gated, " + name;
    return {"MLP", has_rope(config) ? gated : plain, "06_swiglu.md"};
}

// Rows of a matrix that multiplies each token; counted in elements.
std::uint64_t elements_of_layers(const EncoderFamilyConfig& config) {
    const std::uint64_t C = config.hidden_size, F = config.intermediate_size;
    return config.num_hidden_layers * (4 * C * C + (has_rope(config) ? 3 : 2) * C * F);
}

// How many pairs of tokens attend to each other.
double num_pairs(std::uint64_t seq_len, std::optional<std::size_t> window) {
    double pairs = 0;
    for (std::uint64_t t = 0; t < seq_len; ++t) {
        const std::uint64_t reach = window.value_or(seq_len);
        pairs += double(std::min(seq_len, t + reach + 1) - (t > reach ? t - reach : 0));
    }
    return pairs;
}

}  // namespace

std::optional<EncoderFamilyConfig> find_encoder_config(const std::string& file_or_folder) {
    const std::string file =
        is_file(file_or_folder) ? file_or_folder : file_or_folder + "/config.json";
    if (!is_file(file)) return std::nullopt;
    const JsonFile json = open_config(file);
    if (!find_encoder_family(json)) return std::nullopt;
    return read_encoder_config(json);
}

Anatomy anatomy_of(const std::string& name, const EncoderFamilyConfig& config) {
    const double C = double(config.hidden_size);
    const std::size_t H = config.num_attention_heads;
    const std::string sizes = "09_full_model.md";
    const EncoderParameters parameters = count_parameters(make_empty_encoder(config));
    return {
        name,
        0,
        {{"attends to", "both sides", "25_encoders.md#what-a-token-sees"},
         positions_of(config),
         theta_of(config),
         {"rotated", "-", ""},
         {"scaling", "-", ""},
         window_of(config),
         {"heads", to_text(H), "03_head_splitting.md"},
         {"KV heads", to_text(H), "05_gqa.md"},
         {"head_dim", to_text(config.hidden_size / H), "03_head_splitting.md"},
         {"H · D / C", fixed(1, 2), "03_head_splitting.md"},
         {"QK norm", "-", ""},
         {"output gate", "-", ""},
         {"norm", config.norm_bias ? "LayerNorm" : "LayerNorm, no bias",
          "07_rmsnorm_vs_layernorm.md"},
         {"placement", has_rope(config) ? "pre-norm" : "post-norm", "08_pre_vs_post_norm.md"},
         biases_of(config),
         mlp_of(config),
         {"F / C", fixed(double(config.intermediate_size) / C, 2), "06_swiglu.md"},
         {"experts", "-", ""},
         {"multipliers", "-", ""},
         {"layers", to_text(config.num_hidden_layers), sizes},
         {"C", to_text(config.hidden_size), sizes},
         {"C / L", fixed(C / double(config.num_hidden_layers), 0), sizes},
         {"vocabulary", with_commas(config.vocab_size), "10_tokenizer.md"},
         {"context", with_commas(config.max_position_embeddings), "17_long_context.md"},
         {"tied", config.tie_word_embeddings ? "yes" : "no", sizes},
         {"parameters", with_commas(parameters.total()), "25_encoders.md"},
         {"active", "-", ""}}};
}

Anatomy find_anatomy(const std::string& name_or_folder) {
    if (const auto encoder = find_encoder_config(name_or_folder))
        return anatomy_of(name_or_folder, *encoder);
    return anatomy_of(find_example(name_or_folder));
}

double flops_of_text(const EncoderFamilyConfig& config, std::uint64_t seq_len) {
    double flops = 2 * double(elements_of_layers(config)) * double(seq_len);
    for (const bool has_window : config.windows) {
        const auto window = has_window ? std::optional(config.windowed->window) : std::nullopt;
        flops += 4 * double(config.hidden_size) * num_pairs(seq_len, window);
    }
    return flops;
}

void show_size(const std::string& name, const EncoderFamilyConfig& config,
               std::uint64_t seq_len, std::uint64_t batch_size) {
    require(seq_len <= config.max_position_embeddings,
            "--context {} exceeds max_position_embeddings of {}", seq_len,
            config.max_position_embeddings);
    const double parameters = double(count_parameters(make_empty_encoder(config)).total());
    step(name + ", " + to_text(batch_size) + " × " + with_commas(seq_len) + " tokens");
    std::vector<TableRow> rows = {
        {"parameters", with_commas(std::uint64_t(parameters)), "of all tensors", "25"}};
    for (const TableRow& row : weight_rows(parameters)) rows.push_back(row);
    rows.push_back({"KV cache", "-", "a text is read once", "25"});
    rows.push_back({"all texts, without heads",
                    flops_as_text(double(batch_size) * flops_of_text(config, seq_len)),
                    "2 a weight, 4 L C a pair", "09"});
    rows.push_back(training_row(parameters));
    show_table({"what", "how much", "formula", "chapter"}, rows);
}

}  // namespace llm::models
