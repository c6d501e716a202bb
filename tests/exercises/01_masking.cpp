#include <cmath>

#include "chapters/01_masking/exercise.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

TEST_CASE("1.1 predict the weights of one row") {
    const Vector prediction = predicted_weights();  // before the answer is computed
    const Matrix scores{{0, std::log(Real(3)), 5, 7, 9}};
    const Matrix row = xt::view(causal_mask(5, 5), xt::range(1, 2), xt::all());
    const Vector weights = xt::view(softmax(scores + row), 0);
    INFO("the attention weights of five keys");
    CHECK_CLOSE(prediction, weights, 0.01);
}

TEST_CASE("1.2 predict how many keys") {
    const Vector prediction = predicted_key_counts();
    const Matrix mask = causal_mask(4, 7);
    const Matrix allowed = xt::cast<Real>(xt::equal(mask, Real(0)));
    const Vector counts = xt::sum(allowed, {1});
    INFO("the number of keys for each of four queries");
    CHECK_CLOSE(prediction, counts, 0);
}

TEST_CASE("1.3 find the bug: the weights of a sequence") {
    const Matrix scores{{1, 2, 3}, {0, 1, 5}, {2, 2, 0}};
    const Matrix mask = causal_mask(3, 3);
    INFO("the attention weights of three queries");
    CHECK_CLOSE(weights_of_sequence(scores, mask), softmax(scores + mask), 1e-6);
}

TEST_CASE("1.4 find the bug: several documents in one sequence") {
    const Real inf = infinity;
    INFO("the mask for the document ids 0, 0, 1, 1");
    CHECK_CLOSE(document_mask({0, 0, 1, 1}),
                (Matrix{{0, -inf, -inf, -inf},
                        {0, 0, -inf, -inf},
                        {-inf, -inf, 0, -inf},
                        {-inf, -inf, 0, 0}}),
                0);
    INFO("the mask for the document ids 7, 7, 7");
    CHECK_CLOSE(document_mask({7, 7, 7}), causal_mask(3, 3), 0);
}

TEST_CASE("1.5 write sliding_window_mask") {
    const Real inf = infinity;
    {
        INFO("a token attends to itself and to the window - 1 tokens before it");
        CHECK_CLOSE(sliding_window_mask(4, 2),
                    (Matrix{{0, -inf, -inf, -inf},
                            {0, 0, -inf, -inf},
                            {-inf, 0, 0, -inf},
                            {-inf, -inf, 0, 0}}),
                    0);
        CHECK_CLOSE(sliding_window_mask(3, 1),
                    (Matrix{{0, -inf, -inf}, {-inf, 0, -inf}, {-inf, -inf, 0}}), 0);
    }
    INFO("a window of at least seq_len tokens gives the causal mask");
    CHECK_CLOSE(sliding_window_mask(5, 9), causal_mask(5, 5), 0);
}

TEST_CASE("1.6 write prefix_mask") {
    const Real inf = infinity;
    INFO("tokens of the prefix attend to each other, later tokens use causal attention");
    CHECK_CLOSE(prefix_mask(4, 2),
                (Matrix{{0, 0, -inf, -inf}, {0, 0, -inf, -inf}, {0, 0, 0, -inf}, {0, 0, 0, 0}}),
                0);
    CHECK_CLOSE(prefix_mask(5, 0), causal_mask(5, 5), 0);
    CHECK_CLOSE(prefix_mask(3, 3), Matrix(xt::zeros<Real>({3, 3})), 0);
}
