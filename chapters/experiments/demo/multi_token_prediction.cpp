// A module for multi-token prediction, trained on the text of its target.
#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/22_speculation/mtp_module.hpp"
#include "chapters/22_speculation/speculative_sampling.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "common/files/mapped_file.hpp"
#include "common/numbers/ceil_div.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/timer.hpp"

namespace llm {
using namespace runs;

namespace {

// The micro-batches of a step are computed in parallel.
constexpr std::size_t num_micro_batches = 2, micro_batch_size = 1, seq_len = 256;

// The probability that a sampled proposal for x_{t+2} is accepted, the mean over positions. The
// target's own logits for it are those of position t + 1.
double mean_acceptance(const Model& target, const MtpBatch& batch,
                       const Tensor3& logits) {                                 // (B, T, V)
    const Tensor3 target_logits = lm_head(target.head(), batch.hidden_states);  // (B, T, V)
    double sum = 0;
    for (std::size_t b = 0; b < logits.shape(0); ++b)
        for (std::size_t t = 0; t + 1 < logits.shape(1); ++t) {
            const Vector p = xt::view(target_logits, b, t + 1), q = xt::view(logits, b, t);
            sum += acceptance_probability(softmax(p), softmax(q));
        }
    return sum / double(logits.shape(0) * (logits.shape(1) - 1));
}

// A row of the table: loss and acceptance on held-out text.
TableRow evaluated(std::size_t step, const MtpModule& module, const Model& target,
                   const std::vector<Batch>& batches) {
    double loss = 0, acceptance = 0;
    for (const Batch& batch : batches) {
        const MtpBatch inputs = make_mtp_batch(target, batch.input_ids, batch.targets);
        const Tensor3 logits = mtp_logits(module, target, inputs);  // (B, T, V)
        loss += cross_entropy(logits, inputs.targets);
        acceptance += mean_acceptance(target, inputs, logits);
    }
    const double count = double(batches.size());
    return {to_text(step), fixed(loss / count, 3), fixed(100 * acceptance / count, 1)};
}

void show_steps_left(std::size_t num_done, std::size_t num_steps, double loss, double start) {
    const double seconds = (elapsed_seconds() - start) / double(num_done);
    show_progress(to_text(num_done) + "/" + to_text(num_steps) + " loss " + fixed(loss, 2) +
                  ", about " + minutes_and_seconds(seconds * double(num_steps - num_done)) +
                  " left");
}

// Trains the module, and appends a row for each fifth of the steps. Returns the losses.
std::vector<Real> train_module(MtpModule& module, const Model& target, const Dataset& dataset,
                               const TrainingArguments& args, Generator& generator,
                               std::vector<TableRow>& rows) {
    const std::vector<Batch> held_out =
        evaluation_batches(dataset.validation, micro_batch_size, seq_len, 10);
    const std::size_t num_steps = args.num_steps(), fifth = ceil_div(num_steps, 5);
    std::vector<MtpModule> gradients(num_micro_batches, zeros_like(module));
    std::size_t num_done = 0;
    const double start = elapsed_seconds();
    const std::vector<Real> losses =
        run_training_loop<MtpModule>(module, args, [&](MtpModule& gradient) {
            if (num_done % fifth == 0)
                rows.push_back(evaluated(num_done, module, target, held_out));
            std::vector<Batch> batches;
            for (std::size_t i = 0; i < num_micro_batches; ++i)
                batches.push_back(
                    random_batch(dataset.train, micro_batch_size, seq_len, generator));
            const double loss = mean_loss_and_gradient<MtpModule>(
                gradients, [&](std::size_t i, MtpModule& of_batch) {
                    const auto& [input_ids, targets] = batches[i];
                    return forward_backward(
                        module, target, make_mtp_batch(target, input_ids, targets), of_batch);
                });
            gradient = gradients[0];
            show_steps_left(++num_done, num_steps, loss, start);
            return loss;
        });
    show_progress("");
    rows.push_back(evaluated(num_done, module, target, held_out));
    return losses;
}

}  // namespace

void train_mtp_module(const Model& target, const std::vector<Id>& tokens, std::size_t num_steps,
                      std::uint32_t seed, const std::string& save_folder) {
    step("A module for multi-token prediction, " + to_text(num_steps) + " steps");
    const InterruptHandler interrupt_handler;
    TrainingArguments args;
    args.lr_schedule = {Real(3e-3), Real(3e-4), num_steps / 10, num_steps};
    Generator generator(seed);
    MtpModule module = make_mtp_module(target.config, generator);
    std::vector<TableRow> rows;
    const std::vector<Real> losses = train_module(
        module, target, train_validation_split(tokens, seq_len), args, generator, rows);
    show_table({"step", "validation loss", "% accepted, temp. 1"}, rows);
    plot("mtp_loss", {LinePlot{"Loss of the token after the next",
                               "step",
                               "training loss",
                               {smooth("training", losses)}}});
    if (save_folder.empty()) return;
    make_folder(save_folder);
    save_parameters(named_parameters(module), save_folder + "/model.safetensors",
                    DType::bfloat16);
    show("saved to", save_folder);
}

}  // namespace llm
