#include "chapters/models/encoders/run_encoder.hpp"

#include <algorithm>

#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// What other programs need, or a model that predicts the next token.
void reject_other_inputs(const ModelRun& run, const EncoderFamilyConfig& config) {
    const std::string type = "a " + config.family->model_type + " model";
    require(!run.prompt,
            "--prompt: {} does not predict the next token, and its tokenizer is not read; "
            "--tokens IDS runs it",
            type);
    require(run.tokenizer_path.empty() || !run.gguf_file.empty(),
            "--tokenizer: {} takes ids alone, --tokens IDS", type);
}

// The texts of --tokens, padded, with the token types of --token-types.
BatchEncoding batch_of(const ModelRun& run, const EncoderFamilyConfig& config) {
    BatchEncoding batch = pad(run.tokens, config.pad_token_id);
    if (!run.token_types.empty())
        require(run.token_types.size() == run.tokens.size(),
                "--token-types: the number of texts is {}, that of --tokens {}",
                run.token_types.size(), run.tokens.size());
    for (std::size_t b = 0; b < run.token_types.size(); ++b) {
        const std::vector<Id>& types = run.token_types[b];
        require(types.size() == run.tokens[b].size(),
                "--token-types: text {} has {} token types, but {} tokens", b, types.size(),
                run.tokens[b].size());
        std::copy(types.begin(), types.end(), &batch.token_type_ids(b, 0));
    }
    check_batch(config, batch);
    return batch;
}

void show_layers(const EncoderFamilyConfig& config) {
    step("The layers of a " + config.family->model_type + " model");
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n) {
        const bool has_window = config.windows[n];
        const auto theta = has_window ? config.windowed->rope_theta : config.rope_theta;
        rows.push_back({to_text(n),
                        has_window ? to_text(config.windowed->window) + " tokens on either side"
                                   : "all tokens",
                        theta ? brief(double(*theta)) : "-",
                        to_text(config.intermediate_size)});
    }
    show_table({"layer", "attends to", "theta", "MLP"}, rows);
    show("class", config.architecture);
    show("vocab_size", config.vocab_size);
    show("hidden_size", config.hidden_size);
    show("heads", to_text(config.num_attention_heads) + " of " +
                      to_text(config.hidden_size / config.num_attention_heads));
    show("max_position_embeddings", config.max_position_embeddings);
    if (config.type_vocab_size > 0) show("type_vocab_size", config.type_vocab_size);
    show("activation", config.hidden_act.name);
    show("layer_norm_eps", brief(double(config.layer_norm_eps)));
}

// The largest logit of each token. Padding has none.
IdMatrix most_likely_tokens(const Tensor3& logits, const BatchEncoding& batch,
                            Id pad_token_id) {
    const std::size_t vocab_size = logits.shape(2);
    IdMatrix tokens(batch.input_ids.shape());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const Real* row = logits.data() + i * vocab_size;
        tokens.data()[i] = batch.padding_mask.data()[i] == 0
                               ? pad_token_id
                               : Id(std::max_element(row, row + vocab_size) - row);
    }
    return tokens;
}

void show_labels(const Matrix& logits, const EncoderFamilyConfig& config) {
    std::vector<TableRow> rows;
    for (std::size_t b = 0; b < logits.shape(0); ++b) {
        const Vector row = xt::view(logits, b);
        const auto best = std::size_t(std::max_element(row.begin(), row.end()) - row.begin());
        rows.push_back({to_text(b), config.label(best), fixed(double(row(best)), 4)});
    }
    show_table({"text", "most likely label", "logit"}, rows);
}

// Each tensor has Hugging Face's name, which is that of its file with --save.
void show_outputs(const AnyEncoder& encoder, const BatchEncoding& batch) {
    step("What it computes for " + to_text(batch.input_ids.shape(0)) +
         (batch.input_ids.shape(0) == 1 ? " text" : " texts"));
    const EncoderFamilyConfig& config = config_of(encoder);
    const EncoderOutputs outputs = encode(encoder, batch);
    show("input_ids", batch.input_ids);
    show("attention_mask", batch.padding_mask);
    if (config.type_vocab_size > 0) show("token_type_ids", batch.token_type_ids);
    show("last_hidden_state", outputs.last_hidden_state);
    if (outputs.pooler_output) show("pooler_output", *outputs.pooler_output);
    if (outputs.mlm_logits) {
        show("mlm_logits", *outputs.mlm_logits);
        show("most_likely_tokens",
             most_likely_tokens(*outputs.mlm_logits, batch, config.pad_token_id));
    }
    if (outputs.nsp_logits) show("nsp_logits", *outputs.nsp_logits);
    if (!outputs.logits) return;
    show("logits", *outputs.logits);
    show_labels(*outputs.logits, config);
}

// The pooling of a model of sentence-transformers is written, too.
EncoderGgufOptions gguf_options(const ModelRun& run, std::size_t vocab_size) {
    EncoderGgufOptions options;
    options.dtype = dtype_named(run.dtype);
    options.pooling = pooling_of(run.model_path);
    options.tokenizer = tokenizer_metadata(tokenizer_of(run, vocab_size), vocab_size);
    return options;
}

void write_gguf_file(const AnyEncoder& encoder, const std::string& file,
                     const EncoderGgufOptions& options) {
    for (const auto& [name, dtype] : export_gguf(encoder, file, options))
        show(name + " is stored as", std::string(to_text(dtype)));
    show("written, without heads", file);
}

}  // namespace

void show_parameters(const EncoderParameters& count) {
    std::vector<TableRow> rows;
    for (const auto& [part, number] : {std::pair{"embeddings", count.embeddings},
                                       {"attention", count.attention},
                                       {"MLP", count.mlp},
                                       {"norms", count.norms},
                                       {"heads", count.heads},
                                       {"all", count.total()}})
        rows.push_back(
            {part, with_commas(number), with_commas(4 * number), with_commas(2 * number)});
    show_table({"part", "parameters", "bytes in float32", "in bfloat16"}, rows);
}

void run_encoder(const ModelRun& run) {
    // Read all input before anything is shown.
    if (!run.gguf_file.empty()) reject_existing(run.gguf_file);
    const AnyEncoder encoder = is_gguf(run.model_path) ? load_encoder_gguf(run.model_path)
                                                       : load_encoder(run.model_path);
    const EncoderFamilyConfig& config = config_of(encoder);
    reject_other_inputs(run, config);
    std::optional<EncoderGgufOptions> gguf;
    if (!run.gguf_file.empty()) gguf = gguf_options(run, config.vocab_size);
    std::optional<BatchEncoding> batch;
    if (!run.tokens.empty()) batch = batch_of(run, config);

    show_layers(config);
    show_parameters(count_parameters(encoder));
    if (batch) show_outputs(encoder, *batch);
    if (gguf) write_gguf_file(encoder, run.gguf_file, *gguf);
    if (run.export_folder.empty()) return;
    export_model(encoder, run.export_folder);
    show("exported to", run.export_folder);
}

}  // namespace llm::models
