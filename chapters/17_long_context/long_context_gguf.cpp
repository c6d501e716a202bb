#include "chapters/17_long_context/long_context_gguf.hpp"

#include "chapters/09_full_model/tensor_names.hpp"
#include "chapters/16_quantization/gguf_export.hpp"
#include "chapters/16_quantization/gguf_tokenizer_export.hpp"
#include "common/files/gguf.hpp"

namespace llm {
namespace {

bool has_pattern(const LongContextConfig& config, std::size_t full_every) {
    for (std::size_t n = 0; n < config.patterns.size(); ++n) {
        const bool full = std::holds_alternative<FullAttention>(config.patterns[n]);
        if (full != ((n + 1) % full_every == 0)) return false;
    }
    return true;
}

// Throws ShapeError if llama.cpp would compute something else.
void check_exportable(const LongContextConfig& config) {
    const bool gemma2 = config.model_type == LongContextModelType::gemma2;
    const std::size_t full_every = gemma2 ? 2 : 6;
    require(has_pattern(config, full_every),
            "export: llama.cpp's {} has full attention in layers {}, {}, ... and windows in "
            "all others",
            to_text(config.model_type), full_every - 1, 2 * full_every - 1);
    require(config.query_pre_attn_scalar == static_cast<Real>(config.config.head_dim),
            "export: llama.cpp's {} scales scores by 1/√head_dim: query_pre_attn_scalar must "
            "be {}",
            to_text(config.model_type), config.config.head_dim);
    require(!config.rope_local_base_freq || *config.rope_local_base_freq == 10'000,
            "export: llama.cpp's gemma3 has a rope_local_base_freq of 10000");
    require(config.config.tie_word_embeddings, "export: llama.cpp's {} has a tied head",
            to_text(config.model_type));
    require(!gemma2 || (config.attn_logit_softcapping && config.final_logit_softcapping),
            "export: llama.cpp's gemma2 has soft caps of scores and logits");
    require(gemma2 || !config.attn_logit_softcapping,
            "export: llama.cpp's gemma3 has no soft cap of scores");
}

GgufMetadata model_metadata(const LongContextConfig& given) {
    const Config& config = given.config;
    const std::string architecture =
        given.model_type == LongContextModelType::gemma2 ? "gemma2" : "gemma3";
    GgufMetadata metadata = {{"general.architecture", architecture}};
    const auto add = [&](const std::string& key, const GgufValue& value) {
        metadata.emplace_back(architecture + "." + key, value);
    };
    for (const auto& entry : size_metadata(architecture, config)) metadata.push_back(entry);
    for (const AttentionPattern& pattern : given.patterns)
        if (const auto* sliding = std::get_if<SlidingWindow>(&pattern)) {
            add("attention.sliding_window", static_cast<std::int64_t>(sliding->window));
            break;
        }
    if (given.rope_factor != 1) {
        add("rope.scaling.type", std::string("linear"));
        add("rope.scaling.factor", double(given.rope_factor));
    }
    if (given.attn_logit_softcapping)
        add("attn_logit_softcapping", double(*given.attn_logit_softcapping));
    if (given.final_logit_softcapping)
        add("final_logit_softcapping", double(*given.final_logit_softcapping));
    return metadata;
}

// The tensors of a file in float32: views of the model's.
struct TensorList {
    std::vector<NamedGgufTensor> tensors;

    template <std::size_t N>
    void add(const std::string& name, const xt::xtensor<Real, N>& tensor) {
        const std::span<const Real> values{tensor.data(), tensor.size()};
        tensors.push_back({name + ".weight",
                           {DType::float32,
                            {tensor.shape().begin(), tensor.shape().end()},
                            std::as_bytes(values)}});
    }
};

// llama.cpp rotates split halves in these architectures, as here. Its norms are stored as 1 +
// w.
void add_layer(const std::string& layer, const LongContextSandwichBlock& block,
               TensorList& list) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = block.self_attn.layer.projections;
    list.add(layer + gguf_names.attention_norm, block.attention_norm.weight);
    list.add(layer + gguf_names.q_proj, q_proj.weight);
    list.add(layer + gguf_names.k_proj, k_proj.weight);
    list.add(layer + gguf_names.v_proj, v_proj.weight);
    list.add(layer + gguf_names.o_proj, o_proj.weight);
    if (const auto* norm = std::get_if<QKNormWithWeights>(&block.self_attn.layer.qk_norm)) {
        list.add(layer + gguf_names.q_norm, norm->q_weight);
        list.add(layer + gguf_names.k_norm, norm->k_weight);
    }
    list.add(layer + "post_attention_norm", block.attention_output_norm.weight);
    list.add(layer + gguf_names.ffn_norm, block.ffn_norm.weight);
    list.add(layer + gguf_names.gate_proj, block.mlp.gate_proj.weight);
    list.add(layer + gguf_names.up_proj, block.mlp.up_proj.weight);
    list.add(layer + gguf_names.down_proj, block.mlp.down_proj.weight);
    list.add(layer + "post_ffw_norm", block.ffn_output_norm.weight);
}

// A Mistral as a model of chapter 09, which has no window.
Model without_window(const LongContextModel& model) {
    const Config& config = model.config.config;
    for (const AttentionPattern& pattern : model.config.patterns) {
        const auto* sliding = std::get_if<SlidingWindow>(&pattern);
        require(!sliding || sliding->window >= config.max_position_embeddings,
                "export: llama.cpp's llama has no window: {} tokens do not fit into a window "
                "of {}",
                config.max_position_embeddings, sliding ? sliding->window : 0);
    }
    Model result{config, model.embed_tokens, {}, model.norm, model.lm_head};
    for (const LongContextLayer& layer : model.layers) {
        const auto& block = std::get<LongContextBlock>(layer.block);
        result.layers.push_back(
            {block.self_attn.layer, block.mlp, block.attention_norm, block.ffn_norm});
    }
    return result;
}

}  // namespace

void export_gguf(const LongContextModel& model, const Tokenizer& tokenizer,
                 const std::string& file) {
    if (model.config.model_type == LongContextModelType::mistral) {
        export_gguf(without_window(model), tokenizer, file, DType::float32);
        return;
    }
    if (std::filesystem::exists(file))
        throw FileError(file + ": exists already and is not overwritten");
    check_exportable(model.config);
    GgufMetadata metadata = model_metadata(model.config);
    for (const auto& entry : tokenizer_metadata(tokenizer, model.config.config.vocab_size))
        metadata.push_back(entry);
    TensorList list;
    list.add(gguf_names.embed_tokens, model.embed_tokens);
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        add_layer(gguf_names.layer + std::to_string(n) + ".",
                  std::get<LongContextSandwichBlock>(model.layers[n].block), list);
    list.add(gguf_names.norm, model.norm.weight);
    write_gguf(file, metadata, list.tensors);
}

}  // namespace llm
