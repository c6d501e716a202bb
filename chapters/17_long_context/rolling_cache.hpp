// Chapter 17, file 2 of 8: a KV cache of fixed size, for layers with a sliding window.
#pragma once

#include "common/tensors/tensor.hpp"

namespace llm {

// The keys and values that a part of a sequence attends to, and their positions.
struct PositionedKeysValues {
    Tensor4 keys;           // (B, Hkv, S, D), in any order
    Tensor4 values;         // (B, Hkv, S, D)
    IdVector position_ids;  // (S)
};

// A rolling KV cache (ring buffer): the first num_sinks tokens stay, and the last "window"
// tokens share the other entries: the token of position p overwrites that of p - window.
// num_sinks 0: Mistral; more: StreamingLLM (Xiao et al., 2023). Source: "Mistral 7B" (Jiang et
// al., 2023), section 2.
struct RollingCache {
    std::size_t window = 1;     // W
    std::size_t num_sinks = 0;  // k

    Tensor4 keys = xt::zeros<Real>({0, 0, 0, 0});    // (B, Hkv, S, D), S <= k + W
    Tensor4 values = xt::zeros<Real>({0, 0, 0, 0});  // (B, Hkv, S, D)
    IdVector position_ids = xt::zeros<Id>({0});      // (S): the position of each entry
    std::size_t seq_len = 0;                         // tokens so far, also the overwritten ones

    // The entry of the token at a position.
    std::size_t entry_of(std::size_t position) const;

    // Appends T new tokens. Returns what they may attend to: the entries before the update and
    // the new tokens. (The first new token needs the cached ones that the last new token
    // overwrites.) Throws ValueError if the window is 0, or if B, Hkv or D differ.
    PositionedKeysValues update(const Tensor4& new_keys,     // (B, Hkv, T, D)
                                const Tensor4& new_values);  // (B, Hkv, T, D)

    // Keeps the first tokens. Returns whether they are all there: false, and nothing changes,
    // if later tokens have overwritten some.
    bool crop(std::size_t count);
};

// Positions within the cache instead of positions in the text: the rank of each position among
// all. StreamingLLM caches keys before RoPE and rotates them by these, so that no distance
// exceeds the context of training.
IdVector positions_in_cache(const IdVector& position_ids);  // (S) -> (S)

}  // namespace llm
