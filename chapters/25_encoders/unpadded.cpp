#include "chapters/25_encoders/unpadded.hpp"

#include <algorithm>
#include <numeric>

namespace llm {
namespace {

// The number of tokens of text b.
std::size_t length_of_text(const BatchEncoding& batch, std::size_t b) {
    const std::size_t seq_len = batch.padding_mask.shape(1);
    std::size_t length = 0;
    while (length < seq_len && batch.padding_mask(b, length) != 0) ++length;
    for (std::size_t t = length; t < seq_len; ++t)
        require(batch.padding_mask(b, t) == 0, "unpad: text {} has padding before token {}", b,
                t);
    require(length > 0, "unpad: text {} has no token", b);
    return length;
}

}  // namespace

BatchEncoding unpad(const BatchEncoding& batch) {
    require(batch.cu_seqlens.empty(), "unpad: the batch has no padding already");
    BatchEncoding row;
    row.cu_seqlens = {0};
    for (std::size_t b = 0; b < batch.input_ids.shape(0); ++b)
        row.cu_seqlens.push_back(row.cu_seqlens.back() + length_of_text(batch, b));

    const auto drop_padding = [&](const IdMatrix& values) {
        IdMatrix kept(std::array{std::size_t{1}, row.cu_seqlens.back()});  // (1, N)
        for (std::size_t b = 0; b + 1 < row.cu_seqlens.size(); ++b)
            for (std::size_t i = row.cu_seqlens[b]; i < row.cu_seqlens[b + 1]; ++i)
                kept(0, i) = values(b, i - row.cu_seqlens[b]);
        return kept;
    };
    row.input_ids = drop_padding(batch.input_ids);
    row.padding_mask = drop_padding(batch.padding_mask);
    row.token_type_ids = drop_padding(batch.token_type_ids);
    row.position_ids = drop_padding(batch.position_ids);
    return row;
}

Tensor3 pad_states(const Tensor3& row, const BatchEncoding& padded) {
    const auto [batch_size, seq_len] = dims(padded.padding_mask);
    const std::size_t width = row.shape(2);
    Tensor3 states = xt::zeros<Real>({batch_size, seq_len, width});  // (B, T, C)
    std::size_t next = 0;
    for (std::size_t i = 0; i < padded.padding_mask.size(); ++i) {
        if (padded.padding_mask.data()[i] == 0) continue;
        require(next < row.shape(1), "pad_states: more tokens than the {} of the row",
                row.shape(1));
        std::copy_n(row.data() + next++ * width, width, states.data() + i * width);
    }
    require(next == row.shape(1), "pad_states: {} tokens for {} of the row", next,
            row.shape(1));
    return states;
}

double padding_share(const BatchEncoding& padded) {
    const double tokens =
        std::accumulate(padded.padding_mask.begin(), padded.padding_mask.end(), 0.0);
    return 1 - tokens / static_cast<double>(padded.padding_mask.size());
}

}  // namespace llm
