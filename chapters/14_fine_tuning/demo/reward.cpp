#include "chapters/14_fine_tuning/demo/reward.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "chapters/14_fine_tuning/grpo.hpp"
#include "chapters/14_fine_tuning/policy_gradient.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// Two actions with the probabilities 0.25 and 0.75, and rewards that are both large.
void two_armed_bandit() {
    step("Two actions: the policy gradient, without and with a baseline");
    const Vector logits{0, std::log(Real(3))}, rewards{11, 10};
    const Vector policy = softmax(logits);
    const Real expected = static_cast<Real>(expected_reward(logits, rewards));
    show("policy", policy);
    show("expected reward", fixed(double(expected), 2));
    show("exact_gradient", expected_reward_gradient(logits, rewards));
    std::vector<TableRow> rows;
    double mean = 0, mean_with_baseline = 0, squares = 0, squares_with_baseline = 0;
    for (std::size_t a = 0; a < 2; ++a) {
        const double estimate = double(policy_gradient(logits, a, rewards(a))(0));
        const double with_baseline =
            double(policy_gradient(logits, a, rewards(a) - expected)(0));
        mean += double(policy(a)) * estimate;
        mean_with_baseline += double(policy(a)) * with_baseline;
        squares += double(policy(a)) * estimate * estimate;
        squares_with_baseline += double(policy(a)) * with_baseline * with_baseline;
        rows.push_back({to_text(a), fixed(double(policy(a)), 2), fixed(double(rewards(a)), 0),
                        fixed(double(policy_gradient(logits, a, 1)(0)), 2), fixed(estimate, 4),
                        fixed(with_baseline, 4)});
    }
    rows.push_back({"mean", "", "", "", fixed(mean, 4), fixed(mean_with_baseline, 4)});
    rows.push_back(
        {"std", "", "", "", fixed(std::sqrt(squares - mean * mean), 4),
         fixed(std::sqrt(squares_with_baseline - mean_with_baseline * mean_with_baseline), 4)});
    show_table({"action", "p", "reward R", "d ln p", "times R", "times R - J"}, rows);
    say("d ln p is the derivative with respect to the first logit; J is the expected reward.");
}

void rewards_and_advantages() {
    step("GRPO: the rewards of a group become advantages");
    const Vector rewards{1, 0, 0, 0, 1, 1, 1, 1};
    show("rewards", rewards);
    show("group_advantages", group_advantages(rewards, 4));
    say("The second group has equal rewards: its advantages are 0, and it gives no gradient.");
}

void first_update() {
    step("GRPO: the first loss is 0, its gradient is not");
    // Rewards 1 and 0; the second response is three times as long.
    const Matrix log_probs{{-1, 0, 0}, {-3, -2, -1}};
    const Matrix mask{{1, 0, 0}, {1, 1, 1}};
    const Vector advantages = group_advantages({1, 0}, 2);
    show("both_response_masks", mask);
    show("response_advantages", advantages);
    for (const auto& [name, gradient_name, aggregation] :
         {std::tuple{"sequence means", "sequence_mean_gradient",
                     LossAggregation::sequence_mean},
          std::tuple{"token means", "token_mean_gradient", LossAggregation::token_mean},
          std::tuple{"a fixed length of 4", "fixed_length_gradient",
                     LossAggregation::fixed_length}}) {
        const GrpoLoss grpo = grpo_loss(log_probs, log_probs, log_probs, mask, advantages,
                                        {Real(0.2), Real(0.04), aggregation, 4});
        show(std::string("loss with ") + name,
             fixed(std::abs(grpo.loss) < 1e-9 ? 0 : grpo.loss, 4));
        show(gradient_name, grpo.gradient);
    }
}

// The terms of one token with the old log-probability ln 0.5, without a KL penalty.
GrpoLoss token_loss(double ratio, Real advantage) {
    const Matrix old{{static_cast<Real>(std::log(0.5))}}, one{{1}};
    const Matrix now{{static_cast<Real>(std::log(0.5 * ratio))}};
    return grpo_loss(now, old, now, one, {advantage}, {Real(0.2), 0});
}

void clipping() {
    step("GRPO: a ratio outside 0.8 to 1.2 is clipped");
    std::vector<TableRow> rows;
    for (const double ratio : {0.5, 0.9, 1.0, 1.1, 1.5}) {
        const GrpoLoss better = token_loss(ratio, 1), worse = token_loss(ratio, -1);
        const auto text = [](double number) { return fixed(number == 0 ? 0 : number, 2); };
        rows.push_back({brief(ratio), text(-better.loss), text(double(better.gradient(0, 0))),
                        text(-worse.loss), text(double(worse.gradient(0, 0)))});
    }
    show_table(
        {"ratio", "objective, advantage 1", "d loss", "objective, advantage -1", "d loss"},
        rows);

    Line better{"advantage 1", {}, {}}, worse{"advantage -1", {}, {}};
    for (int i = 20; i <= 180; ++i) {
        const double ratio = 0.01 * i;
        for (Line* line : {&better, &worse}) line->x.push_back(ratio);
        better.y.push_back(-token_loss(ratio, 1).loss);
        worse.y.push_back(-token_loss(ratio, -1).loss);
    }
    plot("clipping", {LinePlot{"The clipped objective of one token",
                               "ratio p / p_old",
                               "objective",
                               {better, worse}}});
}

}  // namespace

void grpo_demo() {
    two_armed_bandit();
    rewards_and_advantages();
    first_update();
    clipping();
}

}  // namespace llm
