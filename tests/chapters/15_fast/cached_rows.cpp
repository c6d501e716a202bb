#include <algorithm>
#include <cmath>
#include <cstddef>

#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/15_fast/roofline.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/parallel.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

Half half_of_bits(std::uint32_t bits) {
    Half half;
    const auto stored = static_cast<std::uint16_t>(bits);
    std::copy_n(reinterpret_cast<const std::byte*>(&stored), 2,
                reinterpret_cast<std::byte*>(&half));
    return half;
}
std::uint16_t bits_of(const Half& half) {
    std::uint16_t bits;
    std::copy_n(reinterpret_cast<const std::byte*>(&half), 2,
                reinterpret_cast<std::byte*>(&bits));
    return bits;
}

// The value of a float16 by IEEE 754: sign, 5 bits of exponent, 10 bits of mantissa.
double value_of(std::uint32_t bits) {
    const double sign = bits >> 15 ? -1 : 1, mantissa = bits & 1023;
    const int exponent = static_cast<int>(bits >> 10 & 31);
    if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * double(infinity);
    if (exponent == 0) return sign * std::ldexp(mantissa, -24);
    return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// A matrix of float16, and the same numbers as floats.
struct HalfRows {
    xt::xtensor<Half, 2> halves;
    Matrix floats;

    HalfRows(std::size_t num_rows, std::size_t num_columns, Generator& generator)
        : halves(std::array{num_rows, num_columns}), floats(xt::zeros<Real>(halves.shape())) {
        for (std::size_t i = 0; i < halves.size(); ++i) {
            halves.data()[i] = Half(2 * generator.next_uniform() - 1);
            floats.data()[i] = static_cast<Real>(halves.data()[i]);
        }
    }
    CachedRows rows() const {
        return BasicMatrixView<const Half>{halves.data(), halves.shape(0), halves.shape(1),
                                           halves.shape(1)};
    }
};

}  // namespace

TEST_CASE("to_float and to_half: all 65,536 float16, to float and back") {
    std::vector<Half> halves(65536), back(65536);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) halves[bits] = half_of_bits(bits);
    std::vector<Real> floats(65536);
    to_float(halves, floats);
    to_half(floats, back);
    std::size_t num_different = 0;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const double expected = value_of(bits);
        if (std::isnan(expected))
            num_different +=
                !std::isnan(floats[bits]) || !std::isnan(value_of(bits_of(back[bits])));
        else
            num_different += floats[bits] != Real(expected) || bits_of(back[bits]) != bits;
    }
    CHECK(num_different == 0);
}

TEST_CASE("to_half rounds to the nearest float16, ties to even, in registers and after them") {
    // Between neighbors: just below, at, and just above the middle.
    std::vector<Real> floats;
    std::vector<std::uint32_t> expected;
    for (std::uint32_t bits = 0; bits < 0x7BFF; bits += 7) {
        const auto middle = Real((value_of(bits) + value_of(bits + 1)) / 2);
        floats.insert(floats.end(), {std::nextafter(middle, Real(0)), middle,
                                     std::nextafter(middle, Real(70000)), -middle});
        const std::uint32_t even = bits + bits % 2;
        expected.insert(expected.end(), {bits, even, bits + 1, even | 0x8000});
    }
    for (const std::size_t size : {floats.size(), std::size_t{1}, std::size_t{7}}) {
        for (std::size_t begin = 0; begin + size <= floats.size(); begin += size) {
            std::vector<Half> halves(size);
            to_half(std::span(floats).subspan(begin, size), halves);
            std::size_t num_different = 0;
            for (std::size_t i = 0; i < size; ++i)
                num_different += bits_of(halves[i]) != expected[begin + i];
            REQUIRE(num_different == 0);
        }
    }
}

TEST_CASE("to_half returns the largest magnitude, wherever it is") {
    for (std::size_t size = 1; size <= 70; ++size)
        for (std::size_t i = 0; i < size; i += 3) {
            std::vector<Real> values(size, Real(0.5));
            values[i] = i % 2 == 0 ? Real(-70000) : Real(65520);
            std::vector<Half> halves(size);
            CHECK(to_half(values, halves) == std::abs(values[i]));
        }
    std::vector<Half> none;
    CHECK(to_half({}, none) == 0);
}

