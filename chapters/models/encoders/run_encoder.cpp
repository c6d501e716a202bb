#include "chapters/models/encoders/run_encoder.hpp"

#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/encoders/encoder_output.hpp"
#include "chapters/models/load.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void reject_other_inputs(const ModelRun& run, const EncoderFamilyConfig& config) {
    require(!run.prompt, "--prompt: a {} model writes no text; --text TEXT is what it reads",
            config.family->model_type);
    require(run.tokenizer_path.empty() || !run.gguf_file.empty() || !run.texts.empty(),
            "--tokenizer needs --text or --gguf");
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

// The pooling of a model of sentence-transformers is written, too. Without a tokenizer,
// llama.cpp runs the file with ids.
EncoderGgufOptions gguf_options(const ModelRun& run, std::size_t vocab_size) try {
    EncoderGgufOptions options;
    options.dtype = dtype_named(run.dtype);
    options.pooling = pooling_of(run.model_path);
    if (run.tokenizer_path != "none")
        options.tokenizer = tokenizer_metadata(encoder_tokenizer(run, vocab_size), vocab_size);
    return options;
} catch (const ValueError& error) {
    throw ValueError(std::string(error.what()) +
                     "; --tokenizer none writes the file without a tokenizer");
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
    const AnyEncoder encoder = load_any_encoder(run.model_path);
    const EncoderFamilyConfig& config = config_of(encoder);
    reject_other_inputs(run, config);
    std::optional<EncoderGgufOptions> gguf;
    if (!run.gguf_file.empty()) gguf = gguf_options(run, config.vocab_size);
    std::optional<EncoderInput> input;
    if (!run.tokens.empty() || !run.texts.empty()) input = read_encoder_input(run, config);

    show_layers(config);
    show_parameters(count_parameters(encoder));
    if (input) show_outputs(encoder, *input);
    if (gguf) write_gguf_file(encoder, run.gguf_file, *gguf);
    if (run.export_folder.empty()) return;
    export_model(encoder, run.export_folder);
    show("exported to", run.export_folder);
}

}  // namespace llm::models
