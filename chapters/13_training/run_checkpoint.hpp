// Chapter 13, file 8 of 10: checkpoints of training runs.
#pragma once

#include <string>

#include "chapters/13_training/trainer.hpp"

namespace llm {

// Writes and reads the state of a run as one safetensors file: parameters, exp_avg and
// exp_avg_sq (with Muon, momentum_buffer) of each, and the losses; as its metadata, the
// arguments, the configuration and a checksum of the training tokens. The file is replaced
// atomically, so that it is complete even if the program is killed while it writes. Throws
// FileError, also if one of these settings differs: a run can only be continued with the same
// arguments, data and model. The message names each difference.
void save_checkpoint(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens, const std::string& file);
void load_checkpoint(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens, const std::string& file);

// The schedule of the run that a checkpoint belongs to, the steps after the end of the schedule
// (extra_steps, which may differ), and the number of completed steps. Throw FileError.
std::size_t checkpoint_max_steps(const std::string& file);
std::size_t checkpoint_warmup_steps(const std::string& file);
std::size_t checkpoint_extra_steps(const std::string& file);
std::size_t checkpoint_global_step(const std::string& file);

}  // namespace llm
