// Chapter 16, file 4 of 4: models whose weights stay quantized in memory.
#pragma once

#include <string>

#include "chapters/15_fast/fast_model.hpp"

namespace llm {

// How products are computed: with the inputs as they are (weight-only quantization), or with
// rounded ones. With blocks of weights, inputs are rounded to 8-bit integers. With bfloat16
// weights, those of more than six tokens are rounded to bfloat16 if the processor multiplies
// bfloat16 itself. With float32 and float16 weights, inputs stay as they are.
enum class Activations { float32, quantized };

// The kernels of any dtype: chapter 15's for float32 and bfloat16, and this chapter's for
// float16 and for blocks.
const WeightKernels& quantization_kernels(DType dtype,
                                          Activations activations = Activations::quantized);

// Quantizes all weight matrices of a model, each in the stored_dtype of its rows. Norms and
// biases stay in float32. Throws as make_fast_model (chapter 15).
FastModel quantize_model(const Model& model, DType dtype,
                         Activations activations = Activations::quantized);

}  // namespace llm
