// Chapter 01, exercises. Write your answers into exercise.cpp; ./learn exercise 1 checks them.
#pragma once

#include "chapters/01_masking/masking.hpp"

namespace exercise {

using namespace llm;

Vector predicted_weights();                                           // (5)
Vector predicted_key_counts();                                        // (4)
Matrix weights_of_sequence(const Matrix& scores,                      // (T, S)
                           const Matrix& mask);                       // (T, S) -> (T, S)
Matrix document_mask(const IdVector& document_ids);                   // (T) -> (T, T)
Matrix sliding_window_mask(std::size_t seq_len, std::size_t window);  // (T, T)
Matrix prefix_mask(std::size_t seq_len, std::size_t prefix_len);      // (T, T)

}  // namespace exercise
