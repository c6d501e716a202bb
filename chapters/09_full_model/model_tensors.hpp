// Chapter 09, file 4 of 5: the names of a model's tensors in files, and a function that visits
// all of them.
#pragma once

#include <string>

#include "chapters/09_full_model/model.hpp"

namespace llm {

// The names of the parts of a layer, after the name of the layer. A name is followed by
// ".weight" or ".bias".
struct MlpNames {
    std::string gate_proj, up_proj, down_proj;
};
struct LayerNames {
    std::string attention_norm, q_proj, k_proj, v_proj, o_proj, ffn_norm;
    MlpNames mlp;
    std::string q_norm = "", k_norm = "";  // if the model type has a QK norm
};
// Those of a model; the names of layer n begin with "layer" and n.
struct TensorNames {
    std::string embed_tokens, layer, norm, lm_head;
    LayerNames layers;
    std::string embed_positions = "";  // if the model type has learned positions
};

inline const TensorNames hugging_face_names = {
    "model.embed_tokens",
    "model.layers.",
    "model.norm",
    "lm_head",
    {"input_layernorm",
     "self_attn.q_proj",
     "self_attn.k_proj",
     "self_attn.v_proj",
     "self_attn.o_proj",
     "post_attention_layernorm",  // despite its name, before the MLP
     {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
     "self_attn.q_norm",
     "self_attn.k_norm"}};

// Visits the tensors of a model, which may be const, to read or to write them. A linear layer
// has a bias if its optional bias is there. A visitor has these members; their names lack
// ".weight" and ".bias":
//
//     void matrix(const std::string& name, Matrix& weight, std::size_t out, std::size_t in);
//     void linear(const std::string& name, Linear& linear, std::size_t out, std::size_t in);
//     // A projection of num_heads heads whose rows are interleaved pairs in the file (04).
//     void interleaved(const std::string& name, Linear& linear, std::size_t out,
//                      std::size_t in, std::size_t num_heads);
//     void norm(const std::string& name, Vector& weight, std::size_t size);
//     void bias(const std::string& name, Vector& bias, std::size_t size);  // of a norm
//
// A later architecture overloads visit_layer for its layers, visit_norm for its final norm, and
// layer_config if its layers differ.
inline const Config& layer_config(const Config& config, std::size_t /*layer*/) {
    return config;
}
template <class Norm, class Visitor>
void visit_norm(Norm& norm, const std::string& name, std::size_t size, Visitor& visit) {
    visit.norm(name, norm.weight, size);
    if (norm.bias) visit.bias(name, *norm.bias, size);
}

template <class AnyMlp, class Visitor>
void visit_mlp(AnyMlp& mlp, const std::string& layer, const MlpNames& names,
               std::size_t hidden_size, std::size_t intermediate_size, Visitor& visit) {
    visit.linear(layer + names.gate_proj, mlp.gate_proj, intermediate_size, hidden_size);
    visit.linear(layer + names.up_proj, mlp.up_proj, intermediate_size, hidden_size);
    visit.linear(layer + names.down_proj, mlp.down_proj, hidden_size, intermediate_size);
}

template <class AnyAttention, class Visitor>
void visit_qk_norm(AnyAttention& attention, const Config& config, const std::string& layer,
                   const LayerNames& names, Visitor& visit) {
    if (auto* norm = std::get_if<QKNormWithWeights>(&attention.qk_norm)) {
        const bool all_heads = config.qk_norm == QKNormType::over_all_heads;
        const std::size_t D = config.head_dim;
        visit.norm(layer + names.q_norm, norm->q_weight,
                   all_heads ? config.num_attention_heads * D : D);
        visit.norm(layer + names.k_norm, norm->k_weight,
                   all_heads ? config.num_key_value_heads * D : D);
    }
}

template <class AnyAttention, class Visitor>
void visit_attention(AnyAttention& attention, const Config& config, const std::string& layer,
                     const LayerNames& names, RopeLayout layout, Visitor& visit) {
    const std::size_t C = config.hidden_size, D = config.head_dim;
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    auto& [q_proj, k_proj, v_proj, o_proj] = attention.projections;
    if (layout == RopeLayout::interleaved) {
        visit.interleaved(layer + names.q_proj, q_proj, H * D, C, H);
        visit.interleaved(layer + names.k_proj, k_proj, Hkv * D, C, Hkv);
    } else {
        visit.linear(layer + names.q_proj, q_proj, H * D, C);
        visit.linear(layer + names.k_proj, k_proj, Hkv * D, C);
    }
    visit.linear(layer + names.v_proj, v_proj, Hkv * D, C);
    visit.linear(layer + names.o_proj, o_proj, C, H * D);
    visit_qk_norm(attention, config, layer, names, visit);
}

template <class Block, class AnyConfig, class AnyLayerNames, class Visitor>
void visit_layer(Block& block, const AnyConfig& config, const std::string& layer,
                 const AnyLayerNames& names, RopeLayout layout, Visitor& visit) {
    const std::size_t C = config.hidden_size;
    visit_norm(block.attention_norm, layer + names.attention_norm, C, visit);
    visit_attention(block.self_attn, config, layer, names, layout, visit);
    visit_norm(block.ffn_norm, layer + names.ffn_norm, C, visit);
    visit_mlp(block.mlp, layer, names.mlp, C, config.intermediate_size, visit);
}

template <class AnyModel, class AnyLayerNames, class Visitor>
void visit_model(AnyModel& model, const TensorNames& names, const AnyLayerNames& layer_names,
                 RopeLayout layout, Visitor& visit) {
    const std::size_t V = model.config.vocab_size, C = model.config.hidden_size;
    visit.matrix(names.embed_tokens, model.embed_tokens, V, C);
    if (model.embed_positions)
        visit.matrix(names.embed_positions, *model.embed_positions,
                     model.config.max_position_embeddings, C);
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        visit_layer(model.layers[n], layer_config(model.config, n),
                    names.layer + std::to_string(n) + ".", layer_names, layout, visit);
    visit_norm(model.norm, names.norm, C, visit);
    if (model.lm_head) visit.matrix(names.lm_head, *model.lm_head, V, C);
}
template <class AnyModel, class Visitor>
void visit_model(AnyModel& model, const TensorNames& names, RopeLayout layout, Visitor& visit) {
    visit_model(model, names, names.layers, layout, visit);
}

// A visitor that reads each tensor from a file, of SafeTensors or GgufTensors.
template <class Tensors>
struct TensorReader {
    Tensors& tensors;

    void matrix(const std::string& name, Matrix& weight, std::size_t out, std::size_t in) {
        weight = tensors.read(name + ".weight", {out, in});
    }
    void linear(const std::string& name, Linear& linear, std::size_t out, std::size_t in) {
        matrix(name, linear.weight, out, in);
        if (linear.bias) linear.bias = tensors.read(name + ".bias", {out});
    }
    void interleaved(const std::string& name, Linear& projection, std::size_t out,
                     std::size_t in, std::size_t num_heads) {
        linear(name, projection, out, in);
        projection = interleaved_to_split_half(projection, num_heads);
    }
    void norm(const std::string& name, Vector& weight, std::size_t size) {
        weight = tensors.read(name + ".weight", {size});
    }
    void bias(const std::string& name, Vector& bias, std::size_t size) {
        bias = tensors.read(name + ".bias", {size});
    }
};

// Throws FileError if the file has fewer layers than the configuration: memory for them is
// allocated only after this.
template <class Tensors>
void check_last_layer(const Config& config, Tensors& tensors, const TensorNames& names,
                      const LayerNames& layer_names) {
    tensors.read(names.layer + std::to_string(config.num_hidden_layers - 1) + "." +
                     layer_names.attention_norm + ".weight",
                 {config.hidden_size});
}

// Layers with the structure that a configuration describes, whose tensors are still empty.
inline Linear empty_linear(bool has_bias) {
    return {{}, has_bias ? std::optional<Vector>(Vector{}) : std::nullopt};
}
AttentionLayer empty_attention_layer(const Config& config);

}  // namespace llm
