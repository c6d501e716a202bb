#include "chapters/15_fast/flash_attention.hpp"

#include "chapters/01_masking/masking.hpp"
#include "tests/support/count_memory.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

// Attention of one head as in chapter 05, and tile by tile.
Matrix attention_of_chapter_05(const Matrix& queries, const Matrix& keys,
                               const Matrix& values) {
    const Matrix mask = causal_mask(queries.shape(0), keys.shape(0));
    return attention(queries, keys, values, mask).context;
}
Matrix attention_in_tiles(const Matrix& queries, const Matrix& keys, const Matrix& values,
                          std::size_t first_position) {
    Matrix context = xt::ones<Real>({queries.shape(0), queries.shape(1)}) * not_a_number;
    flash_attention(view_of(queries), view_of(keys), view_of(values), first_position,
                    view_of(context));
    return context;
}

}  // namespace

TEST_CASE("OnlineSoftmax: blocks of any sizes give the softmax of the whole row") {
    Generator generator(7);
    const std::vector<Real> scores = random_values(300, generator);
    const double scale = 2.5;
    double total = 0;
    for (const Real score : scores) total += std::exp(scale * score);

    for (const std::vector<std::size_t>& blocks : std::vector<std::vector<std::size_t>>{
             {300}, {1, 299}, {299, 1}, {64, 64, 64, 64, 44}, {7, 0, 93, 100, 0, 99, 1}}) {
        OnlineSoftmax softmax;
        std::vector<Real> weights;
        for (const std::size_t block : blocks) {
            const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(weights.size());
            std::vector<Real> part(begin, begin + static_cast<std::ptrdiff_t>(block));
            const Real factor = softmax.update(part, Real(scale));
            for (Real& weight : weights) weight *= factor;
            weights.insert(weights.end(), part.begin(), part.end());
        }
        for (std::size_t i = 0; i < scores.size(); ++i)
            CHECK(weights[i] / softmax.sum ==
                  doctest::Approx(std::exp(scale * scores[i]) / total).epsilon(1e-5));
        CHECK(softmax.maximum == Real(scale) * std::ranges::max(scores));
    }
}

TEST_CASE("OnlineSoftmax: the factor is below 1 only after a larger maximum") {
    OnlineSoftmax softmax;
    const auto update = [&](std::vector<Real> scores) { return softmax.update(scores, 2); };
    CHECK(update({}) == 1);
    CHECK(softmax.maximum == -infinity);
    CHECK(softmax.sum == 0);
    CHECK(update({1, 0}) == 0);  // there was no sum before
    CHECK(softmax.maximum == 2);
    CHECK(softmax.sum == doctest::Approx(1 + std::exp(-2.0)));
    CHECK(update({0.5, -3}) == 1);  // smaller scores: no rescaling
    CHECK(softmax.maximum == 2);
    CHECK(update({}) == 1);
    CHECK(update({-infinity}) == 1);
    CHECK(update({4}) == doctest::Approx(std::exp(-6.0)));
    CHECK(softmax.maximum == 8);
    const double before = 1 + std::exp(-2.0) + std::exp(-1.0) + std::exp(-8.0);
    CHECK(softmax.sum == doctest::Approx(1 + before * std::exp(-6.0)));
}

TEST_CASE("OnlineSoftmax: scores whose exponentials overflow, increasing and decreasing") {
    for (const bool increasing : {true, false}) {
        OnlineSoftmax softmax;
        Real context = 0;  // the weighted values 0 to 9
        for (int i = 0; i < 10; ++i) {
            std::array<Real, 1> score = {Real(increasing ? i : -i) * 1000 + 5000};
            context = context * softmax.update(score, 1) + score[0] * Real(i);
        }
        CHECK(context / softmax.sum == (increasing ? 9 : 0));
    }
}

TEST_CASE("flash_attention is chapter 05's attention, for all lengths and widths") {
    Generator generator(8);
    for (const std::size_t T : {1u, 63u, 64u, 65u, 130u, 200u})
        for (const std::size_t more : {0u, 1u, 37u, 64u, 100u})
            for (const std::size_t D : {1u, 8u, 64u}) {
                const std::size_t S = T + more;
                const Matrix queries = randn({T, D}, generator) * Real(2);
                const Matrix keys = randn({S, D}, generator), values = randn({S, D}, generator);
                INFO("T ", T, ", S ", S, ", D ", D);
                CHECK_CLOSE(attention_in_tiles(queries, keys, values, more),
                            attention_of_chapter_05(queries, keys, values), 1e-5);
            }
}

