#include <algorithm>

#include "chapters/16_quantization/kernels/integer_products.hpp"
#include "chapters/16_quantization/kernels/row_lanes.hpp"

namespace llm {
namespace {

// The bytes of a block that are float16 scales; all others are moved four at a time.
struct Halves {
    std::size_t begin, end;
};
Halves halves_of(DType dtype) {
    if (dtype == DType::q4_k) return {0, 4};
    if (dtype == DType::q6_k) return {208, 210};
    return {0, 2};
}

// Calls function(offset in the row, offset in the group, size) for each unit of a row: what
// stands at some offset in the blocks of a row stands there for all rows, one after another.
template <class Function>
void for_each_unit(DType dtype, std::size_t row_size, std::size_t lane,
                   const Function& function) {
    const std::size_t block_bytes = bytes_per_block(dtype);
    const Halves halves = halves_of(dtype);
    for (std::size_t block = 0; block < row_size; block += block_bytes)
        for (std::size_t offset = 0; offset < block_bytes;) {
            const bool is_half = offset >= halves.begin && offset < halves.end;
            const std::size_t size = is_half ? 2 : 4;
            function(block + offset, num_lanes * (block + offset) + lane * size, size);
            offset += size;
        }
}

}  // namespace

std::size_t num_interleaved_rows() { return num_lanes; }

void interleave_rows(DType dtype, std::span<const std::byte> rows, std::size_t in_features,
                     std::span<std::byte> interleaved) {
    const std::size_t row_size = bytes_per_row(dtype, in_features);
    std::ranges::fill(interleaved, std::byte{0});
    for (std::size_t r = 0; r < rows.size() / row_size; ++r) {
        const std::byte* row = &rows[r * row_size];
        std::byte* group = &interleaved[r / num_lanes * num_lanes * row_size];
        for_each_unit(dtype, row_size, r % num_lanes,
                      [&](std::size_t from, std::size_t to, std::size_t size) {
                          std::copy_n(row + from, size, group + to);
                      });
    }
}

void copy_interleaved_row(DType dtype, std::span<const std::byte> group, std::size_t lane,
                          std::span<std::byte> row) {
    for_each_unit(dtype, row.size(), lane,
                  [&](std::size_t to, std::size_t from, std::size_t size) {
                      std::copy_n(&group[from], size, &row[to]);
                  });
}

}  // namespace llm
