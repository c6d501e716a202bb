// Chapter 25, exercises. Write your answers into exercise.cpp; ./learn exercise 25 checks them.
#pragma once

#include "chapters/25_encoders/encoder.hpp"

namespace exercise {

using namespace llm;

}  // namespace exercise
