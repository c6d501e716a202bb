#include "chapters/18_experts/mixture_checkpoint.hpp"

#include <list>

#include "chapters/04_rope/rope.hpp"
#include "chapters/16_quantization/gguf_export.hpp"
#include "chapters/18_experts/stacked_experts.hpp"
#include "common/files/safetensors.hpp"

namespace llm {
namespace {

// The names of a mixture's parts. Mixtral: w1 is the gate, w3 up, w2 down.
struct MixtureNames {
    std::string mlp, router, gate_proj, up_proj, down_proj;
};
MixtureNames names_of(MixtureModelType type) {
    switch (type) {
        case MixtureModelType::mixtral:
            return {".block_sparse_moe.", "gate", "w1", "w3", "w2"};
        case MixtureModelType::qwen3_moe:
            return {".mlp.", "gate", "gate_proj", "up_proj", "down_proj"};
        case MixtureModelType::gpt_oss:
            return {".mlp.", "router", "gate_proj", "up_proj", "down_proj"};
        case MixtureModelType::llama4_text:
            return {".feed_forward.", "router", "gate_proj", "up_proj", "down_proj"};
    }
    throw std::invalid_argument("there is no such model type");
}

Routing routing_of(const MixtureConfig& config) {
    if (config.model_type == MixtureModelType::gpt_oss) return TopKSoftmaxRouting{};
    if (config.model_type == MixtureModelType::llama4_text) return InputSigmoidRouting{};
    return SoftmaxRouting{config.norm_topk_prob};
}

// Reads the parts of a model.
struct Reader {
    const MixtureConfig& config;
    const SafeTensors& tensors;
    bool gpt_oss = config.model_type == MixtureModelType::gpt_oss;
    bool llama4 = config.model_type == MixtureModelType::llama4_text;
    MixtureNames names = names_of(config.model_type);

    Linear linear(const std::string& name, std::size_t out, std::size_t in) const {
        Linear result{tensors.read(name + ".weight", {out, in}), std::nullopt};
        if (gpt_oss) result.bias = tensors.read(name + ".bias", {out});
        return result;
    }
    RMSNorm norm(const std::string& name, std::size_t size) const {
        return {tensors.read(name + ".weight", {size}), config.config.rms_norm_eps};
    }

    LongContextAttention attention(const std::string& layer, std::size_t n) const {
        const Config& sizes = config.config;
        const std::size_t C = sizes.hidden_size, D = sizes.head_dim;
        const std::size_t H = sizes.num_attention_heads, Hkv = sizes.num_key_value_heads;
        const std::string name = layer + ".self_attn.";
        AttentionLayer attention{
            H,
            Hkv,
            {linear(name + "q_proj", H * D, C), linear(name + "k_proj", Hkv * D, C),
             linear(name + "v_proj", Hkv * D, C), linear(name + "o_proj", C, H * D)}};
        if (sizes.qk_norm == QKNormType::with_weights)
            attention.qk_norm =
                QKNormWithWeights{norm(name + "q_norm", D).weight,
                                  norm(name + "k_norm", D).weight, sizes.rms_norm_eps};
        LongContextAttention result =
            make_long_context_attention(attention, D, config.patterns[n]);
        if (gpt_oss) result.score_function.sinks = tensors.read(name + "sinks", {H});
        if (llama4) set_llama4_positions(result, n);
        return result;
    }
    // Llama 4's RoPE is interleaved. Layers without RoPE have no QK norm either.
    void set_llama4_positions(LongContextAttention& attention, std::size_t n) const {
        auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
        if (!config.use_rope[n]) {
            attention.position_encoding = NoPE{config.temperature_tuning};
            return;
        }
        if (config.config.qk_norm == QKNormType::without_weights)
            attention.layer.qk_norm = QKNormWithoutWeights{config.config.rms_norm_eps};
        q_proj = interleaved_to_split_half(q_proj, attention.layer.num_attention_heads);
        k_proj = interleaved_to_split_half(k_proj, attention.layer.num_key_value_heads);
    }

    GatedMlp mlp(const std::string& name, std::size_t intermediate_size) const {
        const std::size_t C = config.config.hidden_size, F = intermediate_size;
        return {linear(name + names.gate_proj, F, C), linear(name + names.up_proj, F, C),
                linear(name + names.down_proj, C, F)};
    }
    MixtureOfExperts mixture(const std::string& name) const {
        const std::size_t C = config.config.hidden_size, E = config.sizes.num_experts;
        const std::size_t F = config.sizes.moe_intermediate_size;
        MixtureOfExperts result{linear(name + names.router, E, C),
                                {},
                                std::nullopt,
                                config.sizes.num_experts_per_tok,
                                routing_of(config)};
        if (llama4) result.shared = mlp(name + "shared_expert.", F);
        if (is_stacked(config))
            result.experts = read_stacked_experts(tensors, config, name + "experts.");
        else
            for (std::size_t e = 0; e < E; ++e)
                result.experts.push_back(mlp(name + "experts." + std::to_string(e) + ".", F));
        return result;
    }

