// ./learn bench: run times of PyTorch, llama.cpp and llama2.c, if they are installed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "chapters/09_full_model/model.hpp"
#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/models/encoders/encoder_model.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::bench {

// Another program that runs the same model: the commands that time it (one for each set of
// options), and the seconds of every call, by the name of the benchmark and the options.
struct Rival {
    std::vector<std::string> commands;
    std::map<std::string, std::map<std::string, std::vector<double>>> seconds;

    // Runs all commands once more. Drops the program, with a line that says why, if one fails
    // or if the logits differ from ours.
    void run();

    // Our seconds are compared with the median of the fastest options: "1.25", or "-".
    std::string speedup(const std::string& name, double our_seconds) const;
};

// These have no commands, after a line that says why, if the other program is not installed.

// Debian's PyTorch in float32; logits are ours of 512 tokens.
Rival make_pytorch_rival(const Model& model, const Matrix& logits);  // (T, V)

// The same PyTorch, training steps at the default sizes of chapter 13.
Rival make_pytorch_training_rival();

// llama.cpp with weights of a dtype. The work is "steps" or "sequence" (time_llama_cpp.py).
Rival make_llama_cpp_rival(const Model& model, const Tokenizer& tokenizer, DType dtype,
                           const std::string& work);
// llama2.c in float32, with tied weights: a sequence of 200 tokens; logits are ours of the last
// one.
Rival make_llama2c_rival(const Model& model, std::span<const Real> logits);  // (V)

// Encoders of a text of 512 tokens. PyTorch's vectors are compared with ours of its tokens, and
// llama.cpp's with ours of the whole text, the mean of its tokens.
Rival make_pytorch_rival(const models::AnyEncoder& encoder, const Matrix& vectors);  // (T, C)
Rival make_llama_cpp_rival(const models::AnyEncoder& encoder, DType dtype,
                           std::span<const Real> vector);  // (C)

// The models are written to build/models/bench.
void remove_files_of_rivals();

}  // namespace llm::bench
