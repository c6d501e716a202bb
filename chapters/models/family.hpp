// Published models: a family reads config.json or the metadata of a GGUF file and builds the
// settings of each layer; its names say where the tensors stand.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chapters/09_full_model/model_tensors.hpp"
#include "chapters/models/layer_config.hpp"
#include "chapters/models/llama/config_json.hpp"
#include "common/files/gguf.hpp"
#include "common/files/json_file.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {

struct Family;

// LayerNorm has a bias (GPT-2) or none (Cohere).
enum class NormType { rms_norm, layer_norm, layer_norm_without_bias };

// The settings of a model: the sizes that config.json has for the whole model, and the layers
// that its family builds from them and from its own keys. If a layer differs from the sizes,
// the layer counts. Neutral values are a Llama's.
struct FamilyConfig : Config {
    const Family* family = nullptr;
    std::vector<LayerConfig> layers;  // L
    NormType norm_type = NormType::rms_norm;
    NormPlacement norm_placement = NormPlacement::pre_norm;  // not: post_norm
    bool learned_positions = false;                          // added to the embeddings
    Real embedding_multiplier = 1, residual_multiplier = 1, logits_scaling = 1;
    std::optional<Real> final_logit_softcapping = std::nullopt;
    // False: the class has no language-model head, but perhaps another one with so many
    // parameters. Such a model has a size, but cannot be loaded.
    bool has_lm_head = true;
    std::uint64_t other_head_parameters = 0;
    std::size_t num_nextn_predict_layers = 0;  // for multi-token prediction, not read
};

// Chapter 09's names of tensors, and those that only these families have. Stacked experts of
// GGUF files have one tensor for all experts.
struct FamilyLayerNames : LayerNames {
    std::string sinks = "", attention_output_norm = "", ffn_output_norm = "";
    std::string qkv_proj = "", gate_up_proj = "";  // fused: instead of three and of two names
    std::string output_gate = "";      // of attention; empty: its rows follow those of q_proj
    std::string router = "";           // of a mixture of experts
    std::string correction_bias = "";  // of SigmoidRouting
    std::string experts = "";          // Hugging Face: followed by the number of the expert
    MlpNames expert = {};              // of each expert; GGUF: of all, stacked
    MlpNames shared_expert = {};       // of the expert for all tokens
    // Of latent attention, besides q_proj and o_proj.
    std::string q_a_proj = "", q_a_layernorm = "", q_b_proj = "";
    std::string kv_a_proj = "", kv_a_layernorm = "", kv_b_proj = "";
    // Of linear attention. In one matrix, the rows of q, k, v and z of each key head are
    // adjacent (in_proj_qkvz), and those of β and the decay (in_proj_ba).
    std::string in_proj_qkvz = "", in_proj_qkv = "", in_proj_z = "";
    std::string in_proj_ba = "", in_proj_b = "", in_proj_a = "";
    std::string conv1d = "", A_log = "", dt_bias = "", state_norm = "", out_proj = "";
    std::string in_proj = "";        // of a gated convolution, besides conv1d and out_proj
    bool tiled_value_heads = false;  // see value_heads.hpp; only in GGUF files
    std::string shared_gate = "";    // of the expert for all tokens
    std::string final_norm = "";     // GGUF: of the model, if it is not output_norm
};

// How weights are stored in a file, where it is not as here: (out, in), split halves, w.
struct TensorLayout {
    RopeLayout rope = RopeLayout::split_half;  // of q_proj and k_proj
    bool transposed = false;                   // matrices of the layers: (in, out)
    Real norm_offset = 0;                      // added to the weights of norms: 1 + w
    // Stacked experts, (E, C, 2F): gate and up in alternate columns.
    bool alternate_columns = false;
};

// The metadata of a GGUF file under the names of its architecture: "attention.scale" is
// "granite.attention.scale" of a Granite. The accessors throw FileError.
struct GgufSettings {
    const Gguf& file;
    std::string architecture;

    std::string full(const std::string& key) const { return architecture + "." + key; }
    bool has(const std::string& key) const { return file.has(full(key)); }
    std::size_t size(const std::string& key) const { return file.size(full(key)); }
    Real positive(const std::string& key) const;  // a number above 0
    // Reads the key, if it is there; throws FileError unless its value is this text.
    void expect_text(const std::string& key, const std::string& text) const;
};

