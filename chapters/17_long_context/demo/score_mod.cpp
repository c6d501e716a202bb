#include "chapters/17_long_context/demo/score_mod.hpp"

#include "chapters/01_masking/masking.hpp"
#include "chapters/09_full_model/model.hpp"
#include "chapters/17_long_context/score_mod.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {

void soft_caps() {
    step("A soft cap of 50");
    const Matrix scores = {{1, 10, 40, 100, 1000}};
    show("scores", scores);
    show("capped_scores", logit_softcap(scores, 50));

    step("Wrong: cap after the mask");
    const Matrix small_scores = {{0.5f, 1, 1.5f}};
    const Matrix mask = {{0, 0, -infinity}};
    const Matrix masked = small_scores + mask;
    show("weights, cap before the mask",
         fixed(double(softmax(logit_softcap(small_scores, 2) + mask)(0, 2)), 4));
    show("weights, cap after the mask",
         fixed(double(softmax(logit_softcap(masked, 2))(0, 2)), 4));
}

void softmax_with_a_sink() {
    step("No key matches, but the weights must sum to 1");
    const Matrix scores = {{-4, -5, -4.5f, -6}};
    show("low_scores", scores);
    show("softmax_weights", softmax(scores));
    std::vector<TableRow> rows;
    for (const Real sink : {Real(-10), Real(-4), Real(0), Real(4)}) {
        const SinkSoftmax output = softmax_with_sink(scores, sink);
        TableRow row = {brief(double(sink))};
        double total = 0;
        for (const Real weight : output.weights) {
            row.push_back(fixed(double(weight), 3));
            total += double(weight);
        }
        row.push_back(fixed(total, 3));
        row.push_back(fixed(double(output.sink_weights(0)), 3));
        rows.push_back(row);
    }
    show_table({"sink", "key 0", "key 1", "key 2", "key 3", "sum", "on the sink"}, rows);
}

void temperature_of_queries() {
    step("More keys make the softmax flatter");
    std::vector<TableRow> rows;
    for (const std::size_t num_keys : {100u, 8192u, 131072u, 1048576u}) {
        // One key has a score of 12, all others 0.
        const double flat = 1 / (1 + double(num_keys - 1) / std::exp(12.0));
        const Tensor4 query = xt::ones<Real>({1, 1, 1, 1});
        const IdMatrix position = {{static_cast<Id>(num_keys - 1)}};
        const double temperature = double(tune_temperature(query, position, {})(0, 0, 0, 0));
        const double tuned = 1 / (1 + double(num_keys - 1) / std::exp(12.0 * temperature));
        rows.push_back(
            {with_commas(num_keys), fixed(flat, 3), fixed(temperature, 3), fixed(tuned, 3)});
    }
    show_table({"keys", "weight of a score of 12", "temperature", "with temperature"}, rows);
}

}  // namespace llm
