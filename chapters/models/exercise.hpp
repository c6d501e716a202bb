// Published models, exercises. Write your answers into exercise.cpp; ./learn exercise models
// checks them.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace exercise {

using namespace llm;
using namespace llm::models;

Vector predicted_parameters();  // (2)

Vector predicted_keys();  // (4)

// GPT-2, under the names of its files.
const Family& gpt2_again();

// Pebble, a family that no other program reads.
const Family& pebble_family();

}  // namespace exercise
