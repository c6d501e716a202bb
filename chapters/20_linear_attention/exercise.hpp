// Chapter 20, exercises. Write your answers into exercise.cpp; ./learn exercise 20 checks them.
#pragma once

#include "chapters/20_linear_attention/linear_attention.hpp"

namespace exercise {

using namespace llm;

Vector predicted_reads();        // (3)
std::size_t predicted_length();  // of a sequence, in tokens
Vector predicted_reflections();  // (3)

// One step of a convolution whose window is kept between calls.
struct ConvolutionStep {
    Vector output;   // (Cc)
    Matrix earlier;  // (J - 1, Cc): the last inputs, oldest first
};
ConvolutionStep convolution_step(const Matrix& earlier,  // (J - 1, Cc), oldest first
                                 const Vector& input,    // (Cc)
                                 const Matrix& weight);  // (Cc, J)

// RetNet's retention of one head, without a state: Σ_(s<=t) γ^(t-s) (q_t · k_s) v_s.
Matrix retention(const Matrix& queries,  // (T, Dk)
                 const Matrix& keys,     // (T, Dk)
                 const Matrix& values,   // (T, Dv)
                 Real decay);            // γ -> (T, Dv)

// The delta rule without decay in chunks, from an empty file, in three steps.
Matrix overlaps_of_keys(const Matrix& keys,   // (c, Dk)
                        const Vector& beta);  // (c) -> (c, c)

Matrix values_to_write(const Matrix& keys,    // (c, Dk)
                       const Matrix& values,  // (c, Dv)
                       const Vector& beta,    // (c)
                       const Matrix& state);  // (Dk, Dv) -> (c, Dv)

HeadOutput delta_rule_in_chunks(const Matrix& queries,  // (T, Dk)
                                const Matrix& keys,     // (T, Dk)
                                const Matrix& values,   // (T, Dv)
                                const Vector& beta,     // (T)
                                std::size_t chunk_size);

}  // namespace exercise
