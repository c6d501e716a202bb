#include "chapters/models/encoders/run_vit.hpp"

#include <algorithm>
#include <numeric>

#include "chapters/01_masking/masking.hpp"
#include "chapters/models/encoders/encoder_family.hpp"
#include "chapters/models/encoders/vit.hpp"
#include "common/files/npy.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void reject_texts(const ModelRun& run) {
    for (const auto& [option, is_given] : {std::pair{"--tokens", !run.tokens.empty()},
                                           {"--prompt", run.prompt.has_value()},
                                           {"--tokenizer", !run.tokenizer_path.empty()}})
        require(!is_given, "{}: a vit model reads pictures, --pixels FILE.npy", option);
    require(run.gguf_file.empty(), "--gguf: llama.cpp has no vit model");
}

Tensor4 read_pixel_values(const std::string& file) {
    const NpyArray array = read_npy(file);
    if (array.shape.size() != 4)
        throw FileError(file + ": the array has " + to_text(array.shape.size()) +
                        " axes; pictures have four: (B, channels, height, width)");
    Tensor4 pixel_values(
        std::array{array.shape[0], array.shape[1], array.shape[2], array.shape[3]});
    std::copy(array.elements.begin(), array.elements.end(), pixel_values.begin());
    return pixel_values;
}

void show_settings(const VitFamilyConfig& config) {
    const std::size_t P = config.patch_size;
    step("The layers of a vit model");
    show("class", config.architecture);
    show("pixels", to_text(config.image_height) + " x " + to_text(config.image_width) + ", " +
                       to_text(config.num_channels) +
                       (config.num_channels == 1 ? " channel" : " channels"));
    show("patches", to_text(config.image_height / P) + " x " + to_text(config.image_width / P) +
                        " of " + to_text(P) + " x " + to_text(P) + " pixels");
    show("layers", config.num_hidden_layers);
    show("hidden_size", config.hidden_size);
    show("heads", to_text(config.num_attention_heads) + " of " +
                      to_text(config.hidden_size / config.num_attention_heads));
    show("intermediate_size", config.intermediate_size);
    show("activation", config.hidden_act.name);
    show("layer_norm_eps", brief(double(config.layer_norm_eps)));
}

void show_vit_parameters(const VitParameters& count) {
    std::vector<TableRow> rows;
    for (const auto& [part, number] : {std::pair{"embeddings", count.embeddings},
                                       {"layers", count.layers},
                                       {"heads", count.heads},
                                       {"all", count.total()}})
        rows.push_back(
            {part, with_commas(number), with_commas(4 * number), with_commas(2 * number)});
    show_table({"part", "parameters", "bytes in float32", "in bfloat16"}, rows);
}

// The most likely labels of each picture, with their probabilities.
void show_most_likely(const Matrix& logits, const VitFamilyConfig& config) {
    const Matrix probabilities = softmax(logits);  // (B, labels)
    std::vector<TableRow> rows;
    for (std::size_t b = 0; b < logits.shape(0); ++b) {
        std::vector<std::size_t> labels(logits.shape(1));
        std::iota(labels.begin(), labels.end(), std::size_t{0});
        std::stable_sort(labels.begin(), labels.end(), [&](std::size_t i, std::size_t j) {
            return logits(b, i) > logits(b, j);
        });
        labels.resize(std::min(labels.size(), std::size_t{3}));
        for (const std::size_t label : labels)
            rows.push_back({to_text(b), label_of(config.id2label, label),
                            fixed(100 * double(probabilities(b, label)), 1)});
    }
    show_table({"picture", "most likely labels", "%"}, rows);
}

// Each tensor has Hugging Face's name, which is that of its file with --save.
void show_vit_outputs(const VitFamilyModel& model, const VitOutputs& outputs) {
    const std::size_t count = outputs.last_hidden_state.shape(0);
    step("What it computes for " + to_text(count) + (count == 1 ? " picture" : " pictures"));
    show("last_hidden_state", outputs.last_hidden_state);
    if (outputs.pooler_output) show("pooler_output", *outputs.pooler_output);
    if (!outputs.logits) return;
    show("logits", *outputs.logits);
    show_most_likely(*outputs.logits, model.config);
}

}  // namespace

void run_vit(const ModelRun& run) {
    // Read all input, and compute, before anything is shown.
    reject_texts(run);
    VitFamilyModel model = load_vit(run.model_path);
    std::optional<VitOutputs> outputs;
    if (!run.pixels_file.empty())
        outputs =
            encode(model, read_pixel_values(run.pixels_file), run.interpolate_pos_encoding);

    show_settings(model.config);
    show_vit_parameters(count_parameters(model));
    if (outputs) show_vit_outputs(model, *outputs);
    if (run.export_folder.empty()) return;
    export_model(model, run.export_folder);
    show("exported to", run.export_folder);
}

}  // namespace llm::models
