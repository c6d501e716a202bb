// Chapter 27, exercises. Write your answers into exercise.cpp; ./learn exercise 27 checks them.
#pragma once

#include "chapters/27_vision/vision.hpp"

namespace exercise {

using namespace llm;

Vector predicted_tokens();  // (4)

// As position_weights of the lesson: (1 + N', 1 + N).
Matrix position_weights(const PatchGrid& from, const PatchGrid& to);

// Swin's windows of M x M patches: each window is a text of its own for attention. The windows
// are in the order of rows, and so are the patches of a window. Throws ValueError unless M
// divides both sides of the grid. Source: Hugging Face, modeling_swin.py, window_partition.
Tensor3 window_partition(const Tensor4& patches,    // (B, rows, columns, C)
                         std::size_t window_size);  // M -> (B * rows * columns / M², M², C)

}  // namespace exercise
