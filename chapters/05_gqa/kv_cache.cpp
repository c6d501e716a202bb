#include "chapters/05_gqa/kv_cache.hpp"

#include <algorithm>

namespace llm {
namespace {

void check_append(const Tensor4& cached, const Tensor4& added) {
    require(cached.size() == 0 ||
                (cached.shape(0) == added.shape(0) && cached.shape(1) == added.shape(1) &&
                 cached.shape(3) == added.shape(3)),
            "cache: {} cannot be appended to {}", added.shape(), cached.shape());
}

// Concatenates along the sequence axis.
void append(Tensor4& cached,         // (B, Hkv, past_len, D)
            const Tensor4& added) {  // (B, Hkv, T, D)
    if (cached.size() == 0) {
        cached = added;
        return;
    }
    const auto [batch_size, num_kv_heads, past_len, head_dim] = dims(cached);
    Tensor4 all =  // (B, Hkv, S, D), S = past_len + T
        xt::zeros<Real>({batch_size, num_kv_heads, past_len + added.shape(2), head_dim});

    // In memory, the rows of a head are contiguous: first the past_len cached rows, then
    // the T new ones.
    const std::size_t old_size = past_len * head_dim, new_size = added.shape(2) * head_dim;
    for (std::size_t head = 0; head < batch_size * num_kv_heads; ++head) {
        Real* const end = std::copy_n(cached.data() + head * old_size, old_size,
                                      all.data() + head * (old_size + new_size));
        std::copy_n(added.data() + head * new_size, new_size, end);
    }
    cached = std::move(all);
}

}  // namespace

void LayerCache::update(const Tensor4& new_keys, const Tensor4& new_values) {
    check_append(keys, new_keys);
    check_append(values, new_values);
    append(keys, new_keys);
    append(values, new_values);
}

bool LayerCache::crop(std::size_t count) {
    if (count > keys.shape(2)) return false;
    keys = first_tokens(keys, count);
    values = first_tokens(values, count);
    return true;
}

Tensor4 first_tokens(const Tensor4& states, std::size_t count) {
    return xt::view(states, xt::all(), xt::all(), xt::range(std::size_t{0}, count));
}

std::uint64_t kv_cache_bytes_per_token(std::size_t num_hidden_layers,
                                       std::size_t num_key_value_heads, std::size_t head_dim,
                                       std::size_t bytes_per_element) {
    return std::uint64_t{2} * num_hidden_layers * num_key_value_heads * head_dim *
           bytes_per_element;
}

}  // namespace llm
