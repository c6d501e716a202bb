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

// The rows of all matrices, one after another.
WeightMatrix concatenate(std::span<const WeightMatrix> matrices) {
    WeightMatrix all = matrices[0];
    all.out_features = 0;
    for (const WeightMatrix& matrix : matrices) all.out_features += matrix.out_features;
    const std::shared_ptr<std::byte> memory = allocate_bytes(all.nbytes());
    std::byte* end = memory.get();
    for (const WeightMatrix& matrix : matrices) {
        const std::span<const std::byte> rows = matrix.rows(0, matrix.out_features);
        end = std::copy(rows.begin(), rows.end(), end);
    }
    all.bytes = memory;
    return all;
}

}  // namespace

std::vector<WeightMatrix> WeightMemory::fuse(const std::vector<WeightMatrix>& matrices) {
    for (const WeightMatrix& matrix : matrices)
        require(matrix.in_features == matrices[0].in_features,
                "fast model: weights of ({}, {}) and ({}, {}) do not read the same input",
                matrix.out_features, matrix.in_features, matrices[0].out_features,
                matrices[0].in_features);
    std::vector<WeightMatrix> fused;
    for (std::size_t first = 0, last = 0; first < matrices.size(); first = last) {
        // The matrices from first to before last become one.
        while (last < matrices.size() && matrices[last].kernels == matrices[first].kernels)
            ++last;
        const WeightMatrix rows = concatenate(std::span(matrices).subspan(first, last - first));
        fused.push_back(for_kernels(rows, allocate(num_bytes_for_kernels(rows))));
    }
    return fused;
}

}  // namespace llm