TEST_CASE(
    "flash_attention works on views with a stride and ignores keys after the last query") {
    Generator generator(9);
    const std::size_t T = 70, S = 100, D = 8, first = 20;  // the last query is at position 89
    const Matrix queries = randn({T, 3 * D}, generator);
    Matrix keys = randn({S, 2 * D}, generator), values = randn({S, 2 * D}, generator);
    const auto columns = [&](const Matrix& matrix, std::size_t begin, std::size_t rows) {
        return Matrix(xt::view(matrix, xt::range(0, rows), xt::range(begin, begin + D)));
    };
    const Matrix expected = attention_of_chapter_05(
        columns(queries, D, T), columns(keys, 3, 90), columns(values, 5, 90));
    for (const auto [s, d] : every_index(S - 90, 2 * D))
        keys(90 + s, d) = values(90 + s, d) = not_a_number;

    Matrix context = xt::ones<Real>({T, 3 * D}) * Real(77);
    flash_attention(view_of(queries).columns(D, D), view_of(std::as_const(keys)).columns(3, D),
                    view_of(std::as_const(values)).columns(5, D), first,
                    view_of(context).columns(2 * D, D));
    CHECK_CLOSE(columns(context, 2 * D, T), expected, 1e-5);
    for (const auto [t, d] : every_index(T, 2 * D)) CHECK(context(t, d) == 77);
}

TEST_CASE("flash_attention: masked keys and values do not change a single bit") {
    Generator generator(10);
    const std::size_t T = 150, D = 8;
    const Matrix queries = randn({T, D}, generator), keys = randn({T, D}, generator),
                 values = randn({T, D}, generator);
    const Matrix context = attention_in_tiles(queries, keys, values, 0);
    for (const std::size_t num_unmasked : {1u, 2u, 63u, 64u, 65u, 100u, 128u, 149u}) {
        Matrix other_keys = keys, other_values = values;
        xt::view(other_keys, xt::range(num_unmasked, T)) *= Real(1e4);
        xt::view(other_values, xt::range(num_unmasked, T)) = Real(1e30);
        const Matrix other = attention_in_tiles(queries, other_keys, other_values, 0);
        CHECK(identical(Matrix(xt::view(other, xt::range(0, num_unmasked))),
                        Matrix(xt::view(context, xt::range(0, num_unmasked)))));
        CHECK_FALSE(difference(other, context, 1).empty());  // later queries attend to them
    }
}

TEST_CASE("flash_attention with a window is chapter 05's attention with a mask of a window") {
    Generator generator(13);
    const std::size_t T = 150, D = 8;
    const Matrix queries = randn({T, D}, generator), keys = randn({T, D}, generator),
                 values = randn({T, D}, generator);
    for (const WindowSize window : {WindowSize{0, 0},
                                    {1, 0},
                                    {0, 3},
                                    {5, 70},
                                    {63, 64},
                                    {64, 63},
                                    {65, 1},
                                    {149, 149},
                                    {1000, 1000}}) {
        Matrix mask = xt::zeros<Real>({T, T});
        for (const auto [t, s] : every_index(T, T))
            if (s + window.left < t || s > t + window.right) mask(t, s) = -infinity;
        const Matrix expected = attention(queries, keys, values, mask).context;
        INFO("left ", window.left, ", right ", window.right);
        for (const std::size_t first : {0u, 1u, 70u}) {  // position of the first query
            Matrix context = xt::ones<Real>({T - first, D}) * not_a_number;
            flash_attention(view_of(queries).rows(first, T - first), view_of(keys),
                            view_of(values), first, view_of(context), {}, window);
            CHECK_CLOSE(context, Matrix(xt::view(expected, xt::range(first, T))), 1e-5);
        }
    }
}

TEST_CASE("flash_attention: very large scores select one key and do not overflow") {
    // The highest-scoring key is the first, the last, or in the middle; scores are within
    // ±1000.
    const std::size_t T = 140, D = 4;
    for (const std::size_t best : {0u, 70u, 139u}) {
        Matrix queries = xt::ones<Real>({T, D}), keys = xt::ones<Real>({T, D}) * Real(-500);
        xt::view(keys, best) = Real(500);
        const Matrix values = counting({T, D}) / Real(T * D);
        const Matrix context = attention_in_tiles(queries, keys, values, 0);
        CHECK_CLOSE(context, attention_of_chapter_05(queries, keys, values), 1e-5);
        CHECK_CLOSE(Vector(xt::view(context, T - 1)), Vector(xt::view(values, best)), 1e-6);
    }
    Generator generator(11);
    const Matrix queries = randn({T, D}, generator) * Real(30),
                 keys = randn({T, D}, generator) * Real(30), values = randn({T, D}, generator);
    CHECK_CLOSE(attention_in_tiles(queries, keys, values, 0),
                attention_of_chapter_05(queries, keys, values), 1e-4);
}