TEST_CASE("cached rows in float16: products and weighted sums of all widths and lengths") {
    Generator generator(8);
    for (std::size_t width = 1; width <= 130; width += width < 70 ? 1 : 7)
        for (const std::size_t num_rows : {1, 2, 3, 5, 64, 67}) {
            const HalfRows some(num_rows, width, generator);
            Guarded x(random_values(width, generator), not_a_number);
            Guarded products(std::vector<Real>(num_rows), 77),
                sum(std::vector<Real>(width, 1), 77);
            some.rows().dot_rows(x.values(), products.values());
            some.rows().add_weighted_rows(products.values(), sum.values());
            for (std::size_t n = 0; n < num_rows; ++n) {
                const std::span<const Real> row = view_of(some.floats)[n];
                CHECK(std::abs(products.values()[n] - sum_of_products(row, x.values())) <=
                      tolerance_of(row, x.values()));
            }
            for (std::size_t i = 0; i < width; ++i) {
                double expected = 1;
                for (std::size_t n = 0; n < num_rows; ++n)
                    expected += double(products.values()[n]) * double(some.floats(n, i));
                CHECK(std::abs(sum.values()[i] - expected) <=
                      1e-5 * (1 + std::abs(expected)) * 8);
            }
            CHECK(products.intact());
            CHECK(sum.intact());
        }
}

TEST_CASE("attention with a float16 cache is the attention of its rounded keys and values") {
    Generator generator(9);
    for (const std::size_t D : {1, 8, 10, 64, 80})
        for (const std::size_t S : {1, 63, 64, 65, 130}) {
            const HalfRows keys(S, D, generator), values(S, D, generator);
            const Matrix queries = randn({S, D}, generator);
            Matrix context = xt::zeros<Real>({S, D}), expected = context;
            std::vector<Real> workspace(tile_size * D);
            flash_attention(view_of(queries), keys.rows(), values.rows(), 0, view_of(context),
                            workspace);
            flash_attention(view_of(queries), view_of(keys.floats), view_of(values.floats), 0,
                            view_of(expected));
            CHECK_CLOSE(context, expected, 1e-6);

            std::vector<Real> scores(S);
            Matrix last = xt::zeros<Real>({std::size_t{1}, D}), expected_last = last;
            decode_attention(view_of(queries)[S - 1], keys.rows(), values.rows(), scores,
                             view_of(last)[0]);
            decode_attention(view_of(queries)[S - 1], view_of(keys.floats),
                             view_of(values.floats), scores, view_of(expected_last)[0]);
            CHECK_CLOSE(last, expected_last, 1e-5);
            CHECK_CLOSE(last, Matrix(xt::view(expected, xt::range(S - 1, S))), 1e-5);
        }
}

TEST_CASE("attention with keys and values in pages is that of adjacent ones") {
    Generator generator(9);
    constexpr std::size_t D = 8, rows_per_page = 7, num_pages = 20;
    const HalfRows keys(num_pages * rows_per_page, D, generator);
    const HalfRows values(num_pages * rows_per_page, D, generator);
    std::vector<std::size_t> pages;
    for (std::size_t n = 0; n < num_pages; ++n) pages.push_back((3 * n + 5) % num_pages);

    for (const std::size_t S : {1, 7, 63, 64, 65, 130}) {
        Matrix own_keys = xt::zeros<Real>({S, D}), own_values = own_keys;
        for (std::size_t n = 0; n < S; ++n) {
            const std::size_t slot =
                pages[n / rows_per_page] * rows_per_page + n % rows_per_page;
            xt::row(own_keys, std::ptrdiff_t(n)) = xt::row(keys.floats, std::ptrdiff_t(slot));
            xt::row(own_values, std::ptrdiff_t(n)) =
                xt::row(values.floats, std::ptrdiff_t(slot));
        }
        const std::size_t T = std::min<std::size_t>(S, 5);
        const Matrix queries = randn({T, D}, generator);
        Matrix expected = xt::zeros<Real>({T, D}), context = expected;
        flash_attention(view_of(queries), view_of(own_keys), view_of(own_values), S - T,
                        view_of(expected));
        std::vector<Real> workspace(tile_size * D);
        const auto in_pages = [&](CachedRows rows) {
            return rows.paged(pages, rows_per_page, S);
        };
        flash_attention(view_of(queries), in_pages(keys.rows()), in_pages(values.rows()), S - T,
                        view_of(context), workspace);
        CHECK_CLOSE(context, expected, 1e-6);
        flash_attention(view_of(queries), in_pages(view_of(keys.floats)),
                        in_pages(view_of(values.floats)), S - T, view_of(context), workspace);
        CHECK_CLOSE(context, expected, 1e-6);
    }
}

