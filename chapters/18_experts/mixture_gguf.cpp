#include "chapters/18_experts/mixture_gguf.hpp"

#include <list>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/09_full_model/tensor_names.hpp"
#include "chapters/16_quantization/gguf_export.hpp"
#include "chapters/16_quantization/gguf_tokenizer_export.hpp"
#include "common/files/gguf.hpp"

namespace llm {
namespace {

std::string architecture_of(MixtureModelType type) {
    switch (type) {
        case MixtureModelType::mixtral:
            return "llama";
        case MixtureModelType::qwen3_moe:
            return "qwen3moe";
        case MixtureModelType::gpt_oss:
            return "gpt-oss";
        case MixtureModelType::llama4_text:
            return "llama4";
    }
    throw std::invalid_argument("there is no such model type");
}

void check_mixtral(const MixtureConfig& config) {
    const std::size_t context = config.config.max_position_embeddings;
    for (const AttentionPattern& pattern : config.patterns) {
        const auto* sliding = std::get_if<SlidingWindow>(&pattern);
        require(!sliding || sliding->window >= context,
                "export: llama.cpp's llama has no window: {} tokens do not fit into a window "
                "of {}",
                context, sliding ? sliding->window : 0);
    }
}

void check_qwen3_moe(const MixtureConfig& config) {
    require(config.norm_topk_prob, "export: llama.cpp's qwen3moe normalizes the gates");
    for (std::size_t n = 0; n < config.is_mixture.size(); ++n)
        require(config.is_mixture[n],
                "export: llama.cpp's qwen3moe has a mixture in every layer; layer {} is dense",
                n);
}

void check_gpt_oss(const MixtureConfig& config) {
    for (std::size_t n = 0; n < config.patterns.size(); ++n)
        require(
            std::holds_alternative<SlidingWindow>(config.patterns[n]) == (n % 2 == 0),
            "export: llama.cpp's gpt-oss has windows in layers 0, 2, ... and full attention "
            "in all others");
    require(config.swiglu_limit == 7, "export: llama.cpp's gpt-oss has a swiglu_limit of 7");
    require(!config.yarn || (config.yarn->truncate && config.yarn->beta_fast == 32 &&
                             config.yarn->beta_slow == 1),
            "export: llama.cpp rounds YaRN's limits, of 32 and 1 rotations, to whole pairs");
    require(!config.config.tie_word_embeddings, "export: llama.cpp's gpt-oss has an lm_head");
}

void check_llama4(const MixtureConfig& config) {
    require(config.temperature_tuning && config.temperature_tuning->floor_scale == 8192 &&
                config.temperature_tuning->attn_scale == Real(0.1),
            "export: llama.cpp's llama4 has a floor_scale of 8192 and an attn_scale of 0.1");
    require(
        (config.config.qk_norm == QKNormType::none) == (config.sizes.num_experts == 128),
        "export: llama.cpp's llama4 has no QK norm if it has 128 experts, and one otherwise");
    const std::size_t L = config.config.num_hidden_layers, step = [&] {
        std::size_t first = 0;
        while (first < L && !config.is_mixture[first]) ++first;
        return first + 1;
    }();
    for (std::size_t n = 0; n < L; ++n) {
        const auto* chunked = std::get_if<ChunkedAttention>(&config.patterns[n]);
        require(config.use_rope[n] == ((n + 1) % 4 != 0) &&
                    (!chunked || chunked->chunk_size == 8192),
                "export: llama.cpp's llama4 has full attention without RoPE in layers 3, 7, "
                "... and chunks of 8192 in all others");
        require(config.is_mixture[n] == ((n + 1) % step == 0),
                "export: llama.cpp's llama4 has mixtures at equal distances, unlike layer {}",
                n);
    }
}

// Throws ShapeError if llama.cpp would compute something else.
void check_exportable(const MixtureConfig& config) {
    switch (config.model_type) {
        case MixtureModelType::mixtral:
            return check_mixtral(config);
        case MixtureModelType::qwen3_moe:
            return check_qwen3_moe(config);
        case MixtureModelType::gpt_oss:
            return check_gpt_oss(config);
        case MixtureModelType::llama4_text:
            return check_llama4(config);
    }
}

GgufMetadata model_metadata(const MixtureConfig& given) {
    const std::string architecture = architecture_of(given.model_type);
    GgufMetadata metadata = {{"general.architecture", architecture}};
    for (const auto& entry : size_metadata(architecture, given.config))
        metadata.push_back(entry);
    const auto add = [&](const std::string& key, const GgufValue& value) {
        metadata.emplace_back(architecture + "." + key, value);
    };
    const auto add_size = [&](const std::string& key, std::size_t size) {
        add(key, static_cast<std::int64_t>(size));
    };
    add_size("expert_count", given.sizes.num_experts);
    add_size("expert_used_count", given.sizes.num_experts_per_tok);
    if (given.model_type != MixtureModelType::mixtral)
        add_size("expert_feed_forward_length", given.sizes.moe_intermediate_size);
    if (given.model_type == MixtureModelType::llama4_text) {
        std::size_t first = 0;
        while (!given.is_mixture[first]) ++first;
        add_size("interleave_moe_layer_step", first + 1);
    }
    if (given.model_type == MixtureModelType::gpt_oss)
        add_size("attention.sliding_window", std::get<SlidingWindow>(given.patterns[0]).window);
    if (given.yarn) {
        add("rope.scaling.type", std::string("yarn"));
        add("rope.scaling.factor", double(given.yarn->factor));
        add("rope.scaling.original_context_length",
            static_cast<std::int64_t>(given.yarn->original_max_position_embeddings));
    }
    return metadata;
}

// The tensors of a file in float32: views of the model's, and of those that are stored in
// another layout, which the list owns.
class TensorList {
 public:
    explicit TensorList(const MixtureConfig& config) : config_(config) {}
    const std::vector<NamedGgufTensor>& tensors() const { return tensors_; }

