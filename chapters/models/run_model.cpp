#include "chapters/models/run_model.hpp"

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/encoders/run_encoder.hpp"
#include "chapters/models/encoders/run_t5.hpp"
#include "chapters/models/encoders/run_vit.hpp"
#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/family_gguf.hpp"
#include "chapters/models/gguf/gguf_export.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/load.hpp"
#include "chapters/models/model_output.hpp"
#include "chapters/models/model_size.hpp"
#include "chapters/models/parameter_count.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

std::string text_of(const AttentionConfig& attention) {
    if (const auto* sliding = std::get_if<SlidingWindow>(&attention.pattern))
        return "window of " + to_text(sliding->window);
    if (const auto* chunked = std::get_if<ChunkedAttention>(&attention.pattern))
        return "chunks of " + to_text(chunked->chunk_size);
    return attention.rope ? "full" : "full, no RoPE";
}
std::string text_of(const LinearSizes& sizes) {
    return "linear, " + to_text(sizes.num_value_heads) + " states of " +
           to_text(sizes.key_head_dim) + " × " + to_text(sizes.value_head_dim);
}
std::string text_of(const GatedConvolutionSizes& sizes) {
    return "convolution of " + to_text(sizes.conv_kernel_dim);
}
std::string text_of(const LatentConfig& latent) {
    return "latent, " + to_text(latent.sizes.kv_lora_rank) + " + " +
           to_text(latent.sizes.qk_rope_head_dim);
}
std::string text_of(const MlpConfig& mlp) { return "dense, " + to_text(mlp.intermediate_size); }
std::string text_of(const MoeConfig& moe) {
    const ExpertSizes& experts = moe.sizes;
    return to_text(experts.num_experts_per_tok) + " of " + to_text(experts.num_experts) +
           " experts of " + to_text(experts.moe_intermediate_size) + shared_experts_of(experts);
}

std::string cached_tokens(const LayerConfig& layer, std::size_t context) {
    if (const AttentionConfig* attention = attention_of(layer))
        return with_commas(num_cached_tokens(attention->pattern, context));
    return std::holds_alternative<LatentConfig>(layer.mixer) ? with_commas(context) : "-";
}

// The scaling of the layers' RoPE.
void show_scaling(const FamilyConfig& config) {
    const RopeParameters* rope = main_rope(config);
    if (!rope) return;
    if (const auto* divisors = std::get_if<FrequencyFactors>(&rope->scaling))
        show("positions of full attention are divided by", double(divisors->factors(0)));
    if (const auto* yarn = std::get_if<YarnScaling>(&rope->scaling))
        show("YaRN factor", double(yarn->factor));
}

void show_layers(const FamilyModel& model) {
    const FamilyConfig& config = model.config;
    step("The layers of a " + config.family->model_type + " model");
    const std::size_t context = config.max_position_embeddings;
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < config.layers.size(); ++n) {
        const LayerConfig& layer = config.layers[n];
        const auto text = [](const auto& part) { return text_of(part); };
        const RopeParameters* rope = rope_of(layer);
        rows.push_back({to_text(n), std::visit(text, layer.mixer),
                        rope ? brief(double(rope->rope_theta)) : "-",
                        std::visit(text, layer.mlp), cached_tokens(layer, context)});
    }
    show_table({"layer", "attention", "theta", "MLP", "cached tokens"}, rows);
    show_scaling(config);
    const AttentionConfig* attention = first_attention(config);
    if (attention) show("scale of scores", fixed(attention->scale, 4));
    if (const auto* latent = std::get_if<LatentConfig>(&config.layers.front().mixer))
        show("scale of scores", fixed(latent->scale(), 4));
    for (const auto& [name, multiplier] : {std::pair{"embeddings", model.embedding_scale},
                                           {"residuals", config.residual_multiplier},
                                           {"logits", 1 / config.logits_scaling}})
        if (multiplier != 1)
            show("multiplier of the " + std::string(name), brief(double(multiplier)));
    if (attention && attention->attn_logit_softcapping)
        show("soft cap of scores", double(*attention->attn_logit_softcapping));
    if (config.final_logit_softcapping)
        show("soft cap of logits", double(*config.final_logit_softcapping));
    if (config.num_nextn_predict_layers > 0)
        show("layers for multi-token prediction, not read", config.num_nextn_predict_layers);
    const ParametersByPart count = count_parameters(config);
    show("parameters", with_commas(count.total()));
    if (first_moe(config)) show("active per token", with_commas(count.active()));
    show("bytes of the KV caches at most",
         with_commas(kv_cache_bytes(config, context, 1, sizeof(Real))));
}

