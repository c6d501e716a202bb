#include "chapters/13_training/run_checkpoint.hpp"

namespace llm {
namespace {

// The FNV-1a hash of the tokens.
std::uint32_t checksum(const std::vector<Id>& tokens) {
    std::uint32_t hash = 2166136261u;
    for (const Id id : tokens) hash = (hash ^ static_cast<std::uint32_t>(id)) * 16777619u;
    return hash;
}

const std::string training_text = "the training text", max_steps = "--steps",
                  warmup_steps = "warmup_steps", extra_steps = "extra_steps";

// Settings that differ (up to hash collisions) if the arguments, the text or the model differ.
std::vector<Setting> settings_of(const Model& model, const TrainingArguments& args,
                                 const std::vector<Id>& tokens) {
    const Config& config = model.config;
    const LRSchedule& schedule = args.lr_schedule;
    return {{max_steps, schedule.max_steps},
            {training_text, checksum(tokens)},
            {"--vocab-size", config.vocab_size},
            {"--seed", args.seed},
            {"--batch-size", args.batch_size},
            {"--seq-len", args.seq_len},
            {"--gradient-accumulation-steps", args.gradient_accumulation_steps},
            {"--hidden-size", config.hidden_size},
            {"--intermediate-size", config.intermediate_size},
            {"--num-hidden-layers", config.num_hidden_layers},
            {"--num-attention-heads", config.num_attention_heads},
            {"--num-key-value-heads", config.num_key_value_heads},
            {"--qk-norm", std::size_t(config.qk_norm)},
            {"--optimizer", args.optimizer == OptimizerType::adamw ? "adamw" : "muon"},
            {"--attention-dropout", config.attention_dropout},
            {"--learning-rate", schedule.learning_rate},
            {"--weight-decay", args.weight_decay},
            {"--max-grad-norm", args.max_grad_norm},
            {"--cross-documents", args.end_of_text_id ? "no" : "yes"},
            {warmup_steps, schedule.warmup_steps},
            {"min_learning_rate", schedule.min_learning_rate},
            {"parameters", count_parameters(model).total()},
            {"head_dim", config.head_dim},
            {"attention_bias", std::size_t(config.attention_bias)},
            {"rope_theta", config.rope_theta},
            {"rms_norm_eps", config.rms_norm_eps}};
}

using Metadata = std::map<std::string, std::string>;
const std::string checksum_key = "checksum";

// Lists the settings that differ from those of the saved run. Settings without an option, which
// often follow from the options, are only listed if all options are equal. Empty if none
// differs.
std::string differences(const std::vector<Setting>& settings, const Metadata& saved) {
    std::string options, others;
    for (const Setting& setting : settings) {
        const std::string& saved_value = saved.at(setting.name);
        if (setting.value == saved_value) continue;
        std::string& list = setting.is_option() ? options : others;
        list += (list.empty() ? "" : ", ") + setting.name;
        if (!setting.is_checksum())
            list += " " + setting.value + " (saved run: " + saved_value + ")";
    }
    return options.empty() ? others : options;
}

// Calls visit(name, values) for every tensor of a run.
template <class Visit>
void for_each_tensor(TrainerState& state, const Visit& visit) {
    const auto optimizer =
        state.muon.momentum_buffer.empty() ? OptimizerType::adamw : OptimizerType::muon;
    const auto [adamw, muon] = parameter_groups(named_parameters(state.model), optimizer);
    for (std::size_t p = 0; p < adamw.size(); ++p) {
        visit(adamw[p].name, adamw[p].values);
        visit(adamw[p].name + ".exp_avg", std::span<Real>(state.optimizer.exp_avg[p]));
        visit(adamw[p].name + ".exp_avg_sq", std::span<Real>(state.optimizer.exp_avg_sq[p]));
    }
    for (std::size_t p = 0; p < muon.size(); ++p) {
        Matrix& buffer = state.muon.momentum_buffer[p];
        visit(muon[p].name, muon[p].values);
        visit(muon[p].name + ".momentum_buffer", {buffer.data(), buffer.size()});
    }
    visit("losses", std::span<Real>(state.losses));
}

}  // namespace

void write_run(const std::string& file, const std::vector<NamedTensor>& tensors,
               const std::vector<Setting>& settings, Metadata metadata) {
    for (const Setting& setting : settings) metadata[setting.name] = setting.value;
    std::map<std::string, std::span<const Real>> by_name;
    for (const NamedTensor& tensor : tensors) by_name[tensor.name] = tensor.elements;
    std::uint64_t hash = fnv1a("");
    for (const auto& [name, elements] : by_name) hash = fnv1a(std::as_bytes(elements), hash);
    metadata[checksum_key] = to_text(hash);
    write_safetensors(file, tensors, DType::float32, metadata);
}

SafeTensors open_run(const std::string& file, const std::vector<Setting>& settings) {
    SafeTensors tensors(file);
    for (const Setting& setting : settings)
        if (!tensors.metadata().contains(setting.name))
            throw FileError(file + ": saved by another version of this program");
    if (const std::string list = differences(settings, tensors.metadata()); !list.empty())
        throw FileError(file + ": this run has other options or another text: " + list);
    // Files of earlier versions have no checksum.
    const auto saved = tensors.metadata().find(checksum_key);
    if (saved != tensors.metadata().end() && saved->second != to_text(tensors.checksum()))
        throw FileError(file + " is damaged: the checksum of its tensors is " +
                        to_text(tensors.checksum()) + ", not " + saved->second);
    return tensors;
}

std::size_t saved_integer(const std::string& file, const std::string& name) {
    const Metadata saved = SafeTensors(file).metadata();
    const auto found = saved.find(name);
    if (found == saved.end() || found->second.empty() || found->second.size() > 15 ||
        found->second.find_first_not_of("0123456789") != std::string::npos)
        throw FileError(file + ": not a checkpoint of this program");
    return static_cast<std::size_t>(std::stoull(found->second));
}

void save_checkpoint(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens, const std::string& file) {
    std::vector<NamedTensor> tensors;
    for_each_tensor(state, [&](const std::string& name, std::span<Real> values) {
        tensors.push_back({name, {values.size()}, values});
    });
    write_run(file, tensors, settings_of(state.model, args, tokens),
              {{extra_steps, to_text(args.extra_steps)}});
}

void load_checkpoint(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens, const std::string& file) {
    const SafeTensors tensors = open_run(file, settings_of(state.model, args, tokens));

    // The number of losses is the number of steps.
    state.losses.resize(tensors.size_of("losses"));
    for_each_tensor(state, [&](const std::string& name, std::span<Real> values) {
        const Vector tensor = tensors.read(name, {values.size()});
        std::copy(tensor.begin(), tensor.end(), values.begin());
    });
    state.global_step = state.optimizer.step_count = state.losses.size();
}

std::size_t checkpoint_max_steps(const std::string& file) {
    return saved_integer(file, max_steps);
}
std::size_t checkpoint_warmup_steps(const std::string& file) {
    return saved_integer(file, warmup_steps);
}
std::size_t checkpoint_extra_steps(const std::string& file) {
    return saved_integer(file, extra_steps);
}

std::size_t checkpoint_global_step(const std::string& file) {
    return SafeTensors(file).size_of("losses");  // one loss for each step
}

}  // namespace llm
