#include "chapters/28_model_parallel/context_parallel.hpp"

#include <set>

#include "chapters/01_masking/masking.hpp"
#include "tests/support/check.hpp"
#include "tests/support/model_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE("ring attention on 1 to 4 ranks: the gradient of one process") {
    check_context_parallel(1e-5);
}

TEST_CASE("zigzag chunks: each position once, and equal work if the chunks are equal") {
    for (const std::size_t n : {1, 2, 3, 4})
        for (const std::size_t T : {8, 13, 24}) {
            std::vector<int> count(T);
            std::set<std::size_t> work;
            for (std::size_t rank = 0; rank < n; ++rank) {
                std::size_t pairs = 0;
                for (const std::size_t t : ZigzagChunks{T, n}.positions(rank)) {
                    ++count[t];
                    pairs += t + 1;
                }
                work.insert(pairs);
            }
            CHECK(std::ranges::count(count, 1) == std::ptrdiff_t(T));
            if (T % (2 * n) == 0) CHECK(work.size() == 1);
        }
    CHECK(ZigzagChunks{13, 2}.positions(0) == std::vector<std::size_t>{0, 1, 2, 3, 10, 11, 12});
}

TEST_CASE("merge: attention to blocks of keys, in any order, is attention to all keys") {
    Generator generator(3);
    Matrix queries = Matrix::from_shape({3, 4}), keys = Matrix::from_shape({7, 4}),
           values = Matrix::from_shape({7, 4});
    for (Matrix* matrix : {&queries, &keys, &values})
        generator.fill_normal({matrix->data(), matrix->size()});
    const Matrix nothing_masked = xt::zeros<Real>({3, 7});
    const Matrix expected = attention(queries, keys, values, nothing_masked).context;
    for (const bool reversed : {false, true}) {
        Matrix context = xt::zeros<Real>({3, 4});
        Vector log_sum_exp(std::array<std::size_t, 1>{3});
        log_sum_exp.fill(-infinity);
        std::vector<Part> blocks = {{0, 2}, {2, 4}, {6, 1}};
        if (reversed) std::ranges::reverse(blocks);
        for (const auto& [begin, size] : blocks)
            merge(view_of(context), {log_sum_exp.data(), 3},
                  attend_to_block(view_of(queries),
                                  view_of(std::as_const(keys)).rows(begin, size),
                                  view_of(std::as_const(values)).rows(begin, size), false));
        CHECK_CLOSE(context, expected, 1e-6);
    }
}

}  // namespace
