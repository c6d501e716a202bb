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

std::vector<WeightMatrix> WeightMemory::fuse(const std::vector<WeightMatrix>& matrices) {
    std::vector<WeightMatrix> fused;
    for (std::size_t first = 0, last = 0; first < matrices.size(); first = last) {
        // The matrices from first to before last become one.
        WeightMatrix rows{matrices[first].kernels, 0, matrices[0].in_features, {}};
        for (; last < matrices.size() && matrices[last].kernels == rows.kernels; ++last) {
            const auto& [kernels, out_features, in_features, bytes] = matrices[last];
            require(in_features == rows.in_features,
                    "fast model: weights of ({}, {}) and ({}, {}) do not read the same input",
                    out_features, in_features, matrices[0].out_features, rows.in_features);
            rows.out_features += out_features;
        }
        const std::size_t row_size = bytes_per_row(rows.dtype(), rows.in_features);
        const std::shared_ptr<std::byte> memory = allocate(rows.out_features * row_size);
        std::byte* end = memory.get();
        for (std::size_t i = first; i < last; ++i) {
            const std::span<const std::byte> part =
                matrices[i].rows(0, matrices[i].out_features);
            end = std::copy(part.begin(), part.end(), end);
        }
        rows.bytes = memory;
        fused.push_back(rows);
    }
    return fused;
}

}  // namespace llm
