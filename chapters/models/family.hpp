// Published models whose layers are those of chapters 17 to 20: what config.json says of a
// model, and what is fixed in the code of its family.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "chapters/09_full_model/model_tensors.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "chapters/17_long_context/score_mod.hpp"
#include "chapters/17_long_context/yarn.hpp"
#include "chapters/18_experts/mixture_of_experts.hpp"
#include "chapters/19_latent_attention/latent_attention.hpp"
#include "chapters/20_linear_attention/linear_attention.hpp"
#include "chapters/models/llama/config_json.hpp"
#include "common/files/gguf.hpp"
#include "common/files/json_file.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {

struct Family;

// The settings of one layer.
struct LayerConfig {
    AttentionPattern pattern = FullAttention{};
    bool use_rope = true;    // false: no RoPE (NoPE), and no QK norm
    bool is_moe = false;     // true: a mixture of experts; false: a dense MLP
    bool is_linear = false;  // linear attention, with FamilyConfig::linear
};

// The settings of a model, under the names of config.json. What a family does not have keeps
// its neutral value; if all are neutral, this is a model of chapter 09.
struct FamilyConfig : Config {  // intermediate_size is that of dense MLPs
    const Family* family = nullptr;
    Activation activation = SiLU;                             // of dense MLPs and experts
    bool mlp_bias = false;                                    // of dense MLPs
    std::vector<LayerConfig> layers;                          // L
    std::optional<Real> rope_local_base_freq = std::nullopt;  // theta of layers with a window
    Real rope_factor = 1;  // rope_scaling of type linear, for layers with that first theta
    std::optional<YarnScaling> yarn = std::nullopt;
    std::optional<LongRopeScaling> longrope = std::nullopt;
    double partial_rotary_factor = 1;  // RoPE rotates this part of each head: Phi-4-mini
    std::optional<LatentSizes> latent = std::nullopt;  // head_dim is then qk_rope_head_dim
    std::optional<LinearSizes> linear = std::nullopt;  // of layers with linear attention
    Real mscale = 1, mscale_all_dim = 0;               // DeepSeek's, of YaRN: see yarn_mscale
    Real query_pre_attn_scalar = 0;  // scores are divided by its root; always set
    std::optional<Real> attention_multiplier =
        std::nullopt;  // scores are multiplied by it instead
    Real embedding_multiplier = 1, residual_multiplier = 1, logits_scaling = 1;
    std::optional<Real> attn_logit_softcapping = std::nullopt;
    std::optional<Real> final_logit_softcapping = std::nullopt;
    std::optional<TemperatureTuning> temperature_tuning = std::nullopt;  // of NoPE layers

    ExpertSizes experts;                 // of each mixture of experts
    Routing routing = SoftmaxRouting{};  // of each mixture of experts
    std::optional<Real> swiglu_limit =
        std::nullopt;    // of ClampedGatedMlp; none: experts are GatedMlp
    bool mxfp4 = false;  // how the file stores the experts
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
    std::string router = "";                       // of a mixture of experts
    std::string correction_bias = "";              // of SigmoidRouting
    std::string experts = "";     // Hugging Face: followed by the number of the expert
    MlpNames expert = {};         // of each expert; GGUF: of all, stacked
    MlpNames shared_expert = {};  // of the expert for all tokens
    // Of latent attention, besides q_proj and o_proj.
    std::string q_a_proj = "", q_a_layernorm = "", q_b_proj = "";
    std::string kv_a_proj = "", kv_a_layernorm = "", kv_b_proj = "";
    // Of linear attention. In one matrix, the rows of q, k, v and z of each key head are
    // adjacent (in_proj_qkvz); those of β and the decay always are (in_proj_ba).
    std::string in_proj_qkvz = "", in_proj_qkv = "", in_proj_z = "", in_proj_ba = "";
    std::string conv1d = "", A_log = "", dt_bias = "", state_norm = "", out_proj = "";
    std::string shared_gate = "";  // of the expert for all tokens
};

// LayerNorm has a bias (GPT-2) or none (Cohere).
enum class NormType { rms_norm, layer_norm, layer_norm_without_bias };

