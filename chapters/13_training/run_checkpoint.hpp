// Chapter 13, file 6 of 10: checkpoints of training runs.
#pragma once

#include <concepts>
#include <map>
#include <string>

#include "chapters/13_training/trainer.hpp"
#include "common/files/safetensors.hpp"
#include "common/output/show.hpp"

namespace llm {

// A value that a run can only be continued with.
struct Setting {
    std::string name;   // the option, if there is one; "the ..." if the value is a checksum
    std::string value;  // as text

    Setting(const std::string& setting, const std::string& text) : name(setting), value(text) {}
    Setting(const std::string& setting, std::integral auto number)
        : name(setting), value(to_text(number)) {}
    Setting(const std::string& setting, std::floating_point auto number)
        : name(setting), value(round_trip(number)) {}
    bool is_checksum() const { return name.starts_with("the "); }
    bool is_option() const { return name.starts_with("--") || is_checksum(); }
};

// Writes the tensors of a run, and its settings and a checksum as metadata. The file is
// replaced atomically, so that it is complete even if the program is killed while it writes.
// Throws FileError.
void write_run(const std::string& file, const std::vector<NamedTensor>& tensors,
               const std::vector<Setting>& settings,
               std::map<std::string, std::string> metadata = {});

// Opens such a file. Throws FileError if a setting differs, whose message names each
// difference, or if the tensors do not have the checksum.
SafeTensors open_run(const std::string& file, const std::vector<Setting>& settings);

// A whole number among the metadata of such a file. Throws FileError if it is none.
std::size_t saved_integer(const std::string& file, const std::string& name);

// Writes and reads the state of a run as one safetensors file: parameters, exp_avg and
// exp_avg_sq (with Muon, momentum_buffer) of each, and the losses; as its metadata, the
// arguments, the configuration and a checksum of the training tokens: a run can only be
// continued with the same arguments, data and model. Throws FileError as write_run and open_run
// do.
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
