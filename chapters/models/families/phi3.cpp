// Phi-3 and Phi-4 mini: a Mistral whose projections of queries, keys and values, and of gate
// and up, are one matrix each. Files with long contexts have LongRoPE; Phi-4-mini rotates three
// quarters of each head. Source: Hugging Face, modeling_phi3.py.
#include "chapters/models/family.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// A divisor, above 0, for each pair of rotated features.
Vector read_factors(const JsonFile& json, const std::string& key, std::size_t num_pairs) {
    const std::vector<double> numbers = json.numbers(key);
    if (numbers.size() != num_pairs)
        json.reject(key, "must have " + to_text(num_pairs) +
                             " numbers, one per frequency, not " + to_text(numbers.size()));
    Vector factors(std::array{num_pairs});
    for (std::size_t i = 0; i < num_pairs; ++i) {
        factors(i) = Real(numbers[i]);
        if (!(factors(i) > 0)) json.reject(key, "must be above 0, not " + brief(numbers[i]));
    }
    return factors;
}

std::optional<LongRopeScaling> read_longrope(const JsonFile& json, const std::string& inside,
                                             const FamilyConfig& config) {
    const std::string original_key = "original_max_position_embeddings";
    const std::size_t original =
        json.size_or(original_key, json.size_or(inside + "." + original_key, 4096));
    json.size_or(inside + "." + original_key, original);  // transformers repeats it there
    if (!json.has(inside)) return std::nullopt;
    const std::string rope_type = read_rope_type(json, inside);
    if (rope_type == "default") return std::nullopt;
    if (rope_type != "longrope" && rope_type != "su")  // su: its name in the first files
        json.reject_value(inside + ".rope_type", rope_type, "default and longrope");
    const std::size_t context = config.max_position_embeddings;
    const std::string factor = inside + ".factor";
    if (json.has(factor) && json.number(factor) != double(context) / double(original))
        json.reject(factor, "contradicts max_position_embeddings and " + original_key);
    const std::size_t num_pairs = rotary_dim(config) / 2;
    return LongRopeScaling{
        read_factors(json, inside + ".short_factor", num_pairs),
        read_factors(json, inside + ".long_factor", num_pairs), original,
        Real(json.positive_or(inside + ".attention_factor",
                              double(longrope_attention_factor(context, original))))};
}

void read_phi3(const JsonFile& json, FamilyConfig& config) {
    for (const char* key : {"full_attn_mod", "interpolate_factor", "use_sliding_window"})
        json.ignore(key);
    const std::string inside = rope_object(json, false);
    read_partial_rotary_factor(json, inside, 1, config);
    config.longrope = read_longrope(json, inside, config);
    if (json.has("sliding_window"))
        set_patterns(config,
                     {config.num_hidden_layers, SlidingWindow{json.size("sliding_window")}});
}

std::vector<double> numbers_of(const Vector& values) { return {values.begin(), values.end()}; }

void write_phi3(const FamilyConfig& config, JsonMembers& json) {
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
    if (config.partial_rotary_factor != 1)
        json.push_back({"partial_rotary_factor", config.partial_rotary_factor});
    if (!config.longrope) return;
    const auto& [short_factor, long_factor, original, attention_factor] = *config.longrope;
    json.insert(json.end(), {{"original_max_position_embeddings", original},
                             {"rope_scaling.rope_type", std::string("longrope")},
                             {"rope_scaling.short_factor", numbers_of(short_factor)},
                             {"rope_scaling.long_factor", numbers_of(long_factor)},
                             {"rope_scaling.attention_factor", double(attention_factor)}});
}

void check_phi3_gguf(const FamilyConfig& config) {
    reject_windows_of_llama(config);
    reject_other_query_widths(config);
}

void add_phi3_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    if (!config.longrope) return;
    metadata.insert(
        metadata.end(),
        {{"phi3.rope.scaling.original_context_length",
          static_cast<std::int64_t>(config.longrope->original_max_position_embeddings)},
         {"phi3.rope.scaling.attn_factor", double(config.longrope->attention_factor)}});
}

void read_phi3_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_windows(gguf, 0, config);
    const std::string original = "rope.scaling.original_context_length";
    gguf.expect_text("rope.scaling.type", "longrope");
    if (!gguf.file.has_tensor("rope_factors_long.weight")) return;
    config.longrope = LongRopeScaling{{},  // the tensors are read with the others
                                      {},
                                      gguf.size(original),
                                      gguf.has("rope.scaling.attn_factor")
                                          ? gguf.positive("rope.scaling.attn_factor")
                                          : Real(1)};
}

Family make_phi3_family() {
    FamilyLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
    names.qkv_proj = "self_attn.qkv_proj";
    names.gate_up_proj = "mlp.gate_up_proj";
    in_gguf.qkv_proj = "attn_qkv";
    in_gguf.gate_up_proj = "ffn_up";
    return {.model_type = "phi3",
            .architecture = "Phi3ForCausalLM",
            .gguf_architecture = "phi3",
            .names = names,
            .gguf_names = in_gguf,
            .attribute_map = {{"attention_bias", ""}},
            .reads_rope_scaling = true,
            .partial_rotary = true,
            .defaults = {32064, 3072, 8192, 32, 32, 0, 4096, 0, 1e-5},
            .read = read_phi3,
            .write = write_phi3,
            .check_gguf = check_phi3_gguf,
            .add_gguf = add_phi3_gguf,
            .read_gguf = read_phi3_gguf};
}

}  // namespace

const Family& phi3_family() {
    static const Family family = make_phi3_family();
    return family;
}

}  // namespace llm::models