// How the weights of the experts of a mixture of experts are stored in safetensors.
enum class ExpertStorage {
    separate,     // one tensor a matrix
    interleaved,  // stacked; gate and up in alternate columns, with biases: gpt-oss
    halves        // stacked; gate in the first half, up in the second: Llama 4
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

// What the code of a family fixes.
struct Family {
    std::string model_type;         // config.json's
    std::string architecture;       // Hugging Face's class
    std::string gguf_architecture;  // llama.cpp's
    FamilyLayerNames names;         // in safetensors
    FamilyLayerNames gguf_names;
    TensorNames model_names = hugging_face_names;  // outside of the layers
    std::vector<std::string> unused_tensors = {};  // beginnings or ends of names
    std::string nextn_layers = "";  // of names of layers for multi-token prediction, not read
    // The family's names of common keys in config.json; empty: its files lack the key.
    std::map<std::string, std::string> attribute_map = {};
    RopeLayout layout = RopeLayout::split_half;  // of q_proj and k_proj in safetensors
    RopeLayout gguf_layout = RopeLayout::split_half;
    ExpertStorage expert_storage = ExpertStorage::separate;
    Activation activation = SiLU;
    std::string activation_key = "hidden_act";
    NormPlacement norm_placement = NormPlacement::pre_norm;  // not: post_norm
    NormType norm_type = NormType::rms_norm;
    bool norms_add_one = false;      // stored as w, and multiply by 1 + w
    bool mlp_has_gate = true;        // false: Mlp of chapter 06
    bool learned_positions = false;  // added to the embeddings, instead of RoPE
    bool conv1d = false;             // matrices of the layers are stored as (in, out)
    bool scales_embeddings = false;  // by √C
    bool has_biases = false;         // of all matrices of the layers
    bool qkv_biases = false;  // of queries, keys and values, without a key of config.json
    bool reads_rope_scaling = false;  // with its own function, not read_rope_scaling
    bool partial_rotary = false;
    bool has_mlp_bias_key = false;
    bool latent_attention = false;
    bool output_gate = false;  // of attention; its rows follow those of q_proj, by head
    bool local_rope = false;   // layers with a window have a theta of their own

    ClassDefaults defaults = {};
    QKNormType qk_norm = QKNormType::none;

    // Reads the keys of this family alone; the common ones have been read. Throws FileError.
    void (*read)(const JsonFile& json, FamilyConfig& config) = [](const JsonFile&,
                                                                  FamilyConfig&) {};
    // Appends these keys.
    void (*write)(const FamilyConfig& config, JsonMembers& members) = [](const FamilyConfig&,
                                                                         JsonMembers&) {};
    // Throws ValueError if llama.cpp would compute something else; appends its settings; reads
    // them, in a configuration whose layers have full attention and RoPE. Throws FileError.
    void (*check_gguf)(const FamilyConfig& config) = [](const FamilyConfig&) {};
    void (*add_gguf)(const FamilyConfig& config,
                     GgufMetadata& metadata) = [](const FamilyConfig&, GgufMetadata&) {};
    void (*read_gguf)(const GgufSettings& gguf, FamilyConfig& config) = [](const GgufSettings&,
                                                                           FamilyConfig&) {};

