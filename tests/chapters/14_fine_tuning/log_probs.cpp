// Masked log-probabilities and the SFT loss, against PyTorch's autograd.
#include "chapters/14_fine_tuning/log_probs.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("token_log_probs and its backward equal PyTorch's log_softmax and gather") {
    const Tensor3 logits = fixture<3>("14_fine_tuning/logits");
    const IdMatrix targets = id_fixture<2>("14_fine_tuning/targets");
    const Matrix upstream = fixture<2>("14_fine_tuning/upstream");
    CHECK_CLOSE(token_log_probs(logits, targets), fixture<2>("14_fine_tuning/log_probs"), 1e-6);
    CHECK_CLOSE(token_log_probs_backward(logits, targets, upstream),
                fixture<3>("14_fine_tuning/logits_gradient"), 1e-6);
}

TEST_CASE("sequence_log_probs adds the log-probabilities that the mask selects") {
    const Matrix log_probs = fixture<2>("14_fine_tuning/log_probs");
    const Matrix mask = fixture<2>("14_fine_tuning/mask");
    CHECK_CLOSE(sequence_log_probs(log_probs, mask),
                fixture<1>("14_fine_tuning/sequence_log_probs"), 1e-6);
    CHECK_CLOSE(sequence_log_probs_backward({{0, 1, 1}, {1, 0, 0}}, {-2, 3}),
                (Matrix{{0, -2, -2}, {3, 0, 0}}), 0);
}

TEST_CASE("sft_loss and its gradient equal PyTorch's cross_entropy with labels of -100") {
    const Tensor3 logits = fixture<3>("14_fine_tuning/logits");
    const IdMatrix targets = id_fixture<2>("14_fine_tuning/targets");
    const TokenLoss sft =
        sft_loss(token_log_probs(logits, targets), fixture<2>("14_fine_tuning/mask"));
    CHECK(sft.loss == doctest::Approx(fixture<1>("14_fine_tuning/sft_loss")(0)));
    CHECK_CLOSE(token_log_probs_backward(logits, targets, sft.gradient),
                fixture<3>("14_fine_tuning/sft_gradient"), 1e-6);
}

TEST_CASE("sft_loss with a mask of ones is the cross-entropy of chapter 12") {
    const Tensor3 logits = fixture<3>("14_fine_tuning/logits");
    const IdMatrix targets = id_fixture<2>("14_fine_tuning/targets");
    const Matrix ones = xt::ones<Real>(targets.shape());
    CHECK(sft_loss(token_log_probs(logits, targets), ones).loss ==
          doctest::Approx(cross_entropy(logits, targets)));
}

TEST_CASE("token_log_probs stays finite when the probability of a target underflows") {
    CHECK(token_log_probs({{{200, 0}}}, {{1}})(0, 0) == doctest::Approx(-200));
    CHECK(token_log_probs({{{1e4f, 0}}}, {{0}})(0, 0) == 0);
}

TEST_CASE("make_response_batch predicts the next token, masks the prompt, pads on the right") {
    const ResponseBatch batch = make_response_batch({{{1, 2, 3}, {4, 5}}, {{6}, {7, 8}}}, 9);
    CHECK_CLOSE(batch.input_ids, (IdMatrix{{1, 2, 3, 4}, {6, 7, 9, 9}}), 0);
    CHECK_CLOSE(batch.targets, (IdMatrix{{2, 3, 4, 5}, {7, 8, 9, 9}}), 0);
    CHECK_CLOSE(batch.response_mask, (Matrix{{0, 0, 1, 1}, {1, 1, 0, 0}}), 0);
    const ResponseBatch all =
        make_response_batch({{{1, 2, 3}, {4, 5}}, {{6}, {7, 8}}}, 9, LossOn::everything);
    CHECK_CLOSE(all.response_mask, (Matrix{{1, 1, 1, 1}, {1, 1, 0, 0}}), 0);
}

TEST_CASE("Log-probabilities name shapes, targets and masks that do not fit") {
    const Tensor3 logits = xt::zeros<Real>({1, 2, 3});
    CHECK_THROWS_WITH_AS(token_log_probs(logits, {{0, 3}}),
                         "token_log_probs: there is no token 3 in a vocabulary of 3",
                         ValueError);
    CHECK_THROWS_WITH_AS(token_log_probs(logits, {{0}}),
                         "token_log_probs: targets of (1, 1) do not fit logits of (1, 2, 3)",
                         ValueError);
    CHECK_THROWS_WITH_AS(sft_loss({{-1, -2}}, {{0, 0}}), "sft_loss: the mask selects no token",
                         ValueError);
    CHECK_THROWS_WITH_AS(make_response_batch({{{}, {1}}}, 0),
                         "make_response_batch: a prompt of 0 and a response of 1 tokens; each "
                         "needs at least one",
                         ValueError);
}
