// ./learn model: what is in a published model? This program shows its layers, its logits and
// the text that it writes, converts it for Hugging Face and llama.cpp, and compares models.
#include <algorithm>

#include "chapters/models/anatomy.hpp"
#include "chapters/models/encoders/encoder_anatomy.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "chapters/models/model_options.hpp"
#include "chapters/models/model_size.hpp"

using namespace llm;
using namespace llm::models;

int main(int argc, char** argv) {
    ModelRun run;
    std::string prompt;
    bool families = false, markdown = false;
    std::string sized;
    std::size_t context = 4096, batch_size = 1;
    std::vector<std::string> compared;
    Options options("model", "What is in a published model?");
    add_model_path(options, run.model_path, "a Hugging Face folder, a GGUF file or llama2.c's");
    add_model_options(options, run, prompt);
    options.id_lists("--token-types", run.token_types,
                     "of an encoder: which text of a pair each token is in");
    options.needs("--token-types", "--tokens");
    options.id_lists("--decoder-tokens", run.decoder_tokens,
                     "of an encoder and decoder: what the decoder has written");
    options.needs("--decoder-tokens", "--tokens");
    options.repeated("--text", run.texts,
                     "of an encoder: show what it computes for this text, and for others");
    options.repeated("--text-pair", run.text_pairs, "the second text of a pair");
    options.text("--prompt-name", run.prompt_name,
                 "of sentence-transformers: what the texts are, such as query");
    for (const char* name : {"--text-pair", "--prompt-name"}) options.needs(name, "--text");
    options.path("--pixels", run.pixels_file,
                 "of a ViT: normalized pictures, float32 (B, channels, height, width), .npy");
    options.flag("--interpolate", run.interpolate_pos_encoding,
                 "interpolate the positions for pictures of another size than image_size");
    options.needs("--interpolate", "--pixels");
    options.flag("--families", families, "compare the choices of published models");
    options.flag("--markdown", markdown, "write --families as tables with links");
    options.needs("--markdown", "--families");
    options.path("--size", sized,
                 "memory and FLOPs of a model: a name, a folder or config.json");
    options.count("--context", context, 1, 1 << 24, "tokens of each sequence, for --size");
    options.count("--batch", batch_size, 1, 1 << 20, "sequences, for --size");
    for (const char* name : {"--context", "--batch"}) options.needs(name, "--size");
    options.texts("--diff", compared, {"A", "B"},
                  "compare two: names of --families, folders or config.json");
    return options.run(argc, argv, [&] {
        if (markdown) return write_families_in_markdown(published_anatomies());
        if (families) return show_families(published_anatomies());
        if (!compared.empty())
            return show_difference(find_anatomy(compared[0]), find_anatomy(compared[1]));
        if (!sized.empty()) {
            const auto encoder = find_encoder_config(sized);
            const PublishedExample example = encoder ? PublishedExample{} : find_example(sized);
            if (!options.given("--context"))
                context = std::min(context, encoder ? encoder->max_position_embeddings
                                                    : example.config.max_position_embeddings);
            if (encoder) return show_size(sized, *encoder, context, batch_size);
            return show_size(example, context, batch_size);
        }
        require(!run.model_path.empty(), "--model is missing: ./learn model DIR or FILE.gguf");
        check_temperature(run.generation.sampling);
        if (options.given("--prompt")) run.prompt = prompt;
        Generator generator(options.seed());
        run_model(run, generator);
    });
}