void show_layers(const Model& model) {
    const Config& config = model.config;
    step("The layers of the model");
    show("layers", config.num_hidden_layers);
    show("hidden_size", config.hidden_size);
    show("query heads, key/value heads of head_dim",
         to_text(config.num_attention_heads) + ", " + to_text(config.num_key_value_heads) +
             " of " + to_text(config.head_dim));
    show("intermediate_size", config.intermediate_size);
    show("rope_theta", double(config.rope_theta));
    show("max_position_embeddings", config.max_position_embeddings);
    show("parameters", with_commas(count_parameters(model).total()));
}

template <class AnyModel>
void run_with(const AnyModel& model, const ModelRun& run, Generator& generator) {
    // Read all input before anything is shown.
    std::optional<Tokenizer> tokenizer;
    std::vector<Id> prompt_ids;
    if (!run.gguf_file.empty()) reject_existing(run.gguf_file);
    if (run.prompt || !run.gguf_file.empty())
        tokenizer = tokenizer_of(run, model.config.vocab_size);
    if (run.prompt) {
        prompt_ids = encode_prompt(*tokenizer, *run.prompt);
        check_input(model.config, one_sequence(prompt_ids));
    }
    require(run.tokens.size() <= 1 && run.token_types.empty(),
            "--tokens: a decoder runs one text, without --token-types");
    require(run.texts.empty(), "--text is for encoders; a decoder continues a --prompt");
    if (!run.tokens.empty()) check_input(model.config, one_sequence(run.tokens.front()));

    show_layers(model);
    if (!run.tokens.empty())
        show_next_tokens(run.tokens.front(), model(one_sequence(run.tokens.front())));
    if (run.prompt)
        write_continuation(
            *tokenizer, prompt_ids, run.generation,
            [&](const GenerationConfig& config, const std::function<void(Id)>& on_token) {
                generate(model, prompt_ids, config, generator, on_token);
            });
    if (!run.gguf_file.empty()) {
        for (const auto& [name, dtype] :
             export_gguf(model, *tokenizer, run.gguf_file, dtype_named(run.dtype)))
            show(name + " is stored as", std::string(to_text(dtype)));
        show("written", run.gguf_file);
    }
    if (run.export_folder.empty()) return;
    export_model(model, run.export_folder);
    show("exported to", run.export_folder);
}

}  // namespace

Tokenizer tokenizer_of(const ModelRun& run, std::size_t vocab_size) {
    try {
        return load_tokenizer_of_model(run.model_path, run.tokenizer_path, vocab_size);
    } catch (const FileError& error) {
        if (!run.tokenizer_path.empty()) throw;
        throw FileError(std::string(error.what()) +
                        "; --prompt and --gguf need a tokenizer, --tokenizer PATH names one");
    }
}

void run_model(const ModelRun& run, Generator& generator) {
    const ModelKind kind = kind_of(run.model_path);
    if (kind == ModelKind::encoder_decoder) return run_t5(run, generator);
    require(run.decoder_tokens.empty(), "--decoder-tokens: the model has not both stacks");
    if (kind == ModelKind::vision) return run_vit(run);
    require(run.pixels_file.empty(), "--pixels: only a vit model reads pictures");
    if (kind == ModelKind::encoder) return run_encoder(run);
    std::visit([&](const auto& model) { run_with(model, run, generator); },
               load_any_model(run.model_path));
}

}  // namespace llm::models
