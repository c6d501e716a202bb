#include "chapters/13_training/run_checkpoint.hpp"

#include "common/files/safetensors.hpp"

namespace llm {
namespace {

// A float represents integers below 2^24 exactly, so 32 bits are stored in two floats.
Real low_bits(std::size_t number) { return static_cast<Real>(number & 0xFFFF); }
Real high_bits(std::size_t number) { return static_cast<Real>(number >> 16); }

// The FNV-1a hash of the tokens.
std::uint32_t checksum(const std::vector<Id>& tokens) {
    std::uint32_t hash = 2166136261u;
    for (const Id id : tokens) hash = (hash ^ static_cast<std::uint32_t>(id)) * 16777619u;
    return hash;
}

// Values that differ (up to hash collisions) if the arguments, the text or the model differ.
std::vector<Real> fingerprint(const Model& model, const TrainingArguments& args,
                              const std::vector<Id>& tokens) {
    const Config& config = model.config;
    const LRSchedule& schedule = args.lr_schedule;
    std::vector<Real> values;
    for (const std::size_t number :
         {schedule.max_steps, std::size_t{checksum(tokens)}, std::size_t{args.seed},
          args.batch_size, args.seq_len, args.gradient_accumulation_steps,
          schedule.warmup_steps, std::size_t{count_parameters(model).total()},
          config.num_attention_heads, config.head_dim, std::size_t(config.qk_norm),
          std::size_t(config.attention_bias)}) {
        values.push_back(low_bits(number));
        values.push_back(high_bits(number));
    }
    values.insert(values.end(),
                  {schedule.learning_rate, schedule.min_learning_rate, args.weight_decay,
                   static_cast<Real>(args.max_grad_norm), config.rope_theta,
                   config.rms_norm_eps, config.attention_dropout});
    return values;
}

// Calls visit(name, values) for every tensor of a run except the fingerprint.
template <class Visit>
void for_each_tensor(TrainerState& state, const Visit& visit) {
    const std::vector<Parameter> parameters = named_parameters(state.model);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        visit(parameters[p].name, parameters[p].values);
        visit(parameters[p].name + ".exp_avg", std::span<Real>(state.optimizer.exp_avg[p]));
        visit(parameters[p].name + ".exp_avg_sq",
              std::span<Real>(state.optimizer.exp_avg_sq[p]));
    }
    visit("losses", std::span<Real>(state.losses));
}

}  // namespace

void save_checkpoint(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens, const std::string& file) {
    std::vector<NamedTensor> tensors;
    for_each_tensor(state, [&](const std::string& name, std::span<Real> values) {
        tensors.push_back({name, {values.size()}, values});
    });
    const std::vector<Real> expected = fingerprint(state.model, args, tokens);
    tensors.push_back({"fingerprint", {expected.size()}, expected});
    write_safetensors(file, tensors);
}

void load_checkpoint(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens, const std::string& file) {
    const SafeTensors tensors(file);
    const std::vector<Real> expected = fingerprint(state.model, args, tokens);
    const Vector stored = tensors.read("fingerprint", {expected.size()});
    if (!std::equal(expected.begin(), expected.end(), stored.begin()))
        throw FileError(file + ": this run has other options or another text");

    // The number of losses is the number of steps.
    state.losses.resize(tensors.size_of("losses"));
    for_each_tensor(state, [&](const std::string& name, std::span<Real> values) {
        const Vector tensor = tensors.read(name, {values.size()});
        std::copy(tensor.begin(), tensor.end(), values.begin());
    });
    state.global_step = state.optimizer.step_count = state.losses.size();
}

std::size_t checkpoint_max_steps(const std::string& file) {
    const SafeTensors tensors(file);
    const Vector stored = tensors.read("fingerprint", {tensors.size_of("fingerprint")});
    const auto is_16_bits = [](Real value) { return value >= 0 && value < 65536; };
    if (stored.size() < 2 || !is_16_bits(stored(0)) || !is_16_bits(stored(1)))
        throw FileError(file + ": not a checkpoint of this program");
    return static_cast<std::size_t>(stored(0)) + (static_cast<std::size_t>(stored(1)) << 16);
}

}  // namespace llm
