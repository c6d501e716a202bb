#include "chapters/14_fine_tuning/demo/preference.hpp"

#include <cmath>

#include "chapters/14_fine_tuning/dpo.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

void one_pair() {
    step("DPO: a chosen and a rejected response");
    const Vector policy_chosen{-4}, policy_rejected{-6};
    const Vector reference_chosen{-5}, reference_rejected{-5};
    const DpoLoss dpo = dpo_loss(policy_chosen, policy_rejected, reference_chosen,
                                 reference_rejected, Real(0.5));
    show_table({"response", "policy ln p", "reference ln p", "reward"},
               {{"chosen", "-4", "-5", fixed(double(dpo.chosen_rewards(0)), 2)},
                {"rejected", "-6", "-5", fixed(double(dpo.rejected_rewards(0)), 2)}});
    show("dpo_loss", fixed(dpo.loss, 4));
    show("chosen_gradient", fixed(double(dpo.chosen_gradient(0)), 4));
    show("rejected_gradient", fixed(double(dpo.rejected_gradient(0)), 4));
    const DpoLoss first = dpo_loss(reference_chosen, reference_rejected, reference_chosen,
                                   reference_rejected, Real(0.5));
    show("dpo_loss before the first step", fixed(first.loss, 4));
}

// The loss and the gradient of one pair whose margin of rewards is given.
DpoLoss loss_at(double margin, Real beta) {
    const Vector chosen{static_cast<Real>(margin) / beta}, zero{0};
    return dpo_loss(chosen, zero, zero, zero, beta);
}

void growing_margin() {
    step("DPO: the gradient becomes small as the margin grows");
    std::vector<TableRow> rows;
    for (const double margin : {-4.0, -2.0, 0.0, 2.0, 4.0, 8.0}) {
        const DpoLoss dpo = loss_at(margin, Real(0.1));
        rows.push_back({brief(margin), fixed(dpo.loss, 4), fixed(1 / (1 + std::exp(margin)), 4),
                        fixed(double(dpo.chosen_gradient(0)), 5)});
    }
    show_table({"margin", "loss", "σ(-margin)", "gradient of the chosen ln p, beta 0.1"}, rows);

    Line loss{"loss", {}, {}}, weight{"weight of the gradient: σ(-margin)", {}, {}};
    for (int i = -60; i <= 60; ++i) {
        const double margin = 0.1 * i;
        for (Line* line : {&loss, &weight}) line->x.push_back(margin);
        const DpoLoss dpo = loss_at(margin, 1);
        loss.y.push_back(dpo.loss);
        weight.y.push_back(-double(dpo.chosen_gradient(0)));
    }
    plot("dpo", {LinePlot{"DPO: loss and weight of the gradient",
                          "margin of the rewards",
                          "",
                          {loss, weight}}});
}

}  // namespace

void dpo_demo() {
    one_pair();
    growing_margin();
}

}  // namespace llm
