// Chapter 24: sizes of published models, for the demos of this chapter and of chapter 28.
#pragma once

#include <string>
#include <vector>

#include "chapters/09_full_model/model.hpp"

namespace llm {

struct PublishedConfig {
    std::string option;  // "llama_3.1_8b"
    std::string title;   // "Llama 3.1 8B"
    Config config;
};
// From 1B to 405B. Source: the config.json of each model on Hugging Face.
const std::vector<PublishedConfig>& published_configs();

}  // namespace llm
