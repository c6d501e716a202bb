#include "chapters/models/encoders/run_t5.hpp"

#include "chapters/models/encoders/run_encoder.hpp"
#include "chapters/models/encoders/t5_gguf.hpp"
#include "chapters/models/model_output.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void reject_inputs_of_others(const ModelRun& run, const T5FamilyConfig& config) {
    require(run.token_types.empty(), "--token-types: a t5 model has none");
    require(run.decoder_tokens.empty() || config.has_decoder,
            "--decoder-tokens: {} has no decoder", config.architecture);
    require(!run.prompt || config.has_lm_head, "--prompt: {} does not predict tokens",
            config.architecture);
    require(run.decoder_tokens.empty() || run.decoder_tokens.size() == run.tokens.size(),
            "--decoder-tokens: the number of texts is {}, that of --tokens {}",
            run.decoder_tokens.size(), run.tokens.size());
}

// The texts of --tokens, and what the decoder has written: the start token alone, if there is
// no
// --decoder-tokens. Both are padded.
struct T5Texts {
    BatchEncoding batch;
    IdMatrix decoder_input_ids;
};
T5Texts texts_of(const ModelRun& run, const T5FamilyConfig& config) {
    std::vector<std::vector<Id>> written = run.decoder_tokens;
    if (written.empty()) written.assign(run.tokens.size(), {config.decoder_start_token_id});
    T5Texts texts{pad(run.tokens, config.pad_token_id),
                  pad(written, config.pad_token_id).input_ids};
    Config vocabulary = config.sizes;
    for (const IdMatrix* ids : {&texts.batch.input_ids, &texts.decoder_input_ids})
        check_input(vocabulary, *ids);
    return texts;
}

void show_stacks(const T5FamilyConfig& config) {
    step("The stacks of a t5 model");
    const std::string mlp = (config.is_gated_act ? "gated " : "") +
                            std::string(config.activation.name) + ", " +
                            to_text(config.sizes.intermediate_size);
    std::vector<TableRow> rows = {
        {"encoder", to_text(config.sizes.num_hidden_layers), "all tokens", mlp}};
    if (config.has_decoder)
        rows.push_back({"decoder", to_text(config.num_decoder_layers),
                        "those before, and the encoder", mlp});
    show_table({"stack", "layers", "attends to", "MLP"}, rows);
    show("class", config.architecture);
    show("vocab_size", config.sizes.vocab_size);
    show("hidden_size", config.sizes.hidden_size);
    show("heads",
         to_text(config.sizes.num_attention_heads) + " of " + to_text(config.sizes.head_dim));
    show("buckets of distances", to_text(config.relative_attention_num_buckets) + " up to " +
                                     to_text(config.relative_attention_max_distance));
    show("layer_norm_epsilon", brief(double(config.sizes.rms_norm_eps)));
    if (config.has_lm_head) show("logits are scaled", config.scale_decoder_outputs);
}

// Each tensor has Hugging Face's name, which is that of its file with --save.
void show_t5_outputs(const T5FamilyModel& t5, const T5Texts& texts) {
    step("What it computes for " + to_text(texts.batch.input_ids.shape(0)) +
         (texts.batch.input_ids.shape(0) == 1 ? " text" : " texts"));
    const T5Outputs outputs = run_texts(t5, texts.batch, texts.decoder_input_ids);
    show("input_ids", texts.batch.input_ids);
    show("attention_mask", texts.batch.padding_mask);
    if (outputs.encoder_last_hidden_state) {
        show("decoder_input_ids", texts.decoder_input_ids);
        show("encoder_last_hidden_state", *outputs.encoder_last_hidden_state);
    }
    show("last_hidden_state", outputs.last_hidden_state);
    if (outputs.logits) show("logits", *outputs.logits);
}

Tokenizer tokenizer_of_t5(const ModelRun& run, std::size_t vocab_size) try {
    return load_tokenizer(run.tokenizer_path.empty()
                              ? find_tokenizer_file(run.model_path, vocab_size)
                              : run.tokenizer_path,
                          vocab_size);
} catch (const FileError& error) {
    if (!run.tokenizer_path.empty()) throw;
    throw FileError(std::string(error.what()) +
                    "; --prompt and --gguf need a tokenizer, --tokenizer PATH names one");
}

// The text that the encoder reads, with the tokens that its tokenizer adds: </s>.
struct T5Prompt {
    Tokenizer tokenizer;
    std::vector<Id> ids;
};
T5Prompt prompt_of(const ModelRun& run, const T5FamilyConfig& config) {
    T5Prompt prompt{tokenizer_of_t5(run, config.sizes.vocab_size), {}};
    prompt.ids = prompt.tokenizer.encode(*run.prompt);
    require(!prompt.ids.empty(), "--prompt: the encoder needs at least one token");
    prompt.tokenizer.eos_token_ids = config.eos_token_ids;
    return prompt;
}

}  // namespace

void run_t5(const ModelRun& run, Generator& generator) {
    // Read all input before anything is shown.
    if (!run.gguf_file.empty()) reject_existing(run.gguf_file);
    const T5FamilyModel t5 =
        is_gguf(run.model_path) ? load_t5_gguf(run.model_path) : load_t5(run.model_path);
    reject_inputs_of_others(run, t5.config);
    std::optional<T5Texts> texts;
    if (!run.tokens.empty()) texts = texts_of(run, t5.config);
    std::optional<T5Prompt> prompt;
    if (run.prompt) prompt = prompt_of(run, t5.config);
    const std::size_t V = t5.config.sizes.vocab_size;
    GgufMetadata vocabulary;
    if (!run.gguf_file.empty()) vocabulary = tokenizer_metadata(tokenizer_of_t5(run, V), V);

    show_stacks(t5.config);
    show_parameters(count_parameters(t5));
    if (texts) show_t5_outputs(t5, *texts);
    if (prompt)
        write_continuation(
            prompt->tokenizer, {t5.config.decoder_start_token_id}, run.generation,
            [&](const GenerationConfig& config, const std::function<void(Id)>& on_token) {
                generate(t5, prompt->ids, config, generator, on_token);
            });
    if (!run.gguf_file.empty()) {
        for (const auto& [name, dtype] :
             export_gguf(t5, run.gguf_file, dtype_named(run.dtype), vocabulary))
            show(name + " is stored as", std::string(to_text(dtype)));
        show("written, the encoder alone", run.gguf_file);
    }
    if (run.export_folder.empty()) return;
    export_model(t5, run.export_folder);
    show("exported to", run.export_folder);
}

}  // namespace llm::models
