#include "chapters/13_training/run_checkpoint.hpp"

#include "common/files/safetensors.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// A float represents integers below 2^24 exactly, so 32 bits are stored in two floats.
Real low_bits(std::uint64_t number) { return static_cast<Real>(number & 0xFFFF); }
Real high_bits(std::uint64_t number) { return static_cast<Real>(number >> 16); }
bool is_16_bits(Real value) { return value >= 0 && value < 65536; }
std::size_t integer_of(Real low, Real high) {
    return static_cast<std::size_t>(low) + (static_cast<std::size_t>(high) << 16);
}

// The FNV-1a hash of the tokens.
std::uint32_t checksum(const std::vector<Id>& tokens) {
    std::uint32_t hash = 2166136261u;
    for (const Id id : tokens) hash = (hash ^ static_cast<std::uint32_t>(id)) * 16777619u;
    return hash;
}

// A value that a run can only be continued with: an integer in two floats, or a real number.
struct Setting {
    std::string name;  // the option, if there is one
    std::vector<Real> values;
    std::vector<std::string> choices = {};  // of an integer that stands for a name

    bool is_option() const { return name.starts_with("--") || name == training_text; }
    std::string text(std::span<const Real> of) const {
        if (of.size() == 1) return brief(double(of[0]));
        if (!is_16_bits(of[0]) || !is_16_bits(of[1])) return "invalid";
        const std::size_t number = integer_of(of[0], of[1]);
        return number < choices.size() ? choices[number] : to_text(number);
    }
    static constexpr const char* training_text = "the training text";
};

Setting integer(const std::string& name, std::uint64_t number) {
    return {name, {low_bits(number), high_bits(number)}, {}};
}

// Settings that differ (up to hash collisions) if the arguments, the text or the model differ.
// max_steps and warmup_steps are the first ones.
std::vector<Setting> settings_of(const Model& model, const TrainingArguments& args,
                                 const std::vector<Id>& tokens) {
    const Config& config = model.config;
    const LRSchedule& schedule = args.lr_schedule;
    return {integer("--steps", schedule.max_steps),
            integer("warmup_steps", schedule.warmup_steps),
            integer(Setting::training_text, checksum(tokens)),
            integer("--vocab-size", config.vocab_size),
            integer("--seed", args.seed),
            integer("--batch-size", args.batch_size),
            integer("--seq-len", args.seq_len),
            integer("--gradient-accumulation-steps", args.gradient_accumulation_steps),
            integer("--hidden-size", config.hidden_size),
            integer("--intermediate-size", config.intermediate_size),
            integer("--num-hidden-layers", config.num_hidden_layers),
            integer("--num-attention-heads", config.num_attention_heads),
            integer("--num-key-value-heads", config.num_key_value_heads),
            integer("--qk-norm", std::size_t(config.qk_norm)),
            {"--optimizer", integer("", std::size_t(args.optimizer)).values, {"adamw", "muon"}},
            {"--attention-dropout", {config.attention_dropout}},
            {"--learning-rate", {schedule.learning_rate}},
            {"--weight-decay", {args.weight_decay}},
            {"--max-grad-norm", {static_cast<Real>(args.max_grad_norm)}},
            {"min_learning_rate", {schedule.min_learning_rate}},
            integer("parameters", count_parameters(model).total()),
            integer("head_dim", config.head_dim),
            integer("attention_bias", std::size_t(config.attention_bias)),
            {"rope_theta", {config.rope_theta}},
            {"rms_norm_eps", {config.rms_norm_eps}},
            {"--cross-documents", integer("", args.end_of_text_id < 0).values, {"no", "yes"}}};
}

std::vector<Real> fingerprint(const std::vector<Setting>& settings) {
    std::vector<Real> values;
    for (const Setting& setting : settings)
        values.insert(values.end(), setting.values.begin(), setting.values.end());
    return values;
}

// Lists the settings that differ from those of the saved run. Settings without an option, which
// often follow from the options, are only listed if all options are equal. Empty if none
// differs.
std::string differences(const std::vector<Setting>& settings, std::span<const Real> saved) {
    std::string options, others;
    std::size_t offset = 0;
    for (const Setting& setting : settings) {
        const auto part = saved.subspan(offset, setting.values.size());
        offset += part.size();
        if (std::equal(part.begin(), part.end(), setting.values.begin())) continue;
        std::string& list = setting.is_option() ? options : others;
        list += (list.empty() ? "" : ", ") + setting.name;
        if (setting.name != Setting::training_text)
            list +=
                " " + setting.text(setting.values) + " (saved run: " + setting.text(part) + ")";
    }
    return options.empty() ? others : options;
}

// Calls visit(name, values) for every tensor of a run except the fingerprint.
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

// Reads the integer with this index in a tensor, such as one at the start of the fingerprint.
std::size_t saved_integer(const std::string& file, const std::string& name, std::size_t index) {
    const SafeTensors tensors(file);
    const Vector values = tensors.read(name, {tensors.size_of(name)});
    const std::size_t low = 2 * index, high = low + 1;
    if (values.size() <= high || !is_16_bits(values(low)) || !is_16_bits(values(high)))
        throw FileError(file + ": not a checkpoint of this program");
    return integer_of(values(low), values(high));
}

}  // namespace

void save_checkpoint(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens, const std::string& file) {
    std::vector<NamedTensor> tensors;
    for_each_tensor(state, [&](const std::string& name, std::span<Real> values) {
        tensors.push_back({name, {values.size()}, values});
    });
    const std::vector<Real> values = fingerprint(settings_of(state.model, args, tokens));
    tensors.push_back({"fingerprint", {values.size()}, values});
    const std::vector<Real> extra_steps = integer("", args.extra_steps).values;
    tensors.push_back({"extra_steps", {2}, extra_steps});
    write_safetensors(file, tensors);
}

void load_checkpoint(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens, const std::string& file) {
    const SafeTensors tensors(file);
    const std::vector<Setting> settings = settings_of(state.model, args, tokens);
    const std::size_t size = fingerprint(settings).size();
    if (tensors.size_of("fingerprint") != size)
        throw FileError(file + ": saved by another version of this program");
    const Vector saved = tensors.read("fingerprint", {size});
    if (const std::string list = differences(settings, saved); !list.empty())
        throw FileError(file + ": this run has other options or another text: " + list);

    // The number of losses is the number of steps.
    state.losses.resize(tensors.size_of("losses"));
    for_each_tensor(state, [&](const std::string& name, std::span<Real> values) {
        const Vector tensor = tensors.read(name, {values.size()});
        std::copy(tensor.begin(), tensor.end(), values.begin());
    });
    state.global_step = state.optimizer.step_count = state.losses.size();
}

std::size_t checkpoint_max_steps(const std::string& file) {
    return saved_integer(file, "fingerprint", 0);
}
std::size_t checkpoint_warmup_steps(const std::string& file) {
    return saved_integer(file, "fingerprint", 1);
}
std::size_t checkpoint_extra_steps(const std::string& file) {
    if (!SafeTensors(file).has("extra_steps")) return 0;  // saved by an earlier version
    return saved_integer(file, "extra_steps", 0);
}

std::size_t checkpoint_global_step(const std::string& file) {
    return SafeTensors(file).size_of("losses");  // one loss for each step
}

}  // namespace llm