    template <std::size_t N>
    void add(const std::string& name, const xt::xtensor<Real, N>& tensor) {
        const std::span<const Real> values{tensor.data(), tensor.size()};
        tensors_.push_back({name,
                            {DType::float32,
                             {tensor.shape().begin(), tensor.shape().end()},
                             std::as_bytes(values)}});
    }
    void add(const std::string& name, const Linear& linear) {
        add(name + ".weight", linear.weight);
        if (linear.bias) add(name + ".bias", *linear.bias);
    }
    void add_attention(const std::string& layer, const LongContextAttention& self_attn) {
        const AttentionLayer& attention = self_attn.layer;
        const auto& [q_proj, k_proj, v_proj, o_proj] = attention.projections;

        // llama and llama4 rotate interleaved pairs, the others split halves.
        const bool interleaved =
            config_.model_type == MixtureModelType::mixtral ||
            (config_.model_type == MixtureModelType::llama4_text &&
             std::holds_alternative<RopeOfTable>(self_attn.position_encoding));
        const auto in_layout = [&](const Linear& linear,
                                   std::size_t num_heads) -> const Linear& {
            if (!interleaved) return linear;
            return linears_.emplace_back(split_half_to_interleaved(linear, num_heads));
        };
        add(layer + gguf_names.q_proj, in_layout(q_proj, attention.num_attention_heads));
        add(layer + gguf_names.k_proj, in_layout(k_proj, attention.num_key_value_heads));
        add(layer + gguf_names.v_proj, v_proj);
        add(layer + gguf_names.o_proj, o_proj);
        if (const auto* norm = std::get_if<QKNormWithWeights>(&attention.qk_norm)) {
            add(layer + gguf_names.q_norm + ".weight", norm->q_weight);
            add(layer + gguf_names.k_norm + ".weight", norm->k_weight);
        }
        if (const auto& sinks = self_attn.score_function.sinks)
            add(layer + "attn_sinks.weight", *sinks);
    }
    void add_mlp(const std::string& layer, const std::string& suffix, const GatedMlp& mlp) {
        add(layer + gguf_names.gate_proj + suffix, mlp.gate_proj);
        add(layer + gguf_names.up_proj + suffix, mlp.up_proj);
        add(layer + gguf_names.down_proj + suffix, mlp.down_proj);
    }
    void add_mixture(const std::string& layer, const MixtureOfExperts& mixture) {
        add(layer + "ffn_gate_inp", mixture.router);
        if (mixture.shared) add_mlp(layer, "_shexp", *mixture.shared);
        std::vector<const Linear*> gates, ups, downs;
        for (const Expert& expert : mixture.experts)
            std::visit(
                [&](const auto& mlp) {
                    gates.push_back(&mlp.gate_proj);
                    ups.push_back(&mlp.up_proj);
                    downs.push_back(&mlp.down_proj);
                },
                expert);
        add_stack(layer + "ffn_gate_exps", gates);
        add_stack(layer + "ffn_up_exps", ups);
        add_stack(layer + "ffn_down_exps", downs);
    }

