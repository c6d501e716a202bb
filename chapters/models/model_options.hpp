// The options of ./learn model, which chapters 17 and 18 have, too.
#pragma once

#include "chapters/11_generation/sampling_options.hpp"
#include "chapters/models/run_model.hpp"
#include "common/system/options.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {

// All but the model itself. Those that need it are listed, for Options::needs.
inline std::vector<const char*> add_model_options(Options& options, ModelRun& run,
                                                  std::string& prompt) {
    options.path("--tokenizer", run.tokenizer_path, "its tokenizer, if it is not beside it");
    options.id_lists("--tokens", run.tokens,
                     "show what it computes for these ids; an encoder takes several texts");
    options.text("--prompt", prompt, "the text to continue");
    options.count("--max-new-tokens", run.generation.max_new_tokens, 0, 1 << 20,
                  "tokens to generate");
    add_sampling_options(options, run.generation.sampling);
    options.folder("--export", run.export_folder,
                   "folder to write the model to, for Hugging Face");
    options.path("--gguf", run.gguf_file, "write the model to this GGUF file");
    options.choice("--dtype", run.dtype, dtype_names(), "type of the matrices in --gguf");
    options.needs("--dtype", "--gguf");
    return {"--tokenizer", "--tokens", "--prompt", "--gguf"};
}

}  // namespace llm::models
