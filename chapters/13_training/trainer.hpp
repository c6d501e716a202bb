// Chapter 11, fourth part: a run, from a text to a model.
#pragma once

#include <string>
#include <vector>

#include "chapters/13_training/optimizer.hpp"
#include "chapters/12_gradients/training.hpp"

namespace llm {

// A text as tokens: what the model learns from, and what it never sees.
struct Corpus {
    std::vector<Id> training, validation;
};

// Cuts them into 100 pieces and holds out every tenth of them, so that all of its regions
// are in both parts. Throws ShapeError if a part has fewer than seq_len + 1 tokens.
Corpus split_corpus(const std::vector<Id>& tokens, std::size_t seq_len);

// A model as it begins: every matrix drawn with a standard deviation of 0.02, and those that
// write into the stream, 2 in each of L layers, smaller by √(2L): their sum is then as large as
// one of them. Source: GPT-2 (Radford et al., 2019), section 2.3; 0.02 from its code.
Model fresh_model(const ModelConfig& config, Generator& generator);

// Pieces of the text from anywhere, and the same one token later: what follows each. Throws
// ShapeError if the text is too short.
struct Batch {
    IdMatrix inputs, targets;  // (B, T)
};
Batch random_batch(const std::vector<Id>& tokens, std::size_t batch_size, std::size_t seq_len,
                   Generator& generator);

// What a run shall be. One step learns from accumulate batches of B sequences of T tokens,
// which are computed on as many cores as there are.
struct Plan {
    std::size_t batch_size = 16, seq_len = 64, accumulate = 1;
    Schedule schedule;
    Real weight_decay = Real(0.1);
    double longest_gradient = 1;
    std::uint32_t seed = 77;
};

// A run as far as it has come. It holds all that it needs to go on as if nothing had happened:
// the batches of a step are drawn from the seed and the step's number.
struct Training {
    Model model;
    AdamW optimizer;
    std::size_t step = 0;
    std::vector<Real> losses;  // of each step
};
Training begin_training(const Model& model, const Plan& plan);

// What a step was like.
struct StepReport {
    double loss, gradient_norm;
    Real learning_rate;
};
StepReport take_step(Training& training, const Plan& plan, const std::vector<Id>& tokens,
                     std::vector<Model>& gradients);  // accumulate models, from zeros_like

// Takes the steps that are left and tells of each; ends early if told to stop.
enum class GoOn { yes, stop };
void run_training(Training& training, const Plan& plan, const std::vector<Id>& tokens,
                  const std::function<GoOn(const StepReport&)>& after_step);

// The mean loss over up to max_batches batches of B pieces of T tokens, from all over the text.
// The second form takes any loss.
double validation_loss(const Model& model, const std::vector<Id>& tokens, const Plan& plan,
                       std::size_t max_batches);
double mean_over_pieces(const std::vector<Id>& tokens, const Plan& plan,
                        std::size_t max_batches,
                        const std::function<double(const Batch&)>& loss);

// Writes and reads a run as one file: weights, both means, losses, and what identifies plan and
// text. The file is replaced as a whole, so whenever the program is killed, one whole run is
// there. Throws FileError, also if the file belongs to another model, plan or text.
void save_training(Training& training, const Plan& plan, const std::vector<Id>& tokens,
                   const std::string& file);
void load_training(Training& training, const Plan& plan, const std::vector<Id>& tokens,
                   const std::string& file);

// How many steps the plan of a saved run has. Throws FileError.
std::size_t planned_steps(const std::string& file);

}  // namespace llm
