// What ./learn model, and the option --model of chapters 17 and 18, do with a model.
#pragma once

#include <optional>
#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/11_generation/generation.hpp"

namespace llm::models {

// The layers of a model are shown, its logits for tokens, the text that it writes after a
// prompt; then it is written to a folder, for Hugging Face, or to a GGUF file. Of an encoder,
// its outputs for texts are shown.
struct ModelRun {
    std::string model_path = "", tokenizer_path = "", export_folder = "", gguf_file = "";
    std::vector<std::vector<Id>> tokens = {};       // none: no logits; of a decoder, one text
    std::vector<std::vector<Id>> token_types = {};  // of encoders; none: all 0
    // Of a model with encoder and decoder; none: the start token alone.
    std::vector<std::vector<Id>> decoder_tokens = {};
    std::vector<std::string> texts = {};       // of encoders, instead of tokens
    std::vector<std::string> text_pairs = {};  // the second text of each; none: no pairs
    std::string prompt_name = "";              // of sentence-transformers; empty: the default
    std::string pixels_file = "";              // of a ViT: pictures in a .npy file; none: ""
    bool interpolate_pos_encoding = false;     // for pictures of another size
    std::optional<std::string> prompt = std::nullopt;  // none: no text
    GenerationConfig generation = {.sampling = {.temperature = Real(0.8), .top_p = Real(0.9)},
                                   .max_new_tokens = 100};
    std::string dtype = "float32";  // of the matrices in the GGUF file
};

// Any folder or file that chapter 09, the families of families/ or encoders/ read. Throws
// FileError and ValueError before anything is shown, if an input is invalid.
void run_model(const ModelRun& run, Generator& generator);

// The tokenizer of the model. Throws FileError, which names the options that need one.
Tokenizer tokenizer_of(const ModelRun& run, std::size_t vocab_size);

}  // namespace llm::models
