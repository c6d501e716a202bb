#include "chapters/17_long_context/long_context_checkpoint.hpp"

#include <cmath>
#include <memory>

#include "common/files/safetensors.hpp"

namespace llm {
namespace {

// Reads the parts of a model.
struct Reader {
    const LongContextConfig& config;
    const SafeTensors& tensors;

    Linear linear(const std::string& name, std::size_t out, std::size_t in) const {
        return {tensors.read(name + ".weight", {out, in}), std::nullopt};
    }
    RMSNorm norm(const std::string& name, std::size_t size) const {
        const Vector stored = tensors.read(name + ".weight", {size});
        const Real eps = config.config.rms_norm_eps;
        return config.is_gemma() ? gemma_norm(stored, eps) : RMSNorm{stored, eps};
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
        const bool slides = std::holds_alternative<SlidingWindow>(config.patterns[n]);
        if (slides && config.rope_local_base_freq) result.position_encoding = RopeOfTable{1};
        result.score_function.scale = 1 / std::sqrt(config.query_pre_attn_scalar);
        result.score_function.attn_logit_softcapping = config.attn_logit_softcapping;
        return result;
    }

    GatedMlp mlp(const std::string& layer) const {
        const std::size_t C = config.config.hidden_size, F = config.config.intermediate_size;
        return {linear(layer + ".mlp.gate_proj", F, C), linear(layer + ".mlp.up_proj", F, C),
                linear(layer + ".mlp.down_proj", C, F), config.is_gemma() ? GELUTanh : SiLU};
    }

    // Hugging Face calls the norm before the MLP post_attention_layernorm in Mistral. In Gemma,
    // the norm of that name is what it says.
    LongContextLayer layer(std::size_t n) const {
        const std::size_t C = config.config.hidden_size;
        const std::string name = "model.layers." + std::to_string(n);
        const RMSNorm input = norm(name + ".input_layernorm", C);
        const RMSNorm post_attention = norm(name + ".post_attention_layernorm", C);
        if (!config.is_gemma())
            return {LongContextBlock{attention(name, n), mlp(name), input, post_attention}};
        return {LongContextSandwichBlock{attention(name, n), mlp(name), input, post_attention,
                                         norm(name + ".pre_feedforward_layernorm", C),
                                         norm(name + ".post_feedforward_layernorm", C)}};
    }
};

// Refuses tensors with which the model would compute something else.
void refuse_unexpected_tensors(const JsonFile& json, const LongContextConfig& config,
                               const SafeTensors& tensors) {
    std::vector<std::string> unexpected;
    for (const char* name :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
        unexpected.push_back(name + std::string(".bias"));
    if (config.config.qk_norm == QKNormType::none)
        for (const char* name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
            unexpected.push_back(name);
    if (!config.is_gemma())
        for (const char* name :
             {"pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"})
            unexpected.push_back(name);
    for (std::size_t n = 0; n < config.config.num_hidden_layers; ++n)
        for (const std::string& name : unexpected)
            if (const auto tensor = "model.layers." + to_text(n) + "." + name;
                tensors.has(tensor))
                json.refuse("the weights have a tensor " + tensor +
                            ", which these settings do not describe");
}

// What the files store: the tensors, with w instead of 1 + w for Gemma's norms. The list owns
// those.
struct StoredTensors {
    std::vector<NamedTensor> tensors;
    std::vector<std::unique_ptr<Vector>> norms;
    bool gemma;

    void add(const std::string& name, const Linear& linear) {
        tensors.push_back(named(name + ".weight", linear.weight));
    }
    void add(const std::string& name, const Vector& norm_weight) {
        norms.push_back(std::make_unique<Vector>(norm_weight - (gemma ? Real(1) : Real(0))));
        tensors.push_back(named(name + ".weight", *norms.back()));
    }
    void add(const std::string& name, const LongContextAttention& self_attn,
             const GatedMlp& mlp) {
        const auto& [q_proj, k_proj, v_proj, o_proj] = self_attn.layer.projections;
        add(name + ".self_attn.q_proj", q_proj);
        add(name + ".self_attn.k_proj", k_proj);
        add(name + ".self_attn.v_proj", v_proj);
        add(name + ".self_attn.o_proj", o_proj);
        if (const auto* norm = std::get_if<QKNormWithWeights>(&self_attn.layer.qk_norm)) {
            add(name + ".self_attn.q_norm", norm->q_weight);
            add(name + ".self_attn.k_norm", norm->k_weight);
        }
        add(name + ".mlp.gate_proj", mlp.gate_proj);
        add(name + ".mlp.up_proj", mlp.up_proj);
        add(name + ".mlp.down_proj", mlp.down_proj);
    }
    void add(const std::string& name, const LongContextLayer& layer) {
        if (const auto* block = std::get_if<LongContextBlock>(&layer.block)) {
            add(name, block->self_attn, block->mlp);
            add(name + ".input_layernorm", block->attention_norm.weight);
            add(name + ".post_attention_layernorm", block->ffn_norm.weight);
            return;
        }
        const auto& block = std::get<LongContextSandwichBlock>(layer.block);
        add(name, block.self_attn, block.mlp);
        add(name + ".input_layernorm", block.attention_norm.weight);
        add(name + ".post_attention_layernorm", block.attention_output_norm.weight);
        add(name + ".pre_feedforward_layernorm", block.ffn_norm.weight);
        add(name + ".post_feedforward_layernorm", block.ffn_output_norm.weight);
    }
};

}  // namespace

LongContextModel load_long_context_model(const std::string& folder) {
    const JsonFile json(folder + "/config.json");
    const LongContextConfig config = read_long_context_config(json);
    const SafeTensors tensors(folder);
    refuse_unexpected_tensors(json, config, tensors);
    const Reader reader{config, tensors};
    const std::size_t V = config.config.vocab_size, C = config.config.hidden_size;
    LongContextModel model{config,
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

void export_model(const LongContextModel& model, const std::string& folder, DType dtype) {
    StoredTensors stored{{}, {}, model.config.is_gemma()};
    stored.tensors.push_back(named("model.embed_tokens.weight", model.embed_tokens));
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        stored.add("model.layers." + std::to_string(n), model.layers[n]);
    stored.add("model.norm", model.norm.weight);
    if (model.lm_head) stored.tensors.push_back(named("lm_head.weight", *model.lm_head));
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", stored.tensors, dtype);
    write_json(folder + "/config.json", config_json(model.config, dtype));
}

}  // namespace llm
