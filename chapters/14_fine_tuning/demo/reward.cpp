#include "chapters/14_fine_tuning/demo/reward.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "chapters/14_fine_tuning/grpo.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

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
          std::tuple{"token means", "token_mean_gradient", LossAggregation::token_mean}}) {
        const GrpoLoss grpo = grpo_loss(log_probs, log_probs, log_probs, mask, advantages,
                                        {Real(0.2), Real(0.04), aggregation});
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
    show_table({"ratio", "objective, A = 1", "gradient", "objective, A = -1", "gradient"},
               rows);

    Line better{"A = 1", {}, {}}, worse{"A = -1", {}, {}};
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
    rewards_and_advantages();
    first_update();
    clipping();
}

}  // namespace llm
