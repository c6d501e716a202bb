// Chapter 01, exercises. Write your answers into exercise.cpp; ./learn exercise 1 checks them.
#pragma once

#include "chapters/01_masking/masking.hpp"

namespace exercise {

using namespace llm;

Matrix mask_by_product(std::size_t seq_len);                             // (T, T)
Matrix mask_by_loops(std::size_t seq_len);                               // (T, T)
Matrix mask_for_new_queries(std::size_t query_len, std::size_t kv_len);  // (T, S)
Matrix sliding_window_mask(std::size_t seq_len, std::size_t window);     // (T, T)
Matrix prefix_mask(std::size_t seq_len, std::size_t prefix_len);         // (T, T)

}  // namespace exercise
