#include "chapters/17_long_context/rolling_cache.hpp"

#include <algorithm>
#include <vector>

#include "chapters/05_gqa/kv_cache.hpp"

namespace llm {
namespace {

// Copies the given rows of each head: result[b, h, i] = states[b, h, rows[i]].
Tensor4 select_rows(const Tensor4& states,                   // (B, Hkv, N, D)
                    const std::vector<std::size_t>& rows) {  // (S) -> (B, Hkv, S, D)
    const auto [batch_size, num_kv_heads, length, head_dim] = dims(states);
    Tensor4 result(std::array{batch_size, num_kv_heads, rows.size(), head_dim});
    Real* to = result.data();
    for (std::size_t head = 0; head < batch_size * num_kv_heads; ++head)
        for (const std::size_t row : rows)
            to = std::copy_n(states.data() + (head * length + row) * head_dim, head_dim, to);
    return result;
}

}  // namespace

std::size_t RollingCache::entry_of(std::size_t position) const {
    return position < num_sinks ? position : num_sinks + (position - num_sinks) % window;
}

PositionedKeysValues RollingCache::update(const Tensor4& new_keys, const Tensor4& new_values) {
    require(window > 0, "rolling cache: a window needs at least 1 token");
    require(new_keys.shape() == new_values.shape(),
            "rolling cache: keys of {} do not match values of {}", new_keys.shape(),
            new_values.shape());
    const std::size_t num_new = new_keys.shape(2), num_cached = position_ids.size();

    // Concatenate the entries and the new tokens.
    LayerCache all{keys, values};
    all.update(new_keys, new_values);
    IdVector positions = xt::zeros<Id>({num_cached + num_new});
    std::copy(position_ids.begin(), position_ids.end(), positions.begin());
    for (std::size_t t = 0; t < num_new; ++t)
        positions(num_cached + t) = static_cast<Id>(seq_len + t);

    // Keep one token per entry: later tokens overwrite earlier ones.
    seq_len += num_new;
    std::vector<std::size_t> kept(std::min(seq_len, num_sinks + window));  // (S)
    for (std::size_t row = 0; row < positions.size(); ++row)
        kept[entry_of(static_cast<std::size_t>(positions(row)))] = row;
    keys = select_rows(all.keys, kept);
    values = select_rows(all.values, kept);
    position_ids = IdVector(std::array{kept.size()});
    for (std::size_t s = 0; s < kept.size(); ++s) position_ids(s) = positions(kept[s]);
    return {std::move(all.keys), std::move(all.values), std::move(positions)};
}

bool RollingCache::crop(std::size_t count) {
    if (position_ids.size() < seq_len || count > seq_len) return false;

    // Entry p is that of position p, because none is overwritten.
    const IdVector kept = xt::view(position_ids, xt::range(std::size_t{0}, count));
    keys = first_tokens(keys, count);
    values = first_tokens(values, count);
    position_ids = kept;
    seq_len = count;
    return true;
}

IdVector positions_in_cache(const IdVector& position_ids) {
    IdVector ranks = position_ids;  // (S)
    for (std::size_t s = 0; s < ranks.size(); ++s)
        ranks(s) = std::count_if(position_ids.begin(), position_ids.end(),
                                 [&](Id position) { return position < position_ids(s); });
    return ranks;
}

}  // namespace llm