    bool has_key(const std::string& common) const { return !key(common).empty(); }
    std::string key(const std::string& common) const;  // attribute_map, or the same name
};

// The configuration of a model of these sizes with what its family fixes: full attention and
// RoPE in all layers, scores that are multiplied by 1/√D.
FamilyConfig config_with(const Family& family, const Config& sizes);

// Of families/. Chapter 09's model types are among them: of these, models/llama reads all that
// chapter 09's model can compute.
const Family& llama_family();
const Family& qwen2_family();
const Family& qwen3_family();
const Family& gpt2_family();
const Family& mistral_family();
const Family& gemma_family();
const Family& gemma2_family();
const Family& gemma3_family();
const Family& smollm3_family();
const Family& granite_family();
const Family& olmo2_family();
const Family& phi3_family();
const Family& cohere2_family();
const Family& mixtral_family();
const Family& qwen3_moe_family();
const Family& gpt_oss_family();
const Family& llama4_family();
const Family& deepseek_v2_family();
const Family& deepseek_v3_family();
const Family& qwen3_next_family();

// All of them, and the one with this model_type; null if there is none.
const std::vector<const Family*>& families();
const Family* find_family(const std::string& model_type);
std::vector<std::string> all_model_types();  // with those of chapter 09: llama, ..., gpt2

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

// For families/: names that most of them share; the pattern of each layer from layer_types,
// which has sliding_attention or full_attention for each (throws FileError); the same list to
// write; patterns of all layers.
FamilyLayerNames hugging_face_layer_names();
FamilyLayerNames gguf_layer_names();
std::vector<AttentionPattern> read_layer_types(const JsonFile& json,
                                               const SlidingWindow& window,
                                               std::size_t num_hidden_layers);
// The rope_scaling of the types default, linear, dynamic, llama3 and yarn. Throws FileError.
void read_rope_scaling(const JsonFile& json, FamilyConfig& config);
// The same to write.
void add_rope_scaling(const FamilyConfig& config, JsonMembers& members);
// An activation by its names in Hugging Face (ACT2FN). Throws FileError if it is not one of
// chapter 06's.
Activation read_activation(const JsonFile& json, const std::string& key,
                           const Activation& otherwise);
// 1 in no_rope_layers means that the layer does use RoPE. If the list is empty or missing,
// every no_rope_layer_interval-th layer has none (4). Throws FileError.
void read_use_rope(const JsonFile& json, std::vector<LayerConfig>& layers);
// The pattern of each layer of Mistral and Gemma: layer_types if it is there, else every
// full_every-th layer has full attention (0: none).
void read_patterns(const JsonFile& json, std::size_t full_every, FamilyConfig& config);
std::vector<std::string> layer_types(const FamilyConfig& config);
void set_patterns(FamilyConfig& config, const std::vector<AttentionPattern>& patterns);
// What scores are multiplied by: attention_multiplier, or 1/√query_pre_attn_scalar,
// in DeepSeek times the square of YaRN's factor.
Real score_scale(const FamilyConfig& config);
// How many numbers a layer caches of each token, if it has no linear attention.
std::uint64_t cached_numbers(const FamilyConfig& config);
// How many features of a head RoPE rotates, rounded down.
std::size_t rotary_dim(const FamilyConfig& config);
// partial_rotary_factor, or that in this object of config.json (transformers 5). Throws
// FileError unless an even number of features is rotated.
void read_partial_rotary_factor(const JsonFile& json, const std::string& inside,
                                double default_factor, FamilyConfig& config);
// The window of the first layer that has one.
std::optional<std::size_t> sliding_window(const FamilyConfig& config);
// Windows of this key in all layers but every full_every-th.
void read_gguf_windows(const GgufSettings& gguf, std::size_t full_every, FamilyConfig& config);
// The sizes of experts in every step-th layer; width: the key of that of one expert.
void read_gguf_experts(const GgufSettings& gguf, const std::string& width, std::size_t step,
                       FamilyConfig& config);
// The numbers of YaRN in this object of config.json, and the same to write.
YarnScaling read_yarn_numbers(const JsonFile& json, const std::string& inside,
                              double default_factor);
void add_yarn(const YarnScaling& yarn, JsonMembers& members);
// Which layers have a mixture of experts: decoder_sparse_step divides their number, counted
// from 1, and mlp_only_layers does not list them. Throws FileError. The same to write.
void read_moe_layers(const JsonFile& json, FamilyConfig& config);
void add_moe_layers(const FamilyConfig& config, JsonMembers& members);
// The sizes of a mixture of experts: the keys of the number of experts and of their width, and
// defaults.
ExpertSizes read_experts(const JsonFile& json, const std::string& num_experts_key,
                         const ExpertSizes& defaults);
// llama.cpp's llama and phi3 have no window. Throws ValueError if one hides a token.
void reject_windows_of_llama(const FamilyConfig& config);
// llama.cpp's olmo2 and phi3 have as many features in all query heads as in a hidden state.
// Throws ValueError for others.
void reject_other_query_widths(const FamilyConfig& config);

}  // namespace llm::models
