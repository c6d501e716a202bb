// The demo of chapter 17 for published models: --model.
#include "chapters/11_generation/special_tokens.hpp"
#include "chapters/17_long_context/demo/demo.hpp"
#include "chapters/17_long_context/long_context_checkpoint.hpp"
#include "chapters/17_long_context/long_context_gguf.hpp"
#include "chapters/17_long_context/model_output.hpp"

namespace llm {
namespace {

std::string text_of(const AttentionPattern& pattern) {
    const auto* sliding = std::get_if<SlidingWindow>(&pattern);
    return sliding ? "window of " + to_text(sliding->window) : "full";
}

void show_layers(const LongContextModel& model) {
    const auto& [type, config, patterns, local_theta, rope_factor, scalar, attn_cap,
                 final_cap] = model.config;
    step("The layers of a " + to_text(type) + " model");
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < patterns.size(); ++n) {
        const bool slides = std::holds_alternative<SlidingWindow>(patterns[n]);
        const Real theta = slides && local_theta ? *local_theta : config.rope_theta;
        rows.push_back(
            {to_text(n), text_of(patterns[n]), brief(double(theta)),
             slides ? "1" : brief(double(rope_factor)),
             with_commas(num_cached_tokens(patterns[n], config.max_position_embeddings))});
    }
    show_table({"layer", "attention", "theta", "positions divided by", "cached tokens"}, rows);
    show("scale of scores", fixed(1 / std::sqrt(double(scalar)), 4));
    if (attn_cap) show("soft cap of scores", double(*attn_cap));
    if (final_cap) show("soft cap of logits", double(*final_cap));
    const std::uint64_t bytes =
        rolling_cache_bytes(patterns, config.max_position_embeddings,
                            config.num_key_value_heads, config.head_dim, sizeof(Real));
    show("bytes of the KV caches at most", with_commas(bytes));
}

}  // namespace

void run_model(const ModelRun& run, Generator& generator) {
    const LongContextModel model = load_long_context_model(run.model_path);
    // Read all input before anything is shown.
    std::optional<Tokenizer> tokenizer;
    std::vector<Id> prompt_ids;
    if (run.prompt || !run.gguf_file.empty())
        tokenizer = load_tokenizer_of_model(run.model_path, run.tokenizer_path,
                                            model.config.config.vocab_size);
    if (run.prompt) {
        prompt_ids = encode_prompt(*tokenizer, *run.prompt);
        check_input(model.config.config, one_sequence(prompt_ids));
    }
    if (!run.tokens.empty()) check_input(model.config.config, one_sequence(run.tokens));

    show_layers(model);
    if (!run.tokens.empty()) show_next_tokens(run.tokens, model(one_sequence(run.tokens)));
    if (run.prompt)
        write_continuation(
            *tokenizer, prompt_ids, run.generation,
            [&](const GenerationConfig& config, const std::function<void(Id)>& on_token) {
                generate(model, prompt_ids, config, generator, on_token);
            });
    if (!run.gguf_file.empty()) {
        export_gguf(model, *tokenizer, run.gguf_file);
        show("written", run.gguf_file);
    }
    if (run.export_folder.empty()) return;
    export_model(model, run.export_folder);
    show("exported to", run.export_folder);
}

}  // namespace llm
