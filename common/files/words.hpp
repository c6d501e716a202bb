// Five words and what the shipped model computes for them: small tensors in assets/words/,
// which chapter 11 writes (./learn 11 --words FOLDER) and early chapters show. With --prompt it
// writes those of another text, which chapters 01, 02, 03 and 05 show (--words FOLDER).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// The tokens "And the LORD said unto" in assets/king_james, T = 5, or those of another text of
// 2 to 16 tokens. C = 192, L = 4, H = 6, Hkv = 2, D = 32, F = 512. "The head" is head 4 of
// layer 2, which uses key/value head 1.
struct Words {
    std::vector<std::string> tokens;  // T

    Tensor3 residual_stream;  // (L + 1, T, C): the embeddings, then the output of each layer

    // In the attention of layer 2.
    Matrix attention_input;         // (T, C): layer 2's input after the RMSNorm
    Matrix queries;                 // (T, H*D): the output of q_proj
    Matrix keys, values;            // (T, Hkv*D): the outputs of k_proj and v_proj
    Tensor3 attentions;             // (H, T, T): the weights of all heads
    Matrix head_query_weight;       // (D, C): the rows of q_proj that make the head's queries
    Matrix head_queries;            // (T, D), after RoPE
    Matrix head_keys, head_values;  // (T, D): the keys after RoPE, the values

    // In the MLP of layer 2.
    Matrix gate, up;  // (T, F): the outputs of gate_proj and up_proj

    std::string count() const;  // "Five words", or such as "7 tokens"
};

// Throws ValueError for fewer than 2 or more than 16 tokens.
void check_word_count(std::size_t num_tokens);

// All throw FileError; load_words throws ValueError as check_word_count does. The folder has
// the files tokens.txt and words.safetensors.
Words load_words();  // from assets/words
Words load_words(const std::filesystem::path& folder);
void save_words(const std::filesystem::path& folder, const Words& words);

}  // namespace llm
