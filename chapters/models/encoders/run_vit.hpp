// What ./learn model does with a ViT.
#pragma once

#include "chapters/models/run_model.hpp"

namespace llm::models {

// Shows the patches and the parameters of the ViT in this folder, what it computes for
// pictures, and exports it. Throws FileError and ValueError before anything is shown, if an
// input is invalid.
void run_vit(const ModelRun& run);

}  // namespace llm::models
