// Chapter 20, file 5 of 8: backward passes of the recurrent and of the chunked form.
#pragma once

#include "chapters/20_linear_attention/chunked.hpp"

namespace llm {

// The gradients with respect to all inputs, and to the state before the first token.
struct HeadGradient {
    HeadInputs inputs;
    Matrix initial_state;  // (Dk, Dv)
};
// Both compute the states of the forward pass again: the recurrent form needs that of each
// token, the chunked form only that before each chunk. They give the same gradients.
HeadGradient recurrent_form_backward(const HeadInputs& inputs, UpdateRule rule,
                                     const Matrix& initial_state,    // (Dk, Dv)
                                     const Matrix& output_gradient,  // (T, Dv)
                                     const Matrix& state_gradient);  // (Dk, Dv)
HeadGradient chunked_form_backward(const HeadInputs& inputs, UpdateRule rule,
                                   const Matrix& initial_state,    // (Dk, Dv)
                                   const Matrix& output_gradient,  // (T, Dv)
                                   const Matrix& state_gradient,   // (Dk, Dv)
                                   std::size_t chunk_size);

}  // namespace llm