// A family: names, and how settings become layers.
struct Family {
    std::string model_type;         // config.json's
    std::string architecture;       // Hugging Face's class
    std::string gguf_architecture;  // llama.cpp's
    FamilyLayerNames names;         // in safetensors
    FamilyLayerNames gguf_names;
    TensorNames model_names = hugging_face_names;  // outside of the layers
    TensorLayout layout = {};                      // in safetensors
    RopeLayout gguf_layout = RopeLayout::split_half;
    // Beginnings or ends of names that are not read: causal masks. Those of layers for
    // multi-token prediction, which are counted.
    std::vector<std::string> unused_tensors = {};
    std::string nextn_layers = "";
    // The family's names of common keys in config.json; empty: its files lack the key.
    std::map<std::string, std::string> attribute_map = {};
    ClassDefaults defaults = {};

    // Changes Llama's layers of these sizes into what the code of the family fixes.
    void (*build)(FamilyConfig& config) = [](FamilyConfig&) {};
    // Reads the keys of this family alone; the common ones have been read. Throws FileError.
    void (*read)(const JsonFile& json, FamilyConfig& config) = [](const JsonFile&,
                                                                  FamilyConfig&) {};
    // Appends these keys.
    void (*write)(const FamilyConfig& config, JsonMembers& members) = [](const FamilyConfig&,
                                                                         JsonMembers&) {};
    // Throws ValueError if llama.cpp would compute something else; appends its settings; reads
    // them. Throws FileError.
    void (*check_gguf)(const FamilyConfig& config) = [](const FamilyConfig&) {};
    void (*add_gguf)(const FamilyConfig& config,
                     GgufMetadata& metadata) = [](const FamilyConfig&, GgufMetadata&) {};
    void (*read_gguf)(const GgufSettings& gguf, FamilyConfig& config) = [](const GgufSettings&,
                                                                           FamilyConfig&) {};
};

// The settings of so many layers take 5 MB; a damaged number would take all memory.
inline constexpr std::size_t most_layers = 10'000;

// The family's name of a key in config.json; empty: it has none.
std::string key_of(const Family& family, const std::string& common);

// The configuration of a model of these sizes with the layers that its family builds from them.
FamilyConfig config_with(const Family& family, const Config& sizes);

// All families, and the one with this model_type; null if there is none. Chapter 09's model
// types are among them: of these, models/llama reads all that chapter 09's model can compute.
const std::vector<const Family*>& families();
const Family* find_family(const std::string& model_type);
// With those of chapter 09 and of encoders: llama, ..., gpt2, ..., bert.
std::vector<std::string> all_model_types();

// Whether these functions, and not those of models/llama, read this config.json: one of the
// model types above, but one of chapter 09's only if it has something that its model has not,
// such as a window that hides tokens. Throws FileError, which lists all types, if neither reads
// it.
bool is_family_config(const JsonFile& json);

// Throws FileError, which names the field, if one is missing, contradicts another, or requires
// an unsupported feature. Missing fields have the defaults of transformers 4.57.
FamilyConfig read_family_config(const JsonFile& json);
FamilyConfig read_family_config(const JsonFile& json, const Family& family);
FamilyConfig read_family_config(const Gguf& file);
// Reads "architectures": whether the model has a language-model head, or another one.
void read_head_of_class(const JsonFile& json, FamilyConfig& config);
// The family of its model_type. Throws FileError if there is none.
const Family& family_named_in(const JsonFile& json);
// The family of a GGUF file; null if chapter 09 reads its architecture. Throws FileError, which
// lists all architectures, if neither does.
const Family* find_family(const Gguf& file);

// The members of config.json for a configuration.
JsonMembers config_json(const FamilyConfig& config, DType dtype);

// The first layer with attention of chapter 17, and the first with a mixture of experts; null
// if there is none.
const AttentionConfig* first_attention(const FamilyConfig& config);
const MoeConfig* first_moe(const FamilyConfig& config);
// The RoPE of the first layer without a window, or else of the first layer that has one; null
// if there is none.
const RopeParameters* main_rope(const FamilyConfig& config);
// The window of the first layer that has one.
std::optional<std::size_t> sliding_window(const FamilyConfig& config);

}  // namespace llm::models
