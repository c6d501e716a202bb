#include "common/web/blas.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace llm::web {
namespace {

using Lanes = float __attribute__((vector_size(16)));

Lanes load(const float* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

Lanes all_lanes(float value) { return Lanes{value, value, value, value}; }

float sum_of(Lanes lanes) { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }

// A tile of the result has 4 rows and 8 columns: its sums fill 8 registers. Blocks of a and b
// are copied into the order in which the tiles read them, zeros beyond the edges.
constexpr int tile_rows = 4, tile_columns = 8;
constexpr int block_rows = 64, block_columns = 512, block_inner = 256;

// Copies rows of `width` at a time: result[tile][k][i] = element(tile * width + i, k).
template <class Element>
void pack(std::vector<float>& result, int count, int width, int inner, Element element) {
    const int num_tiles = (count + width - 1) / width;
    result.resize(static_cast<std::size_t>(num_tiles * width * inner));
    float* next = result.data();
    for (int first = 0; first < count; first += width)
        for (int k = 0; k < inner; ++k)
            for (int i = first; i < first + width; ++i) *next++ = i < count ? element(i, k) : 0;
}

// result += a b for one tile, of which the first num_rows and num_columns exist.
void multiply_tile(const float* a, const float* b, int inner, float* result, int stride,
                   int num_rows, int num_columns) {
    Lanes sums[tile_rows][2] = {};
    for (int k = 0; k < inner; ++k, a += tile_rows, b += tile_columns) {
        const Lanes left = load(b), right = load(b + 4);
        for (int i = 0; i < tile_rows; ++i) {
            const Lanes factor = all_lanes(a[i]);
            sums[i][0] += factor * left;
            sums[i][1] += factor * right;
        }
    }
    for (int i = 0; i < num_rows; ++i)
        for (int j = 0; j < num_columns; ++j) result[i * stride + j] += sums[i][j / 4][j % 4];
}

void scale(float beta, float* result, int count, int stride) {
    for (int i = 0; i < count; ++i)
        result[i * stride] = beta == 0 ? 0 : beta * result[i * stride];
}

}  // namespace

float sdot(int size, const float* x, int x_stride, const float* y, int y_stride) {
    float sum = 0;
    int i = 0;
    if (x_stride == 1 && y_stride == 1) {
        Lanes sums[4] = {};
        for (; i + 16 <= size; i += 16)
            for (int part = 0; part < 4; ++part)
                sums[part] += load(x + i + 4 * part) * load(y + i + 4 * part);
        sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
    for (; i < size; ++i) sum += x[i * x_stride] * y[i * y_stride];
    return sum;
}

void sgemv(int num_rows, int num_columns, float alpha, StridedMatrix a, const float* x,
           int x_stride, float beta, float* result, int stride) {
    scale(beta, result, num_rows, stride);
    if (a.row_stride == 1 && stride == 1) {  // columns of adjacent elements: add them
        for (int j = 0; j < num_columns; ++j) {
            const float factor = alpha * x[j * x_stride];
            const float* column = a.data + j * a.column_stride;
            for (int i = 0; i < num_rows; ++i) result[i] += factor * column[i];
        }
        return;
    }
    for (int i = 0; i < num_rows; ++i)
        result[i * stride] +=
            alpha * sdot(num_columns, a.data + i * a.row_stride, a.column_stride, x, x_stride);
}

void sgemm(int num_rows, int num_columns, int inner, float alpha, StridedMatrix a,
           StridedMatrix b, float beta, float* result, int stride) {
    if (num_rows == 1) {
        sgemv(num_columns, inner, alpha, {b.data, b.column_stride, b.row_stride}, a.data,
              a.column_stride, beta, result, 1);
        return;
    }
    for (int i = 0; i < num_rows; ++i) scale(beta, result + i * stride, num_columns, 1);

    std::vector<float> a_tiles, b_tiles;
    for (int k = 0; k < inner; k += block_inner)
        for (int column = 0; column < num_columns; column += block_columns) {
            const int depth = std::min(block_inner, inner - k);
            const int width = std::min(block_columns, num_columns - column);
            pack(b_tiles, width, tile_columns, depth,
                 [&](int j, int of) { return b(k + of, column + j); });
            for (int row = 0; row < num_rows; row += block_rows) {
                const int height = std::min(block_rows, num_rows - row);
                pack(a_tiles, height, tile_rows, depth,
                     [&](int i, int of) { return alpha * a(row + i, k + of); });
                for (int j = 0; j < width; j += tile_columns)
                    for (int i = 0; i < height; i += tile_rows)
                        multiply_tile(a_tiles.data() + i * depth, b_tiles.data() + j * depth,
                                      depth, result + (row + i) * stride + column + j, stride,
                                      std::min(tile_rows, height - i),
                                      std::min(tile_columns, width - j));
            }
        }
}

}  // namespace llm::web
