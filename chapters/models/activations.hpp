// Activation functions of published models that chapter 06 does not have.
#pragma once

#include <map>
#include <string>

#include "chapters/06_swiglu/activations.hpp"

namespace llm::models {

// Those of Hugging Face's ACT2FN by name (hidden_act), with other spellings of the same
// function. Not those that have parameters of their own, prelu and xielu.
const std::map<std::string, Activation>& named_activations();

}  // namespace llm::models