 private:
    const MixtureConfig& config_;
    std::vector<NamedGgufTensor> tensors_;
    std::list<Linear> linears_;
    std::list<Tensor3> stacked_weights_;
    std::list<Matrix> stacked_biases_;

    // The matrices of all experts as one tensor, (E, out, in), and their biases, (E, out).
    void add_stack(const std::string& name, const std::vector<const Linear*>& linears) {
        const auto [out, in] = dims(linears.front()->weight);
        Tensor3& weights =
            stacked_weights_.emplace_back(Tensor3(std::array{linears.size(), out, in}));
        for (std::size_t e = 0; e < linears.size(); ++e)
            xt::view(weights, e) = linears[e]->weight;
        add(name + ".weight", weights);
        if (!linears.front()->bias) return;
        Matrix& biases = stacked_biases_.emplace_back(Matrix(std::array{linears.size(), out}));
        for (std::size_t e = 0; e < linears.size(); ++e)
            xt::view(biases, e) = *linears[e]->bias;
        add(name + ".bias", biases);
    }
};

}  // namespace

void export_gguf(const MixtureModel& model, const Tokenizer& tokenizer,
                 const std::string& file) {
    if (std::filesystem::exists(file))
        throw FileError(file + ": exists already and is not overwritten");
    check_exportable(model.config);
    GgufMetadata metadata = model_metadata(model.config);
    for (const auto& entry : tokenizer_metadata(tokenizer, model.config.config.vocab_size))
        metadata.push_back(entry);
    TensorList list(model.config);
    list.add(gguf_names.embed_tokens + ".weight", model.embed_tokens);

    // Llama 3's scaling as divisors of the frequencies.
    const Config& sizes = model.config.config;
    const Vector divisors = inverse_frequencies(sizes.head_dim, sizes.rope_theta) /
                            rope_frequencies(sizes);  // (D/2)
    if (sizes.rope_scaling) list.add("rope_freqs.weight", divisors);
    const bool gpt_oss = model.config.model_type == MixtureModelType::gpt_oss;
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const std::string layer = gguf_names.layer + std::to_string(n) + ".";
        const auto& [self_attn, mlp, attention_norm, ffn_norm] = model.layers[n];
        list.add(layer + gguf_names.attention_norm + ".weight", attention_norm.weight);
        list.add_attention(layer, self_attn);
        list.add(layer + (gpt_oss ? "post_attention_norm" : gguf_names.ffn_norm) + ".weight",
                 ffn_norm.weight);
        if (const auto* mixture = std::get_if<MixtureOfExperts>(&mlp))
            list.add_mixture(layer, *mixture);
        else
            list.add_mlp(layer, "", std::get<GatedMlp>(mlp));
    }
    list.add(gguf_names.norm + ".weight", model.norm.weight);
    if (model.lm_head) list.add(gguf_names.lm_head + ".weight", *model.lm_head);
    write_gguf(file, metadata, list.tensors());
}

}  // namespace llm
