// Variants of a Llama-style decoder.
#pragma once

#include <variant>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/models/block_variant.hpp"
#include "chapters/models/final_norm.hpp"

namespace llm {

// The design choices of chapters 04, 06, 07 and 08. (Sizes and the number of key/value heads
// are in Config.) LayerNorm and Mlp are supported in pre-norm blocks only.
struct AblationConfig {
    NormPlacement norm_placement = NormPlacement::pre_norm;
    bool layer_norm = false;  // LayerNorm instead of RMSNorm
    bool relu_mlp = false;    // Mlp with ReLU and 3/2 F: the parameter count of SwiGLU with F
    bool use_rope = true;     // if false, all position ids are 0
};

// A block of any of these types.
using AblationBlock =
    models::BlockVariant<PreNormBlock, PostNormBlock, ResPostNormBlock, SandwichBlock,
                         ParallelBlock, PreNormBlockWith<LayerNorm, GatedMlp>,
                         PreNormBlockWith<RMSNorm, Mlp>, PreNormBlockWith<LayerNorm, Mlp>>;

// The model of chapters 09 and 12 with such blocks and tied weights. Without RoPE, all rows of
// its rotary table are that of position 0.
struct AblationModelConfig : Config {
    AblationConfig ablation;
};
std::vector<RotaryTable> rotary_tables(const AblationModelConfig& config,
                                       std::size_t num_positions);  // P
using AblationModel = DecoderModel<AblationBlock, AblationModelConfig, models::FinalNorm>;

// The standard deviation of the initial weights: 0.02, or √(2 / (fan_in + fan_out)). Source:
// torch.nn.init.normal_ and xavier_normal_ (Glorot and Bengio, 2010).
enum class WeightInit { normal, xavier_normal };

// Throws ValueError for LayerNorm or Mlp with norm placements other than pre-norm.
AblationModel make_ablation_model(const Config& config, const AblationConfig& ablation,
                                  WeightInit init, Generator& generator);

}  // namespace llm
