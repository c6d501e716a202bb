#include "chapters/15_fast/kernels/simd.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

TEST_CASE("dot is a sum of products, for all sizes, and does not read past the end") {
    Generator generator(2);
    for (std::size_t size = 0; size <= 200; ++size) {
        Guarded a(random_values(size, generator), not_a_number),
            b(random_values(size, generator), not_a_number);
        const double gap =
            dot(a.values(), b.values()) - sum_of_products(a.values(), b.values());
        CHECK(std::abs(gap) <= tolerance_of(a.values(), b.values()));
    }
}

TEST_CASE("dot and dequantize of bfloat16: the floats with these upper halves") {
    Generator generator(3);
    for (std::size_t size = 0; size <= 200; ++size) {
        std::vector<Real> weights = random_values(size, generator);
        Guarded inputs(random_values(size, generator), not_a_number);
        // At an unaligned address, with NaN before and after the row.
        std::vector<Bfloat16> memory(size + 2, Bfloat16{0x7FC0});
        const std::span<Bfloat16> row = std::span(memory).subspan(1, size);
        for (std::size_t i = 0; i < size; ++i) {
            const auto bits = std::bit_cast<std::uint32_t>(weights[i]);
            row[i].bits = static_cast<std::uint16_t>(bits >> 16);
            weights[i] = std::bit_cast<float>(bits & 0xFFFF0000);
        }
        const double gap =
            dot(row, inputs.values()) - sum_of_products(weights, inputs.values());
        CHECK(std::abs(gap) <= tolerance_of(weights, inputs.values()));

        Guarded dequantized(std::vector<Real>(size), 77);
        dequantize(row, dequantized.values());
        CHECK(std::ranges::equal(dequantized.values(), weights));
        CHECK(dequantized.intact());
    }
}

// Rows of random values, further apart than they are long, with NaN in between.
struct SpacedRows {
    std::vector<Real> memory;
    ConstMatrixView view;

    SpacedRows(std::size_t num_rows, std::size_t size, Generator& generator)
        : memory(num_rows * (size + 3) + 1, not_a_number),
          view{memory.data() + 1, num_rows, size, size + 3} {
        for (std::size_t n = 0; n < num_rows; ++n)
            std::ranges::copy(random_values(size, generator), &memory[n * (size + 3) + 1]);
    }
};

TEST_CASE("dot_rows: the dot product of each row, for all sizes and numbers of rows") {
    Generator generator(5);
    for (std::size_t size = 0; size <= 100; ++size) {
        const std::size_t num_rows = size % 11;
        const SpacedRows rows(num_rows, size, generator);
        Guarded x(random_values(size, generator), not_a_number);
        Guarded products(std::vector<Real>(num_rows), 77);
        dot_rows(rows.view, x.values(), products.values());
        for (std::size_t n = 0; n < num_rows; ++n)
            CHECK(std::abs(products.values()[n] - sum_of_products(rows.view[n], x.values())) <=
                  tolerance_of(rows.view[n], x.values()));
        CHECK(products.intact());
    }
}

TEST_CASE("add_weighted_rows adds each row times its weight to y, for all sizes") {
    Generator generator(5);
    for (std::size_t size = 0; size <= 200; ++size) {
        const std::size_t num_rows = size % 7;
        const SpacedRows rows(num_rows, size, generator);
        const std::vector<Real> before = random_values(size, generator);
        Guarded y(before, 77), weights(random_values(num_rows, generator), not_a_number);
        add_weighted_rows(weights.values(), rows.view, y.values());
        for (std::size_t i = 0; i < size; ++i) {
            double expected = before[i];
            for (std::size_t n = 0; n < num_rows; ++n)
                expected += double(weights.values()[n]) * rows.view[n][i];
            CHECK(y.values()[i] == doctest::Approx(expected).epsilon(1e-5));
        }
        CHECK(y.intact());
    }
}

TEST_CASE(
    "amax finds the largest value at each index, for all sizes, and -inf in an empty span") {
    for (std::size_t size = 0; size <= 200; ++size) {
        // The values before and after the span are larger.
        Guarded values(std::vector<Real>(size, -500), 1e9f);
        CHECK(amax(values.values()) == (size == 0 ? -infinity : -500));
        for (std::size_t i = 0; i < size; ++i) {
            values.values()[i] = Real(-3.5);
            CHECK(amax(values.values()) == Real(-3.5));
            values.values()[i] = -infinity;
        }
        CHECK(amax(values.values()) == -infinity);
    }
}

TEST_CASE("exp_and_sum: the exponential of each value and their sum, for all sizes") {
    for (std::size_t size = 0; size <= 200; ++size) {
        std::vector<Real> before(size);
        for (std::size_t i = 0; i < size; ++i)
            before[i] = static_cast<Real>((i * 37 + size) % 101) / 4 - 12;
        Guarded values(before, 77);
        const double sum = exp_and_sum(values.values(), Real(0.5), Real(1.25));
        double expected_sum = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const double expected = std::exp(0.5 * before[i] - 1.25);  // in double
            CHECK(std::abs(values.values()[i] / expected - 1) < 1e-6);
            expected_sum += expected;
        }
        CHECK(std::abs(sum - expected_sum) <= 1e-6 * expected_sum);
        CHECK(values.intact());
    }
}