TEST_CASE("flash_attention reports the numbers of queries, keys and values that do not fit") {
    Matrix context = counting({5, 4}), narrow = counting({5, 3});
    const auto call = [&](const Matrix& queries, const Matrix& keys, const Matrix& values,
                          std::size_t first, MatrixView result) {
        flash_attention(view_of(queries), view_of(keys), view_of(values), first, result);
    };
    const Matrix five = counting({5, 4}), seven = counting({7, 4});
    CHECK_NOTHROW(call(five, seven, seven, 2, view_of(context)));
    CHECK_THROWS_WITH_AS(call(five, seven, seven, 3, view_of(context)),
                         "attention: 5 queries at position 3 do not fit 7 keys and 7 values",
                         ValueError);
    CHECK_THROWS_WITH_AS(call(five, seven, five, 0, view_of(context)),
                         "attention: 5 queries at position 0 do not fit 7 keys and 5 values",
                         ValueError);
    CHECK_THROWS_AS(call(five, counting({7, 5}), seven, 0, view_of(context)), ValueError);
    CHECK_THROWS_AS(call(five, seven, seven, 0, view_of(narrow)), ValueError);
}

TEST_CASE("decode_attention is the last row of chapter 05's attention") {
    Generator generator(12);
    for (const std::size_t S : {1u, 2u, 15u, 64u, 65u, 200u})
        for (const std::size_t D : {1u, 6u, 64u}) {
            const Matrix query = randn({std::size_t{1}, D}, generator) * Real(3),
                         keys = randn({S, 2 * D}, generator),
                         values = randn({S, D + 1}, generator);
            Guarded scores(std::vector<Real>(S, not_a_number), 77),
                context(std::vector<Real>(D, not_a_number), 77);
            decode_attention(view_of(query)[0], view_of(keys).columns(D, D),
                             view_of(values).columns(1, D), scores.values(), context.values());
            const Matrix expected =
                attention_of_chapter_05(query, xt::view(keys, xt::all(), xt::range(D, 2 * D)),
                                        xt::view(values, xt::all(), xt::range(1, D + 1)));
            CHECK_CLOSE(matrix_of({context.values().data(), 1, D, D}), expected, 1e-5);
            CHECK(scores.intact());
            CHECK(context.intact());
        }
}

TEST_CASE("decode_attention reports the shapes that do not fit") {
    std::vector<Real> memory(7);
    const std::span<Real> four = std::span(memory).first(4), five = std::span(memory).first(5);
    const Matrix keys = counting({5, 4}), longer = counting({6, 4}), wider = counting({5, 7});
    const auto call = [&](std::span<Real> query, const Matrix& values, std::span<Real> scores,
                          std::span<Real> context) {
        decode_attention(query, view_of(keys), view_of(values), scores, context);
    };
    CHECK_NOTHROW(call(four, keys, five, four));
    CHECK_THROWS_WITH_AS(call(five, keys, five, four),
                         "attention: a query of 5, 5 scores and a context of 4 do not fit keys "
                         "of (5, 4) and values of (5, 4)",
                         ValueError);
    CHECK_THROWS_AS(call(four, keys, four, four), ValueError);
    CHECK_THROWS_AS(call(four, keys, memory, four), ValueError);
    CHECK_THROWS_AS(call(four, longer, five, four), ValueError);
    CHECK_THROWS_AS(call(four, wider, five, four), ValueError);
    CHECK_THROWS_AS(call(four, keys, five, five), ValueError);
}

TEST_CASE("flash_attention reports the shapes that do not fit") {
    const Matrix queries = counting({5, 4}), wider = counting({5, 3});
    Matrix context = counting({5, 4});
    const auto call = [&](ConstMatrixView q, ConstMatrixView k, ConstMatrixView v,
                          MatrixView result) { flash_attention(q, k, v, 0, result); };
    const ConstMatrixView rows = view_of(queries), other = view_of(wider);
    CHECK_NOTHROW(call(rows, rows, rows, view_of(context)));
    CHECK_THROWS_WITH_AS(call(rows, rows, rows, view_of(context).rows(0, 2)),
                         "attention: queries of (5, 4), keys of (5, 4) and values of (5, 4) do "
                         "not fit a context of (2, 4)",
                         ValueError);
    CHECK_THROWS_AS(call(other, rows, rows, view_of(context)), ValueError);
    CHECK_THROWS_AS(call(rows, other, rows, view_of(context)), ValueError);
    CHECK_THROWS_AS(call(rows, rows, other, view_of(context)), ValueError);
    CHECK_THROWS_AS(call(rows, rows, rows.rows(0, 4), view_of(context)), ValueError);
}

#ifndef LLM_SANITIZE
TEST_CASE("flash_attention and decode_attention allocate no memory") {
    const Matrix rows = counting({200, 8}) / Real(1600);
    Matrix context = rows;
    std::vector<Real> scores(200);
    flash_attention(view_of(rows), view_of(rows), view_of(rows), 0, view_of(context));
    const std::size_t before = num_allocations;
    flash_attention(view_of(rows), view_of(rows), view_of(rows), 0, view_of(context));
    decode_attention(view_of(rows)[0], view_of(rows), view_of(rows), scores,
                     view_of(context)[0]);
    CHECK(num_allocations == before);
}
#endif
