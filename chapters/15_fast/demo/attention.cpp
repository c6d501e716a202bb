#include "chapters/15_fast/demo/attention.hpp"

#include "chapters/01_masking/masking.hpp"
#include "chapters/05_gqa/attention.hpp"
#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/kernels/simd.hpp"
#include "common/numbers/ceil_div.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {

void online_softmax() {
    step("Online softmax: scores in blocks of two");
    const Vector scores = {1, 3, 2, 0, 5, 4};
    show("scores", scores);
    OnlineSoftmax softmax;
    std::vector<TableRow> rows;
    for (std::size_t begin = 0; begin < scores.size(); begin += 2) {
        std::array<Real, 2> block = {scores(begin), scores(begin + 1)};
        const std::string before = brief(block[0]) + " " + brief(block[1]);
        const Real factor = softmax.update(block, 1);
        rows.push_back({before, brief(softmax.maximum), fixed(factor, 4), fixed(block[0], 4),
                        fixed(block[1], 4), fixed(softmax.sum, 4)});
    }
    show_table({"scores", "maximum", "factor", "exp", "exp", "sum"}, rows);
    Vector all = scores;
    show("sum over all scores at once", fixed(exp_and_sum({all.data(), all.size()}, 1, 5), 4));
}

namespace {

// The percentage of a tile's scores that are unmasked, rounded.
Matrix unmasked_percentages(std::size_t seq_len) {
    const std::size_t num_tiles = ceil_div(seq_len, tile_size);
    Matrix counts = xt::zeros<Real>({num_tiles, num_tiles}), sizes = counts;
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t s = 0; s < seq_len; ++s) {
            counts(t / tile_size, s / tile_size) += s <= t ? 1 : 0;
            sizes(t / tile_size, s / tile_size) += 1;
        }
    return xt::round(counts / sizes * Real(100));
}

}  // namespace

void attention_in_tiles(Generator& generator) {
    step("Flash attention: tiles instead of a matrix of weights");
    const std::size_t seq_len = 500, head_dim = 64;
    const Matrix queries = randn({seq_len, head_dim}, generator);  // (T, D)
    const Matrix keys = randn({seq_len, head_dim}, generator);     // (T, D)
    const Matrix values = randn({seq_len, head_dim}, generator);   // (T, D)
    Matrix context = xt::zeros<Real>({seq_len, head_dim});
    flash_attention(view_of(queries), view_of(keys), view_of(values), 0, view_of(context));
    const Matrix mask = causal_mask(seq_len, seq_len);
    const HeadAttentionOutput expected = attention(queries, keys, values, mask);
    show_shape("attention weights of one head in chapter 05", expected.weights);
    show("context within 1e-5 of chapter 05's",
         largest_difference(context, expected.context) < 1e-5);

    const Matrix tiles = unmasked_percentages(seq_len);
    show("tiles", tiles);
    plot("tiles", {Heatmap{"Percent of each tile's scores that are unmasked", "tile of 64 keys",
                           "tile of 64 queries", tiles}});

    std::vector<TableRow> rows;
    for (const std::size_t length : {512u, 2048u, 8192u, 131072u}) {
        const double weights = 4.0 * 6 * double(length) * double(length);
        const double qkv = 4.0 * 3 * 6 * 64 * double(length);
        rows.push_back({with_commas(length), fixed(weights / 1e6, 1), fixed(qkv / 1e6, 1)});
    }
    show_table({"tokens", "MB: attention weights of 6 heads", "MB: queries, keys, values"},
               rows);
}

}  // namespace llm
