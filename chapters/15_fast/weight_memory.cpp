#include "chapters/15_fast/weight_memory.hpp"

#include "common/numbers/ceil_div.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

std::shared_ptr<std::byte> WeightMemory::allocate(std::size_t num_bytes) {
    constexpr std::size_t cache_line = 64;
    const std::size_t begin = ceil_div(used_, cache_line) * cache_line;
    if (block_ && begin + num_bytes <= block_size_) {
        used_ = begin + num_bytes;
        return {block_, block_.get() + begin};  // owns the whole block
    }
    block_size_ = std::max(num_bytes, std::size_t{8} << 20);
    block_ = allocate_bytes(block_size_);
    used_ = num_bytes;
    return block_;
}

namespace {

// Copies the rows of all matrices, one after another, into this memory.
WeightMatrix concatenate(std::span<const WeightMatrix> matrices, std::size_t out_features,
                         std::shared_ptr<std::byte> memory) {
    std::byte* end = memory.get();
    for (const WeightMatrix& matrix : matrices) {
        const std::span<const std::byte> rows = matrix.rows(0, matrix.out_features);
        end = std::copy(rows.begin(), rows.end(), end);
    }
    return {matrices[0].kernels, out_features, matrices[0].in_features, std::move(memory), 1};
}

}  // namespace

std::vector<WeightMatrix> WeightMemory::fuse(const std::vector<WeightMatrix>& matrices) {
    std::vector<WeightMatrix> fused;
    for (std::size_t first = 0, last = 0; first < matrices.size(); first = last) {
        // The matrices from first to before last become one.
        WeightMatrix rows{matrices[first].kernels, 0, matrices[0].in_features, {}, 1};
        for (; last < matrices.size() && matrices[last].kernels == rows.kernels; ++last) {
            const auto& [kernels, out_features, in_features, bytes, group] = matrices[last];
            require(in_features == rows.in_features,
                    "fast model: weights of ({}, {}) and ({}, {}) do not read the same input",
                    out_features, in_features, matrices[0].out_features, rows.in_features);
            rows.out_features += out_features;
        }
        // Rows that are interleaved are concatenated elsewhere first.
        const std::shared_ptr<std::byte> memory = allocate(repacked_nbytes(rows));
        const bool interleaves = rows.kernels->interleaved != nullptr;
        rows = concatenate(std::span(matrices).subspan(first, last - first), rows.out_features,
                           interleaves ? allocate_bytes(std::size_t(rows.nbytes())) : memory);
        fused.push_back(repack(rows, memory));
    }
    return fused;
}

}  // namespace llm