TEST_CASE("exp_and_sum: six digits from -80 to 80, in vector registers and in the remainder") {
    double worst = 0;
    for (Real x = -80; x <= 80; x += Real(0.015625)) {
        std::array<Real, 17> values;  // 16 in vector registers and one left over
        values.fill(x);
        exp_and_sum(values, 1, 0);
        for (const Real value : values)
            worst = std::max(worst, std::abs(value / std::exp(double(x)) - 1));
    }
    CHECK(worst < 1e-6);
}

TEST_CASE("exp_and_sum: -inf gives exactly 0, NaN gives NaN") {
    for (const std::size_t size : {1u, 3u, 16u, 19u, 64u}) {
        std::vector<Real> masked(size, -infinity);
        CHECK(exp_and_sum(masked, Real(0.1), 5) == 0);
        for (const Real value : masked) CHECK(value == 0);
        std::vector<Real> tiny(size, -200), huge(size, 200);
        CHECK(exp_and_sum(tiny, 1, 0) < 1e-30);
        CHECK(exp_and_sum(huge, 1, 0) == infinity);

        for (std::size_t index = 0; index < size; ++index) {
            std::vector<Real> values(size, 1);
            values[index] = not_a_number;
            CHECK(std::isnan(exp_and_sum(values, 1, 0)));
            for (std::size_t i = 0; i < size; ++i) CHECK(std::isnan(values[i]) == (i == index));
        }
    }
}

TEST_CASE("silu_and_mul is silu of the gate times up, for all sizes") {
    Generator generator(6);
    for (std::size_t size = 0; size <= 200; ++size) {
        std::vector<Real> before = random_values(size, generator);
        for (Real& value : before) value *= 4;
        Guarded gate(before, 77), up(random_values(size, generator), not_a_number);
        silu_and_mul(gate.values(), up.values());
        for (std::size_t i = 0; i < size; ++i) {
            const double expected =
                before[i] / (1 + std::exp(-double(before[i]))) * up.values()[i];
            CHECK(std::abs(gate.values()[i] - expected) <= 1e-6 * std::abs(expected) + 1e-30);
        }
        CHECK(gate.intact());
    }
}

TEST_CASE("silu_and_mul is 0 far below zero and gate times up far above") {
    for (const std::size_t size : {1u, 16u, 19u}) {
        for (const auto& [gate, expected] : std::vector<std::pair<Real, Real>>{
                 {-100, 0}, {-1000, 0}, {-1e30f, 0}, {0, 0}, {100, -300}, {1000, -3000}}) {
            std::vector<Real> values(size, gate);
            silu_and_mul(values, std::vector<Real>(size, -3));
            for (const Real value : values) CHECK(std::abs(value - expected) < 1e-30);
        }
    }
}

TEST_CASE("rms_norm is chapter 07's RMSNorm of one row, for all sizes, also in place") {
    Generator generator(20);
    for (std::size_t size = 1; size <= 200; ++size) {
        Guarded row(random_values(size, generator), not_a_number),
            weight(random_values(size, generator), not_a_number);
        const double mean_square = sum_of_products(row.values(), row.values()) / double(size);
        std::vector<double> expected(size);
        for (std::size_t i = 0; i < size; ++i)
            expected[i] = row.values()[i] / std::sqrt(mean_square + 0.25) * weight.values()[i];
        Guarded normalized(std::vector<Real>(size), 77);
        rms_norm(row.values(), weight.values(), Real(0.25), normalized.values());
        CHECK(normalized.intact());
        rms_norm(row.values(), weight.values(), Real(0.25), row.values());
        for (std::size_t i = 0; i < size; ++i) {
            CHECK(std::abs(normalized.values()[i] - expected[i]) <=
                  1e-6 * std::abs(expected[i]));
            CHECK(row.values()[i] == doctest::Approx(normalized.values()[i]).epsilon(1e-6));
        }
    }
}

TEST_CASE("apply_rotary_embedding is chapter 04's rotation of one head, for all sizes") {
    Generator generator(21);
    for (std::size_t half = 0; half <= 100; ++half) {
        const std::vector<Real> before = random_values(2 * half, generator);
        Guarded head(before, 77), cos(random_values(half, generator), not_a_number),
            sin(random_values(half, generator), not_a_number);
        apply_rotary_embedding(head.values(), cos.values(), sin.values());
        for (std::size_t i = 0; i < half; ++i) {
            const double c = cos.values()[i], s = sin.values()[i];
            const double x = before[i], y = before[i + half];
            CHECK(std::abs(head.values()[i] - (x * c - y * s)) < 2e-6);
            CHECK(std::abs(head.values()[i + half] - (y * c + x * s)) < 2e-6);
        }
        CHECK(head.intact());
    }
}
