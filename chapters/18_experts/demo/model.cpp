// The demo of chapter 18 for published models: --model.
#include "chapters/11_generation/special_tokens.hpp"
#include "chapters/17_long_context/model_output.hpp"
#include "chapters/18_experts/demo/demo.hpp"
#include "chapters/18_experts/mixture_checkpoint.hpp"
#include "chapters/18_experts/mixture_counts.hpp"
#include "chapters/18_experts/mixture_gguf.hpp"

namespace llm {
namespace {

std::string text_of(const LongContextAttention& attention) {
    if (const auto* sliding = std::get_if<SlidingWindow>(&attention.pattern))
        return "window of " + to_text(sliding->window);
    if (const auto* chunked = std::get_if<ChunkedAttention>(&attention.pattern))
        return "chunks of " + to_text(chunked->chunk_size);
    return std::holds_alternative<NoPE>(attention.position_encoding) ? "full, no RoPE" : "full";
}

void show_layers(const MixtureModel& model) {
    const MixtureConfig& config = model.config;
    step("The layers of a " + to_text(config.model_type) + " model");
    const std::string mixture = to_text(config.sizes.num_experts_per_tok) + " of " +
                                to_text(config.sizes.num_experts) + " experts of " +
                                to_text(config.sizes.moe_intermediate_size) +
                                (config.sizes.n_shared_experts > 0 ? ", one shared" : "");
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        rows.push_back({to_text(n), text_of(model.layers[n].self_attn),
                        config.is_mixture[n]
                            ? mixture
                            : "dense, " + to_text(config.config.intermediate_size)});
    show_table({"layer", "attention", "MLP"}, rows);
    const MixtureCount count = count_parameters(config);
    show("parameters", with_commas(count.total()));
    show("active per token", with_commas(count.active()));
    if (config.yarn) show("YaRN factor", double(config.yarn->factor));
}

}  // namespace

void run_model(const MixtureModelRun& run, Generator& generator) {
    const MixtureModel model = load_mixture_model(run.model_path);
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
