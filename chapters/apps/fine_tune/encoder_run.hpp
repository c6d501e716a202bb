// What the methods of encoders share: the model, its state, batches, and the folder.
#pragma once

#include <algorithm>

#include "chapters/13_training/training_loop.hpp"
#include "chapters/apps/fine_tune/encoder_data.hpp"
#include "chapters/apps/fine_tune/encoder_tuning.hpp"
#include "chapters/apps/runs/step_run.hpp"
#include "chapters/models/encoders/encoder_training.hpp"
#include "chapters/models/encoders/text_encoder.hpp"
#include "common/numbers/choices.hpp"
#include "common/output/show.hpp"

namespace llm::fine_tune {

struct EncoderRun {
    EncoderTuningTask task;
    models::TextEncoder text;
    Generator generator;
    std::vector<Setting> settings = {};  // of checkpoints
    AdamW optimizer = {};
};

// After the data are read: locks the folder, and opens its checkpoint to resume from. Throws
// FileError, also if something would be overwritten.
void open_result(EncoderRun& run);
// Shows how many examples there are.
void show_counts(const EncoderRun& run, const std::string& name, std::size_t train,
                 std::size_t held_out, std::size_t left_out);

// Holds out the examples of another file, or else a tenth of all.
template <class Example>
struct Examples {
    std::vector<Example> train, held_out;
};
template <class Example>
Examples<Example> split_examples(const EncoderRun& run, std::vector<Example> all,
                                 std::vector<Example> (*read)(const std::string& file)) {
    if (!run.task.test.empty()) return {std::move(all), read(run.task.test)};
    Generator generator(run.task.seed);
    shuffle(all, generator);
    const auto first = all.end() - std::ptrdiff_t(std::max<std::size_t>(1, all.size() / 10));
    Examples<Example> examples{{all.begin(), first}, {first, all.end()}};
    require(!examples.train.empty(), "{}: one example is not enough to train and to test",
            run.task.train);
    return examples;
}

// Leaves out the examples of which a text has more tokens than the model reads; returns how
// many.
template <class Example>
std::size_t leave_out_long(const EncoderRun& run, std::vector<Example>& examples,
                           std::string Example::*text) {
    const std::size_t left_out = std::erase_if(examples, [&](const Example& example) {
        return run.text.tokenizer.encode(example.*text).size() > run.text.max_tokens;
    });
    require(!examples.empty(), "no text has at most {} tokens", run.text.max_tokens);
    return left_out;
}

// Some texts as a padded batch.
BatchEncoding encode_batch(const models::TextEncoder& encoder,
                           const std::vector<std::string>& texts);

// Updates the parameters of a model by their gradients, and returns the norm of these.
template <class AnyModel>
double update(EncoderRun& run, AnyModel& model, AnyModel& gradient, Real learning_rate) {
    const std::vector<Parameter> gradients = named_parameters(gradient);
    const double norm = clip_grad_norm(gradients, 1);
    run.optimizer.step(named_parameters(model), gradients, learning_rate);
    return norm;
}

// Takes all steps of a method, and saves: at the end or after Ctrl-C.
void train_encoder(EncoderRun& run, const Steps& steps,
                   const std::vector<Parameter>& parameters, const std::string& method,
                   const runs::TakeStep& take_step, const std::function<void()>& save);

// Writes the tokenizer of the model that was trained.
void save_tokenizer_files(const EncoderRun& run);

void train(EncoderRun& run, const Classifier& method);
void train(EncoderRun& run, const Contrastive& method);

}  // namespace llm::fine_tune
