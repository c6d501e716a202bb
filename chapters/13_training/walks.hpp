// Chapter 11, the walks: what its program shows of a run, of a text and of experiments.
#pragma once

#include "chapters/13_training/trainer.hpp"
#include "chapters/10_tokenizer/bpe_training.hpp"
#include "common/output/plot.hpp"

namespace llm {

// What is learned, by what, and how.
struct Task {
    Tokenizer tokenizer;
    Corpus corpus;
    ModelConfig config;
    Plan plan;
};

// Where the run and its model are kept, as a folder that load_model and --resume read.
struct Keeping {
    std::string folder;
    bool resume = false, bfloat16 = false;
    bool replace = false;  // may a run that is there be lost?
    std::string run_file() const { return folder + "/run.safetensors"; }
};

// Learns the tokens of a text, and splits it.
void learn_text(Task& task, const std::string& text, std::size_t vocab_size);

// Held-out losses as they were measured, for the curve.
struct Reports {
    Line validation{"held out", {}, {}};
    std::function<std::string(const Model&)> sample;  // something it writes
};

// The mean of 20 steps each, at most 400 points.
Line smooth(const std::string& label, const std::vector<Real>& losses);

// Throws FileError if there is no run to go on with, or one that must not be lost.
void check_run(const Keeping& keeping);

// Begins a run, or goes on with the one that is kept.
Training begun(const Task& task, const Model& model, const Keeping& keeping);

// Trains and reports, and saves after every report. Ctrl-C saves, too, and goes on to what
// comes behind the run. Returns the seconds of a step.
double train(Training& training, const Task& task, const Keeping& keeping, Reports& reports);

// Bits per character on the held-out part: what counting reaches, and this model.
void against_counting(const Task& task, const Model& model);

// A warm-up goes with the steps: a tenth of them, at most 100.
void set_steps(Schedule& schedule, std::size_t steps);

std::string minutes_and_seconds(double seconds);  // 75.3 as "1:15"
std::size_t tokens_of_a_step(const Plan& plan);
std::string tokens_per_second(const Plan& plan, double seconds_a_step);

// Learns a text for so many minutes, or with 0 for as many steps as the plan says.
void text_walk(Task task, Keeping keeping, const std::string& file, std::size_t vocab_size,
               double minutes, Generator& generator);

// Trains small models side by side that differ in one choice.
void experiments_walk(const Task& task);

}  // namespace llm
