// Phi-3 mini with a context of 4k: a Mistral whose projections of queries, keys and values, and
// of gate and up, are one matrix each. The files with longer contexts have LongRoPE, which is
// not implemented. Source: Hugging Face, modeling_phi3.py.
#include "chapters/models/family.hpp"

namespace llm {
namespace {

void read_phi3(const JsonFile& json, PublishedConfig& config) {
    json.ignore("original_max_position_embeddings");  // of LongRoPE
    if (json.has("sliding_window"))
        set_patterns(config,
                     {config.num_hidden_layers, SlidingWindow{json.size("sliding_window")}});
    else
        set_patterns(config, {config.num_hidden_layers, FullAttention{}});
}

void write_phi3(const PublishedConfig& config, JsonMembers& json) {
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
}

void check_phi3_gguf(const PublishedConfig& config) {
    reject_windows_of_llama(config);
    reject_other_query_widths(config);
}

Family make_phi3_family() {
    PublishedLayerNames names = hugging_face_layer_names(), in_gguf = gguf_layer_names();
    names.qkv_proj = "self_attn.qkv_proj";
    names.gate_up_proj = "mlp.gate_up_proj";
    in_gguf.qkv_proj = "attn_qkv";
    in_gguf.gate_up_proj = "ffn_up";
    return {.model_type = "phi3",
            .architecture = "Phi3ForCausalLM",
            .gguf_architecture = "phi3",
            .names = names,
            .gguf_names = in_gguf,
            .read = read_phi3,
            .write = write_phi3,
            .check_gguf = check_phi3_gguf,
            .add_gguf = no_gguf_settings};
}

}  // namespace

const Family& phi3_family() {
    static const Family family = make_phi3_family();
    return family;
}

}  // namespace llm
