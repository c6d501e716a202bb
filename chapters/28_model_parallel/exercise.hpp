// Chapter 28, exercises. Write your answers into exercise.cpp; ./learn exercise 28 checks them.
#pragma once

#include "chapters/28_model_parallel/pipeline.hpp"

namespace exercise {

using namespace llm;

IdVector predicted_pipeline();  // (3)

}  // namespace exercise
