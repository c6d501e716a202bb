#include "chapters/13_training/trainer.hpp"

#include <numeric>

#include "common/system/parallel.hpp"
#include "common/files/safetensors.hpp"

namespace llm {
namespace {

// A seed for everything that one step draws.
Generator generator_of(const Plan& plan, std::size_t step) {
    Generator mixer(plan.seed);
    const auto number = static_cast<std::uint32_t>(step);
    return Generator(mixer.next_32_bits() ^ (number * 2654435761u));
}

void add_gradients(const std::vector<Parameter>& sum, const std::vector<Parameter>& others) {
    for (std::size_t p = 0; p < sum.size(); ++p)
        for (std::size_t i = 0; i < sum[p].gradients.size(); ++i)
            sum[p].gradients[i] += others[p].gradients[i];
}

// Numbers that differ (almost surely) if the plan, the text or the model does. A float holds 24
// bits of each exactly.
std::vector<Real> identity_of(const Model& model, const Plan& plan,
                              const std::vector<Id>& tokens) {
    const ModelConfig& config = model.config;
    const std::size_t num_parameters = count_parameters(model).total();
    std::uint32_t checksum = 2166136261u;  // FNV-1a
    for (const Id id : tokens)
        checksum = (checksum ^ static_cast<std::uint32_t>(id)) * 16777619u;
    const auto low = [](std::size_t number) { return static_cast<Real>(number & 0xFFFF); };
    const auto high = [](std::size_t number) { return static_cast<Real>(number >> 16); };
    const Schedule& schedule = plan.schedule;
    return {low(schedule.steps),
            high(schedule.steps),
            low(checksum),
            high(checksum),
            low(plan.seed),
            high(plan.seed),
            low(plan.batch_size),
            low(plan.seq_len),
            low(plan.accumulate),
            low(schedule.warmup_steps),
            schedule.highest,
            schedule.lowest,
            plan.weight_decay,
            static_cast<Real>(plan.longest_gradient),
            low(num_parameters),
            high(num_parameters),
            low(config.num_attention_heads),
            low(config.head_dim),
            config.rope_theta,
            config.rms_norm_eps};
}

// Every tensor of a run, with its name; the number of losses is that of the steps.
void for_each_tensor(Training& training,
                     const std::function<void(const std::string&, std::span<Real>)>& visit) {
    const std::vector<Parameter> parameters = parameters_of(training.model, training.model);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        visit(parameters[p].name, parameters[p].numbers);
        visit(parameters[p].name + ".mean", training.optimizer.mean[p]);
        visit(parameters[p].name + ".mean_square", training.optimizer.mean_square[p]);
    }
    visit("losses", training.losses);
}

}  // namespace

Corpus split_corpus(const std::vector<Id>& tokens, std::size_t seq_len) {
    Corpus corpus;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::size_t piece = i * 100 / tokens.size();
        (piece % 10 == 9 ? corpus.validation : corpus.training).push_back(tokens[i]);
    }
    require(corpus.validation.size() > seq_len,
            "training: {} tokens are too few: a tenth of them must be more than {}",
            tokens.size(), seq_len);
    return corpus;
}

Model fresh_model(const ModelConfig& config, Generator& generator) {
    Model model = make_model(config, generator);
    draw_normal(model, Real(0.02), generator);
    for (PreNormBlock& layer : model.layers)
        static_cast<Sublayers&>(layer) = scaled_for_depth(layer, config.num_hidden_layers);
    return model;
}

Batch random_batch(const std::vector<Id>& tokens, std::size_t batch_size, std::size_t seq_len,
                   Generator& generator) {
    require(tokens.size() > seq_len, "training: {} tokens are too few for pieces of {}",
            tokens.size(), seq_len);
    Batch batch{xt::zeros<Id>({batch_size, seq_len}), xt::zeros<Id>({batch_size, seq_len})};
    for (std::size_t b = 0; b < batch_size; ++b) {
        const std::size_t begin = generator.next_32_bits() % (tokens.size() - seq_len);
        for (std::size_t t = 0; t < seq_len; ++t) {
            batch.inputs(b, t) = tokens[begin + t];
            batch.targets(b, t) = tokens[begin + t + 1];
        }
    }
    return batch;
}

Training begin_training(const Model& model, const Plan& plan) {
    Training training{model, {}, 0, {}};
    training.optimizer.weight_decay = plan.weight_decay;
    training.optimizer.begin(parameters_of(training.model, training.model));
    return training;
}

