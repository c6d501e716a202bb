// ./learn bench: run times of PyTorch and of llama.cpp, if they are installed.
#pragma once

#include <map>
#include <string>

#include "chapters/09_full_model/model.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

// Seconds of "prefill 512", "decode at 0", "decode at 256" and "decode at 1024". Empty, with a
// line that says why, if the other program is not installed or fails.
using RivalTimes = std::map<std::string, double>;

// Debian's PyTorch in float32, with one thread or all, whichever is faster; also if its logits
// of 512 tokens differ from ours.
RivalTimes times_of_pytorch(const Model& model, const Matrix& logits);  // (T, V)

// llama.cpp with weights of float32, bfloat16 or q8_0, on all threads.
RivalTimes times_of_llama_cpp(const Model& model, DType dtype);

}  // namespace llm
