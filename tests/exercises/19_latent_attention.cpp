#include "chapters/19_latent_attention/exercise.hpp"

#include <cmath>

#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/19_latent_attention/absorbed_attention.hpp"
#include "chapters/19_latent_attention/attention_cost.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

constexpr std::size_t C = 10, H = 3, R = 7, Dn = 4, Dr = 2, Dv = 5, S = 6;

LatentAttention random_attention() {
    Generator generator(1);
    LatentAttention attention =
        make_latent_attention({C, H, {}, R, Dn, Dr, Dv}, Real(1e-6), generator);
    attention.scale = Real(0.9);
    return attention;
}

}  // namespace

TEST_CASE("19.1 predict: numbers that are cached of each token") {
    Config config;
    config.hidden_size = 768;
    config.num_attention_heads = config.num_key_value_heads = 12;
    config.head_dim = 64;
    const auto multi_head = attention_cost(config, 1).cached_numbers;
    config.num_key_value_heads = 2;
    const auto grouped = attention_cost(config, 1).cached_numbers;
    const auto latent =
        attention_cost(LatentSizes{768, 12, {}, 256, 64, 32, 64}, 1).cached_numbers;
    INFO("a key and a value for each key/value head; a latent vector and one rotated key");
    CHECK_CLOSE(predicted_cached_numbers(),
                (Vector{Real(multi_head), Real(grouped), Real(latent)}), 0);
}

TEST_CASE("19.2 predict: parameters of the four projections") {
    Generator generator(1);
    const LatentAttention attention =
        make_latent_attention({100, 10, {}, 20, 8, 4, 6}, 1, generator);
    const auto count = [](const Linear& linear) { return Real(num_parameters(linear)); };
    INFO("rows times columns: q_proj has H (Dn + Dr) rows, and kv_b_proj H (Dn + Dv)");
    CHECK_CLOSE(
        predicted_parameters(),
        (Vector{count(std::get<Linear>(attention.q_proj)), count(attention.kv_a_proj_with_mqa),
                count(attention.kv_b_proj), count(attention.o_proj)}),
        0);
}

TEST_CASE("19.3 find the bug: YaRN in the scores of a DeepSeek-V2") {
    CHECK(score_scale(128, 64, 1, Real(0.707)) == doctest::Approx(1 / std::sqrt(192.0)));
    INFO("query and key are both multiplied by YaRN's factor, 1.2608 here");
    CHECK(score_scale(128, 64, 40, Real(0.707)) == doctest::Approx(0.11472).epsilon(1e-4));
    const double mscale = 0.1 * std::log(4.0) + 1;
    CHECK(score_scale(5, 4, 4, 1) == doctest::Approx(mscale * mscale / 3));
}

TEST_CASE("19.4 write absorbed_decode") {
    const LatentAttention attention = random_attention();
    Generator generator(2);
    const Tensor4 entries = randn({1, 1, S, R + Dr}, generator);
    const Tensor4 queries = randn({1, H, 1, Dn + Dr}, generator);
    const Tensor4 mask = xt::zeros<Real>({std::size_t{1}, std::size_t{1}, std::size_t{1}, S});
    const Tensor4 expected = expanded_attention(attention, queries, entries, mask).context;
    const Matrix context = absorbed_decode(attention, reshape(queries, {H, Dn + Dr}),
                                           reshape(entries, {S, R + Dr}));
    {
        INFO("the context of each head, as with expanded keys and values");
        REQUIRE_CLOSE(context, reshape(expected, {H, Dv}), 1e-5);
    }
    // Numbers with which keys would be infinite, but not what is absorbed.
    LatentAttention large = attention;
    for (std::size_t row = 0; row < H * (Dn + Dv); ++row)
        for (std::size_t r = 0; r < R; ++r)
            large.kv_b_proj.weight(row, r) = row % (Dn + Dv) < Dn ? Real(1e20) : Real(1e-30);
    Matrix large_entries(std::array{S, R + Dr});
    large_entries.fill(Real(1e30));
    const Matrix no_query = xt::zeros<Real>({H, Dn + Dr});
    INFO("no keys may be expanded: here they overflow");
    CHECK_CLOSE(absorbed_decode(large, no_query, large_entries),
                Matrix(xt::ones<Real>({H, Dv}) * Real(R)), 1e-4);
}

TEST_CASE("19.5 predict: where the better order changes") {
    const LatentSizes sizes{64, 1, {}, 64, 32, 16, 32};
    std::size_t first = 1;
    while (absorbing_is_cheaper(sizes, first, 64)) ++first;
    INFO(
        "expanding: S R (Dn + Dv) + T S (Dn + Dr + Dv) products; absorbing: T R (Dn + Dv) + "
        "T S (2 R + Dr)");
    CHECK(predicted_crossover() == first);
}

TEST_CASE("19.6 write fold_values") {
    const LatentAttention attention = random_attention();
    Generator generator(3);
    const Tensor4 latent_context = randn({2, H, S, R}, generator);
    const Tensor3 expected =
        attention.o_proj(merge_heads(expand_context(attention, latent_context)));
    const Linear folded = fold_values(attention);
    INFO("a matrix of (C, H*R)");
    REQUIRE(folded.weight.shape() == std::array{C, H * R});
    CHECK_CLOSE(folded(merge_heads(latent_context)), expected, 1e-5);
}
