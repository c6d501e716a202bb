// Chapter 05, file 2 of 4: the keys and values that later tokens attend to. Chapter 11
// generates with them.
#pragma once

#include <cstdint>

#include "common/tensors/tensor.hpp"

namespace llm {

// The KV cache of one layer: the rotated keys and the values of the S tokens so far.
struct LayerCache {
    Tensor4 keys = xt::zeros<Real>({0, 0, 0, 0});    // (B, Hkv, S, D), empty at first
    Tensor4 values = xt::zeros<Real>({0, 0, 0, 0});  // (B, Hkv, S, D)

    // Appends the keys and values of T new tokens: S = past_len + T. Throws ValueError if B,
    // Hkv or D differ. Source: Hugging Face, cache_utils.py, DynamicLayer.update.
    void update(const Tensor4& new_keys,     // (B, Hkv, T, D)
                const Tensor4& new_values);  // (B, Hkv, T, D)

    // Keeps the first tokens. Returns whether they are there.
    bool crop(std::size_t count);
};
// The first tokens of all heads.
Tensor4 first_tokens(const Tensor4& states,  // (B, Hkv, S, D) -> (B, Hkv, count, D)
                     std::size_t count);

// Bytes that a cache stores per token: a key and a value of D features for each key/value head
// of each layer.
std::uint64_t kv_cache_bytes_per_token(std::size_t num_hidden_layers,
                                       std::size_t num_key_value_heads, std::size_t head_dim,
                                       std::size_t bytes_per_element);

}  // namespace llm