    MixtureBlock layer(std::size_t n) const {
        const std::size_t C = config.config.hidden_size;
        const std::string name = "model.layers." + std::to_string(n);
        MixtureBlock block{attention(name, n), MixtureOfExperts{},
                           norm(name + ".input_layernorm", C),
                           norm(name + ".post_attention_layernorm", C)};
        if (config.is_mixture[n])
            block.mlp = mixture(name + names.mlp);
        else
            block.mlp = mlp(name + names.mlp, config.config.intermediate_size);
        return block;
    }
};

// What the files store: the tensors of the model, and those that are stored in another layout,
// which the lists own.
struct StoredTensors {
    const MixtureConfig& config;
    MixtureNames names = names_of(config.model_type);
    std::vector<NamedTensor> tensors{};
    std::list<StackedExperts> stacked{};
    std::list<Linear> interleaved{};

    template <std::size_t N>
    void add(const std::string& name, const xt::xtensor<Real, N>& tensor) {
        tensors.push_back(named(name, tensor));
    }
    void add(const std::string& name, const Linear& linear) {
        add(name + ".weight", linear.weight);
        if (linear.bias) add(name + ".bias", *linear.bias);
    }
    void add(const std::string& name, const LongContextAttention& self_attn) {
        const AttentionLayer& layer = self_attn.layer;
        const auto& [q_proj, k_proj, v_proj, o_proj] = layer.projections;
        if (config.model_type == MixtureModelType::llama4_text &&
            std::holds_alternative<RopeOfTable>(self_attn.position_encoding)) {
            add(name + "q_proj", interleaved.emplace_back(split_half_to_interleaved(
                                     q_proj, layer.num_attention_heads)));
            add(name + "k_proj", interleaved.emplace_back(split_half_to_interleaved(
                                     k_proj, layer.num_key_value_heads)));
        } else {
            add(name + "q_proj", q_proj);
            add(name + "k_proj", k_proj);
        }
        add(name + "v_proj", v_proj);
        add(name + "o_proj", o_proj);
        if (const auto* norm = std::get_if<QKNormWithWeights>(&layer.qk_norm)) {
            add(name + "q_norm.weight", norm->q_weight);
            add(name + "k_norm.weight", norm->k_weight);
        }
        if (const auto& sinks = self_attn.score_function.sinks) add(name + "sinks", *sinks);
    }
    void add(const std::string& name, const GatedMlp& mlp) {
        add(name + names.gate_proj, mlp.gate_proj);
        add(name + names.up_proj, mlp.up_proj);
        add(name + names.down_proj, mlp.down_proj);
    }
    void add(const std::string& name, const MixtureOfExperts& mixture) {
        add(name + names.router, mixture.router);
        if (mixture.shared) add(name + "shared_expert.", *mixture.shared);
        if (!is_stacked(config)) {
            for (std::size_t e = 0; e < mixture.experts.size(); ++e)
                add(name + "experts." + std::to_string(e) + ".",
                    std::get<GatedMlp>(mixture.experts[e]));
            return;
        }
        const StackedExperts& all = stacked.emplace_back(stack_experts(mixture, config));
        add(name + "experts.gate_up_proj", all.gate_up_proj);
        add(name + "experts.down_proj", all.down_proj);
        if (all.down_bias.size() == 0) return;
        add(name + "experts.gate_up_proj_bias", all.gate_up_bias);
        add(name + "experts.down_proj_bias", all.down_bias);
    }
};

}  // namespace

MixtureModel load_mixture_model(const std::string& folder) {
    const JsonFile json(folder + "/config.json");
    const MixtureConfig config = read_mixture_config(json);
    const SafeTensors tensors(folder);
    const Reader reader{config, tensors};
    const std::size_t V = config.config.vocab_size, C = config.config.hidden_size;
    MixtureModel model{config,
                       tensors.read("model.embed_tokens.weight", {V, C}),
                       {},
                       reader.norm("model.norm", C),
                       std::nullopt};
    for (std::size_t n = 0; n < config.config.num_hidden_layers; ++n)
        model.layers.push_back(reader.layer(n));
    if (!config.config.tie_word_embeddings)
        model.lm_head = tensors.read("lm_head.weight", {V, C});
    return model;
}

void export_model(const MixtureModel& model, const std::string& folder, DType dtype) {
    StoredTensors stored{model.config};
    stored.add("model.embed_tokens.weight", model.embed_tokens);
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const std::string name = "model.layers." + std::to_string(n);
        const auto& [self_attn, mlp, attention_norm, ffn_norm] = model.layers[n];
        stored.add(name + ".self_attn.", self_attn);
        stored.add(name + ".input_layernorm.weight", attention_norm.weight);
        stored.add(name + ".post_attention_layernorm.weight", ffn_norm.weight);
        std::visit([&](const auto& typed) { stored.add(name + stored.names.mlp, typed); }, mlp);
    }
    stored.add("model.norm.weight", model.norm.weight);
    if (model.lm_head) stored.add("lm_head.weight", *model.lm_head);
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", stored.tensors, dtype);
    write_json(folder + "/config.json", config_json(model.config, dtype));
}

}  // namespace llm
