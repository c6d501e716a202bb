// What ./learn model does with an encoder.
#pragma once

#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/run_model.hpp"

namespace llm::models {

// Shows the layers and the parameters of the encoder in this folder or GGUF file, what it
// computes for texts, and exports it. Throws FileError and ValueError before anything is shown,
// if an input is invalid: a prompt or a tokenizer among them.
void run_encoder(const ModelRun& run);

// A table with the parameters of each part, and their bytes.
void show_parameters(const EncoderParameters& count);

}  // namespace llm::models
