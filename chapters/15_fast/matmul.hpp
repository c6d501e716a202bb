// Chapter 12, part 1 — The same forward, rung by rung.
#pragma once

#include "chapters/11_generation/generation.hpp"

namespace llm {

// inputs · weightᵀ, (N, in) and (out, in) to (N, out), in five ways that differ in nothing but
// time. All throw ShapeError, with both shapes, unless "in" is the same.
using Product = Matrix (*)(const Matrix& inputs, const Matrix& weight);
Matrix product_down_the_columns(const Matrix& inputs, const Matrix& weight);
Matrix product_along_the_rows(const Matrix& inputs, const Matrix& weight);
Matrix product_by_expression(const Matrix& inputs, const Matrix& weight);
Matrix product_in_lanes(const Matrix& inputs, const Matrix& weight);
Matrix product_by_blas(const Matrix& inputs, const Matrix& weight);

// Chapter 09's forward, its linear layers and head computed in the given way.
Tensor3 forward_with(Product product, const Model& model,
                     const IdMatrix& input_ids);  // (B, T) -> (B, T, V)

// Additions and multiplications for T tokens at once, of which all logits are wanted.
double operations_of_prefill(const ModelConfig& config, std::size_t seq_len);

// Bytes of the keys and values of so many tokens, which the next one has to read.
std::size_t cache_bytes(const ModelConfig& config, std::size_t num_tokens);

// What this machine can do at best, measured now: 10^9 additions and multiplications a second,
// in a product of two matrices of 1024 x 1024, and 10^9 bytes a second, read from memory.
struct Limits {
    double one_core, all_cores;  // GFLOP/s
    double reading;              // GB/s, all cores
};
Limits measure_limits();

// What is timed for them.
class LimitWork {
 public:
    LimitWork();
    void multiply_on_one_core();
    void multiply_on_all_cores();  // a part of the rows on each
    void multiply_together();      // with the threads of the library, if it has them
    void read();

    // What came of it: a time counts only if the work was done.
    const Matrix& product() const { return result_; }                  // of ones
    const std::vector<Real>& largest_found() const { return found_; }  // in each piece: 1

    static constexpr std::size_t size = 1024;  // of the matrices
    static constexpr double operations = 2.0 * size * size * size;
    static constexpr std::size_t num_pieces = 256, piece_size = 1 << 17;  // of the memory
    static constexpr double bytes = 1.0 * num_pieces * piece_size * sizeof(Real);

 private:
    void multiply(std::size_t first_row, std::size_t count);

    Matrix factor_, result_;
    std::vector<Real> memory_, found_;
};

}  // namespace llm