StepReport take_step(Training& training, const Plan& plan, const std::vector<Id>& tokens,
                     std::vector<Model>& gradients) {
    require(plan.accumulate > 0 && gradients.size() == plan.accumulate,
            "training: {} gradients for {} batches", gradients.size(), plan.accumulate);
    Generator generator = generator_of(plan, training.step);
    std::vector<Batch> batches;
    for (std::size_t i = 0; i < plan.accumulate; ++i)
        batches.push_back(random_batch(tokens, plan.batch_size, plan.seq_len, generator));

    // Each batch has gradients of its own, so none waits for another.
    std::vector<double> losses(plan.accumulate);
    in_parallel(plan.accumulate, [&](std::size_t i) {
        clear_gradients(parameters_of(training.model, gradients[i]));
        losses[i] = loss_and_gradients(training.model, batches[i].inputs, batches[i].targets,
                                       gradients[i]);
    });

    // Several small batches weigh as much as one large one: their mean, always added up in the
    // same order, so that a run can be repeated bit for bit.
    const std::vector<Parameter> parameters = parameters_of(training.model, gradients[0]);
    const Real share = 1 / static_cast<Real>(plan.accumulate);
    for (std::size_t i = 1; i < plan.accumulate; ++i)
        add_gradients(parameters, parameters_of(training.model, gradients[i]));
    for (const Parameter& parameter : parameters)
        for (Real& g : parameter.gradients) g *= share;
    const double loss = std::accumulate(losses.begin(), losses.end(), 0.0) * double(share);

    const double norm = clip_gradients(parameters, plan.longest_gradient);
    const Real rate = plan.schedule.at(training.step);
    training.optimizer.step(parameters, rate);
    training.losses.push_back(static_cast<Real>(loss));
    ++training.step;
    return {loss, norm, rate};
}

void run_training(Training& training, const Plan& plan, const std::vector<Id>& tokens,
                  const std::function<GoOn(const StepReport&)>& after_step) {
    std::vector<Model> gradients(plan.accumulate, zeros_like(training.model));
    while (training.step < plan.schedule.steps)
        if (after_step(take_step(training, plan, tokens, gradients)) == GoOn::stop) return;
}

double mean_over_pieces(const std::vector<Id>& tokens, const Plan& plan,
                        std::size_t max_batches,
                        const std::function<double(const Batch&)>& loss) {
    const std::size_t T = plan.seq_len;
    require(tokens.size() > T, "training: {} tokens are too few to validate with {}",
            tokens.size(), T);
    const std::size_t B = std::min(plan.batch_size, (tokens.size() - 1) / T);
    const std::size_t all = (tokens.size() - 1) / (B * T);
    std::vector<double> losses(std::min(max_batches, all));
    in_parallel(losses.size(), [&](std::size_t i) {
        Batch batch{xt::zeros<Id>({B, T}), xt::zeros<Id>({B, T})};
        const std::size_t n = i * all / losses.size();  // from everywhere
        for (std::size_t k = 0; k < B * T; ++k) {
            batch.inputs.data()[k] = tokens[n * B * T + k];
            batch.targets.data()[k] = tokens[n * B * T + k + 1];
        }
        losses[i] = loss(batch);
    });
    return std::accumulate(losses.begin(), losses.end(), 0.0) /
           static_cast<double>(losses.size());
}

double validation_loss(const Model& model, const std::vector<Id>& tokens, const Plan& plan,
                       std::size_t max_batches) {
    return mean_over_pieces(tokens, plan, max_batches, [&](const Batch& batch) {
        return loss_of(model, batch.inputs, batch.targets);
    });
}

void save_training(Training& training, const Plan& plan, const std::vector<Id>& tokens,
                   const std::string& file) {
    std::vector<NamedTensor> tensors;
    for_each_tensor(training, [&](const std::string& name, std::span<Real> numbers) {
        tensors.push_back({name, {numbers.size()}, numbers});
    });
    const std::vector<Real> identity = identity_of(training.model, plan, tokens);
    tensors.push_back({"identity", {identity.size()}, identity});
    write_safetensors(file, tensors);
}

void load_training(Training& training, const Plan& plan, const std::vector<Id>& tokens,
                   const std::string& file) {
    const SafeTensors tensors(file);
    const std::vector<Real> identity = identity_of(training.model, plan, tokens);
    const Vector read = tensors.read("identity", {identity.size()});
    if (!std::equal(identity.begin(), identity.end(), read.begin()))
        throw FileError(file + ": this run had other options, or another text");
    training.losses.resize(tensors.size_of("losses"));
    for_each_tensor(training, [&](const std::string& name, std::span<Real> numbers) {
        const Vector stored = tensors.read(name, {numbers.size()});
        std::copy(stored.begin(), stored.end(), numbers.begin());
    });
    training.step = training.optimizer.steps = training.losses.size();
}

std::size_t planned_steps(const std::string& file) {
    const SafeTensors tensors(file);
    const Vector identity = tensors.read("identity", {tensors.size_of("identity")});
    const auto is_half = [](Real number) { return number >= 0 && number < 65536; };
    if (identity.size() < 2 || !is_half(identity(0)) || !is_half(identity(1)))
        throw FileError(file + ": no run of this program");
    return static_cast<std::size_t>(identity(0)) +
           (static_cast<std::size_t>(identity(1)) << 16);
}

}  // namespace llm