TEST_CASE("a workspace that is too small for a tile of several pages is rejected") {
    Generator generator(9);
    const Matrix rows = randn({70, 8}, generator);
    const std::vector<std::size_t> pages = {1, 0};
    const CachedRows in_pages = CachedRows(view_of(rows)).paged(pages, 35, 70);
    Matrix context = xt::zeros<Real>({70, 8});
    CHECK_THROWS_WITH_AS(
        flash_attention(view_of(rows), in_pages, in_pages, 0, view_of(context)),
        "cache: a workspace of 0 floats is too small for (64, 8)", ValueError);
}

TEST_CASE("a workspace that is too small for a tile of a float16 cache is rejected") {
    Generator generator(9);
    const HalfRows rows(70, 8, generator);
    Matrix context = xt::zeros<Real>({70, 8});
    std::vector<Real> workspace(64 * 8 - 1);
    CHECK_THROWS_WITH_AS(flash_attention(view_of(rows.floats), rows.rows(), rows.rows(), 0,
                                         view_of(context), workspace),
                         "cache: a workspace of 511 floats is too small for (64, 8)",
                         ValueError);
}

TEST_CASE("king_james with a float16 cache: the same tokens, half the bytes, close logits") {
    const Model model = models::load_model(asset("king_james"));
    const FastModel fast = make_fast_model(model, DType::bfloat16);
    const IdMatrix ids = id_fixture<2>("13_training/king_james_ids");
    const std::vector<Id> text(ids.begin(), ids.end());
    CHECK(generate_greedily(fast, {text.begin(), text.begin() + 3}, 24, {}, DType::float16) ==
          text);

    RunState full = make_run_state(fast, 200), half = make_run_state(fast, 200, DType::float16);
    CHECK_FALSE(full.has_float16_cache());
    CHECK(half.has_float16_cache());
    CHECK(half.cache_shape() == full.cache_shape());
    const std::uint64_t cache_bytes = kv_cache_bytes(model.config, 200);
    CHECK(kv_cache_bytes(model.config, 200, DType::float16) * 2 == cache_bytes);
    CHECK(full.nbytes() - half.nbytes() == cache_bytes / 2);

    // A prefill and decode steps. Rounding to 11 bits changes the logits by less than 0.1 %.
    double largest = 0, difference = 0;
    for (std::size_t n = 0; n < text.size(); n += n == 0 ? 18 : 1) {
        const std::span<const Id> new_ids = std::span(text).subspan(n, n == 0 ? 18 : 1);
        const Matrix expected = matrix_of(compute_logits(fast, new_ids, full));
        const Matrix logits = matrix_of(compute_logits(fast, new_ids, half));
        for (std::size_t i = 0; i < logits.size(); ++i) {
            largest = std::max(largest, std::abs(double(expected.data()[i])));
            difference = std::max(
                difference, std::abs(double(logits.data()[i]) - double(expected.data()[i])));
        }
    }
    CHECK(difference > 1e-5);
    CHECK(difference < 1e-3 * largest);
}

TEST_CASE("a key beyond the range of float16 is rejected, and so is a cache of another type") {
    Generator generator(3);
    Config config = mini_llm_config();
    config.hidden_size = 16;
    config.num_hidden_layers = 1;
    config.num_attention_heads = config.num_key_value_heads = 2;
    config.vocab_size = 11;
    Model model = make_model(config, generator);
    model.layers[0].self_attn.projections.v_proj.weight *= Real(1e6);
    const FastModel fast = make_fast_model(model, DType::float32);
    RunState state = make_run_state(fast, 4, DType::float16);
    CHECK_THROWS_WITH_AS(
        compute_logits(fast, std::vector<Id>{1}, state),
        "cache: a key or value exceeds 65504, the range of float16; use a float32 cache",
        ValueError);
    CHECK(state.seq_len == 0);
    RunState float32 = make_run_state(fast, 4);
    CHECK_NOTHROW(compute_logits(fast, std::vector<Id>{1}, float32));
    CHECK_THROWS_WITH_AS(make_run_state(fast, 4, DType::q8_0),
                         "fast model: a cache is float32 or float16, not q8_0", ValueError);
}
