#include "chapters/models/run_model.hpp"

#include "chapters/09_full_model/parameters.hpp"
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

std::string text_of(const FamilyConfig& config, const LayerConfig& layer) {
    if (const auto* sliding = std::get_if<SlidingWindow>(&layer.pattern))
        return "window of " + to_text(sliding->window);
    if (const auto* chunked = std::get_if<ChunkedAttention>(&layer.pattern))
        return "chunks of " + to_text(chunked->chunk_size);
    if (layer.is_linear)
        return "linear, " + to_text(config.linear->num_value_heads) + " states of " +
               to_text(config.linear->key_head_dim) + " × " +
               to_text(config.linear->value_head_dim);
    if (config.latent)
        return "latent, " + to_text(config.latent->kv_lora_rank) + " + " +
               to_text(config.latent->qk_rope_head_dim);
    return layer.use_rope ? "full" : "full, no RoPE";
}

std::string theta_of(const FamilyConfig& config, const LayerConfig& layer) {
    if (!layer.use_rope || layer.is_linear) return "-";
    const bool slides = std::holds_alternative<SlidingWindow>(layer.pattern);
    return brief(double(slides && config.rope_local_base_freq ? *config.rope_local_base_freq
                                                              : config.rope_theta));
}

std::string mlp_of(const FamilyConfig& config, const LayerConfig& layer) {
    const ExpertSizes& experts = config.experts;
    if (!layer.is_moe) return "dense, " + to_text(config.intermediate_size);
    return to_text(experts.num_experts_per_tok) + " of " + to_text(experts.num_experts) +
           " experts of " + to_text(experts.moe_intermediate_size) + shared_experts_of(experts);
}

void show_layers(const FamilyModel& model) {
    const FamilyConfig& config = model.config;
    step("The layers of a " + config.family->model_type + " model");
    const std::size_t context = config.max_position_embeddings;
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < config.layers.size(); ++n) {
        const LayerConfig& layer = config.layers[n];
        rows.push_back(
            {to_text(n), text_of(config, layer), theta_of(config, layer), mlp_of(config, layer),
             layer.is_linear ? "-" : with_commas(num_cached_tokens(layer.pattern, context))});
    }
    show_table({"layer", "attention", "theta", "MLP", "cached tokens"}, rows);
    if (config.rope_factor != 1)
        show("positions of full attention are divided by", double(config.rope_factor));
    if (config.yarn) show("YaRN factor", double(config.yarn->factor));
    show("scale of scores", fixed(double(score_scale(config)), 4));
    for (const auto& [name, multiplier] : {std::pair{"embeddings", model.embedding_scale},
                                           {"residuals", config.residual_multiplier},
                                           {"logits", 1 / config.logits_scaling}})
        if (multiplier != 1)
            show("multiplier of the " + std::string(name), brief(double(multiplier)));
    if (config.attn_logit_softcapping)
        show("soft cap of scores", double(*config.attn_logit_softcapping));
    if (config.final_logit_softcapping)
        show("soft cap of logits", double(*config.final_logit_softcapping));
    if (config.num_nextn_predict_layers > 0)
        show("layers for multi-token prediction, not read", config.num_nextn_predict_layers);
    const ParametersByPart count = count_parameters(config);
    show("parameters", with_commas(count.total()));
    if (config.experts.num_experts > 0) show("active per token", with_commas(count.active()));
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
        tokenizer = load_tokenizer_of_model(run.model_path, run.tokenizer_path,
                                            model.config.vocab_size);
    if (run.prompt) {
        prompt_ids = encode_prompt(*tokenizer, *run.prompt);
        check_input(model.config, one_sequence(prompt_ids));
    }
    if (!run.tokens.empty()) check_input(model.config, one_sequence(run.tokens));

    show_layers(model);
    if (!run.tokens.empty()) show_next_tokens(run.tokens, model(one_sequence(run.tokens)));
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

void run_model(const ModelRun& run, Generator& generator) {
    std::visit([&](const auto& model) { run_with(model, run, generator); },
               load_any_model(run.model_path));
}

}  // namespace llm::models
