// Training steps over losses of log-probabilities, with all parameters and with LoRA.
#include "chapters/12_gradients/loss.hpp"
#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

const std::vector<Completion> completions{{{1, 2, 3}, {4, 5}}, {{6}, {7}}, {{2, 4}, {6, 8, 0}}};

LossOfLogProbs sft_of(const ResponseBatch& batch) {
    return [mask = batch.response_mask](const Matrix& log_probs) {
        return sft_loss(log_probs, mask);
    };
}

FineTuningMetrics step_with(FineTuner& tuner, const ResponseBatch& batch, std::size_t num_parts,
                            std::vector<Model>& gradients) {
    gradients.assign(num_parts, zeros_like(tuner.model));
    return fine_tuning_step(tuner, batch, sft_of(batch), Real(0.01), 1e9, gradients);
}

}  // namespace

TEST_CASE("A step of SFT on everything is a step of chapter 13") {
    const Model model = fixture_model();
    const ResponseBatch batch =
        make_response_batch({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}, 0, LossOn::everything);
    FineTuner tuner = make_fine_tuner(model);
    std::vector<Model> gradients;
    const FineTuningMetrics metrics = step_with(tuner, batch, 1, gradients);
    Model expected = model, gradient = zeros_like(model);
    const double loss = forward_backward(model, batch.input_ids, batch.targets, gradient);
    AdamW optimizer;
    optimizer.weight_decay = 0;
    optimizer.step(named_parameters(expected), named_parameters(gradient), Real(0.01));
    CHECK(metrics.loss == doctest::Approx(loss).epsilon(1e-6));
    CHECK(metrics.grad_norm ==
          doctest::Approx(grad_norm(named_parameters(gradient))).epsilon(1e-5));
    CHECK_CLOSE(all_values(gradients[0]), all_values(gradient), 1e-6);
    CHECK_CLOSE(all_values(tuner.model), all_values(expected), 1e-4);
}

TEST_CASE("The number of parts of a batch does not change loss and gradient") {
    const Model model = fixture_model();
    const ResponseBatch batch = make_response_batch(completions, 0);
    FineTuner one = make_fine_tuner(model);
    std::vector<Model> whole, divided;
    const FineTuningMetrics expected = step_with(one, batch, 1, whole);
    for (const std::size_t num_parts : {2, 3, 5}) {
        FineTuner many = make_fine_tuner(model);
        const FineTuningMetrics metrics = step_with(many, batch, num_parts, divided);
        CHECK(metrics.loss == doctest::Approx(expected.loss).epsilon(1e-6));
        CHECK_CLOSE(all_values(divided[0]), all_values(whole[0]), 1e-6);
    }
}

TEST_CASE("Padding changes neither the loss nor the gradient") {
    const Model model = fixture_model();
    std::vector<Model> short_gradient, long_gradient;
    const ResponseBatch batch = make_response_batch(completions, 0);
    ResponseBatch longer = make_response_batch(completions, 9);  // another padding token
    const std::size_t T = batch.targets.shape(1);
    ResponseBatch padded{9 * xt::ones<Id>({std::size_t(3), T + 3}),
                         9 * xt::ones<Id>({std::size_t(3), T + 3}),
                         xt::zeros<Real>({std::size_t(3), T + 3})};
    xt::view(padded.input_ids, xt::all(), xt::range(0, T)) = longer.input_ids;
    xt::view(padded.targets, xt::all(), xt::range(0, T)) = longer.targets;
    xt::view(padded.response_mask, xt::all(), xt::range(0, T)) = longer.response_mask;
    FineTuner one = make_fine_tuner(model), two = one;
    const FineTuningMetrics first = step_with(one, batch, 1, short_gradient);
    const FineTuningMetrics second = step_with(two, padded, 1, long_gradient);
    CHECK(first.loss == doctest::Approx(second.loss).epsilon(1e-6));
    CHECK_CLOSE(all_values(short_gradient[0]), all_values(long_gradient[0]), 1e-6);
}

TEST_CASE("With LoRA only the target modules change, and the merged model learns the answers") {
    const Model model = fixture_model();
    LoraConfig config;
    config.target_modules = {"v_proj", "up_proj"};
    Generator generator(1);
    FineTuner tuner = make_fine_tuner(model, make_lora(model, config, generator));
    const ResponseBatch batch = make_response_batch(completions, 0);
    std::vector<Model> gradients;
    const double first = step_with(tuner, batch, 2, gradients).loss;
    for (int step = 0; step < 20; ++step) step_with(tuner, batch, 2, gradients);
    const double last = step_with(tuner, batch, 2, gradients).loss;
    CHECK(last < 0.8 * first);
    const Matrix& down = tuner.model.layers[0].mlp.down_proj.weight;
    CHECK_CLOSE(down, model.layers[0].mlp.down_proj.weight, 0);
    Model merged = merge_lora(model, tuner.lora->adapter);
    CHECK_CLOSE(all_values(merged), all_values(tuner.model), 0);
    CHECK(tuner.optimizer.exp_avg.size() == 4 * model.layers.size());
}

TEST_CASE("batch_log_probs of a response does not depend on the other sequences") {
    const Model model = fixture_model();
    const Matrix together = batch_log_probs(model, make_response_batch(completions, 0));
    const Matrix alone = batch_log_probs(model, make_response_batch({completions[1]}, 0));
    CHECK(together(1, 0) == doctest::Approx(alone(0, 0)).epsilon(1e-5));
}

TEST_CASE("A step does not add to the gradients of the step before") {
    const Model model = fixture_model();
    const ResponseBatch batch = make_response_batch(completions, 0);
    FineTuner reused = make_fine_tuner(model), fresh = reused;
    std::vector<Model> gradients(2, zeros_like(model));
    for (int step = 0; step < 3; ++step) {
        std::vector<Model> zeros(2, zeros_like(model));
        const FineTuningMetrics with_reused =
            fine_tuning_step(reused, batch, sft_of(batch), Real(0.01), 1e9, gradients);
        const FineTuningMetrics with_zeros =
            fine_tuning_step(fresh, batch, sft_of(batch), Real(0.01), 1e9, zeros);
        CHECK(with_reused.grad_norm == with_zeros.grad_norm);
    }
}
