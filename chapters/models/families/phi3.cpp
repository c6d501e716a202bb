// Phi-3 and Phi-4 mini: a Mistral whose projections of queries, keys and values, and of gate
// and up, are one matrix each. Files with long contexts have LongRoPE; Phi-4-mini rotates three
// quarters of each head. Source: Hugging Face, modeling_phi3.py.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

void read_phi3(const JsonFile& json, FamilyConfig& config) {
    for (const char* key : {"full_attn_mod", "interpolate_factor", "use_sliding_window",
                            "original_max_position_embeddings"})
        json.ignore(key);
    if (json.has("sliding_window"))
        set_patterns(config, {config.num_hidden_layers,
                              AttentionPattern{SlidingWindow{json.size("sliding_window")}}});
}

void write_phi3(const FamilyConfig& config, JsonMembers& json) {
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
}

void check_phi3_gguf(const FamilyConfig& config) {
    reject_windows_of_llama(config);
    reject_other_query_widths(config);
}

void add_phi3_gguf(const FamilyConfig& config, GgufMetadata& metadata) {
    const LongRopeScaling* longrope = longrope_of(config);
    if (!longrope) return;
    add_gguf_size(config, "rope.scaling.original_context_length",
                  longrope->original_max_position_embeddings, metadata);
    add_gguf_number(config, "rope.scaling.attn_factor", double(longrope->attention_factor),
                    metadata);
}

void read_phi3_gguf(const GgufSettings& gguf, FamilyConfig& config) {
    read_gguf_windows(gguf, 0, config);
    const std::string original = "rope.scaling.original_context_length",
                      factor = "rope.scaling.attn_factor";
    gguf.expect_text("rope.scaling.type", "longrope");
    if (!gguf.file.has_tensor("rope_factors_long.weight")) return;
    // The tensors are read with the others.
    set_rope_scaling(
        config,
        LongRopeScaling{
            {}, {}, gguf.size(original), gguf.has(factor) ? gguf.positive(factor) : Real(1)});
}

}  // namespace

const Family& phi3_family() {
    static const Family family = [] {
        FamilyLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
        names.qkv_proj = "self_attn.qkv_proj";
        names.gate_up_proj = "mlp.gate_up_proj";
        in_gguf.qkv_proj = "attn_qkv";
        in_gguf.gate_up_proj = "ffn_up";
        return Family{.model_type = "phi3",
                      .architecture = "Phi3ForCausalLM",
                      .gguf_architecture = "phi3",
                      .names = names,
                      .gguf_names = in_gguf,
                      .attribute_map = {{"attention_bias", ""}},
                      .defaults = {32064, 3072, 8192, 32, 32, 0, 4096, 0, 1e-5},
                      .read = read_phi3,
                      .write = write_phi3,
                      .check_gguf = check_phi3_gguf,
                      .add_gguf = add_phi3_gguf,
                      .read_gguf = read_phi3_gguf};
    }();
    return family;
}

}  // namespace llm::models
