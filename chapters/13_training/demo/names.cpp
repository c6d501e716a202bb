#include "chapters/13_training/demo/names.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/11_generation/generation.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/apps/train/ngram_comparison.hpp"
#include "chapters/apps/train/training_folder.hpp"
#include "chapters/apps/train/training_run.hpp"
#include "chapters/experiments/ablations.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm {
using namespace runs;

namespace {

void inputs_and_targets(const std::vector<std::string>& names, const TrainingTask& task,
                        Generator& generator) {
    step("Training data: the target of each token is the next token");
    std::string first, alphabet;
    for (std::size_t i = 0; i < 8; ++i) first += names[i] + " ";
    for (std::size_t id = 1; id < task.tokenizer.vocab_size(); ++id)
        alphabet += escaped(task.tokenizer.token_bytes[id]);
    show("names", with_commas(names.size()) + ", such as " + first);
    show("training tokens", with_commas(task.dataset.train.size()));
    show("validation tokens", with_commas(task.dataset.validation.size()));
    show("vocabulary", "<unk>" + alphabet);
    const Batch batch = random_batch(task.dataset.train, 2, 10, generator);
    show("input_ids", batch.input_ids);
    show("targets", batch.targets);
    const auto first_row = [&](const IdMatrix& ids) {
        return escaped(task.tokenizer.decode({ids.begin(), ids.begin() + 10}));
    };
    show("row 0 of input_ids", first_row(batch.input_ids));
    show("row 0 of targets", first_row(batch.targets));
}

void loss_before_training(const TrainingTask& task, Generator& generator) {
    step("The loss before training");
    const Batch batch = random_batch(task.dataset.train, 32, 16, generator);
    const auto loss = [&](const Model& model) {
        return fixed(evaluate_loss(model, batch.input_ids, batch.targets), 4);
    };
    show("ln " + to_text(task.config.vocab_size) + ", the loss of a uniform distribution",
         fixed(std::log(double(task.config.vocab_size)), 4));
    show("loss with make_model_for_training (0.02)",
         loss(make_model_for_training(task.config, generator)));
    show("loss with PyTorch's default initialization",
         loss(make_model(task.config, generator)));
}

void gradient_norms_at_initialization(const TrainingTask& task, Generator& generator) {
    step("Gradient norms at initialization");
    Config config = task.config;
    config.hidden_size = 32;
    config.intermediate_size = llama_intermediate_size(32, 4);
    const Batch batch = random_batch(task.dataset.train, 8, 16, generator);
    std::vector<TableRow> rows;
    LinePlot last{"Gradient norm of down_proj in the last layer", "layers", "norm", {}};
    LinePlot all{"Gradient norm of down_proj in each of 24 layers", "layer", "norm", {}, true};
    for (const auto& [name, norm_placement] : named_norm_placements()) {
        TableRow row = {name};
        last.lines.push_back({name, {}, {}});
        for (const std::size_t num_layers : {6u, 12u, 24u, 48u}) {
            config.num_hidden_layers = num_layers;
            const std::vector<double> norms =
                initial_gradient_norms(config, norm_placement, batch, 8);
            row.push_back(fixed(norms.back(), 4));
            last.lines.back().x.push_back(double(num_layers));
            last.lines.back().y.push_back(norms.back());
            if (num_layers != 24) continue;
            all.lines.push_back({name, {}, norms});
            for (std::size_t n = 0; n < num_layers; ++n)
                all.lines.back().x.push_back(double(n));
        }
        rows.push_back(row);
    }
    show_table({"last layer, of", "6", "12", "24", "48 layers"}, rows);
    plot("start", {last, all});
}

void first_steps_of_adamw() {
    step("The first step of gradient descent, and of AdamW");
    std::vector<TableRow> rows;
    for (const Real g : {Real(0.001), Real(1), Real(1000)}) {
        Vector parameter{Real(0)}, gradient{g};
        AdamW optimizer;
        optimizer.step({{"w", {1}, parameter}}, {{"w", {1}, gradient}}, Real(0.01));
        rows.push_back({brief(double(g)), brief(-0.01 * double(g)), fixed(parameter(0), 4)});
    }
    show_table({"gradient", "SGD, lr 0.01", "AdamW, lr 0.01"}, rows);
}

void first_step_of_muon() {
    step("The first step of AdamW, and of Muon, with a matrix");
    // Singular values 3 and 0.1, with the directions (0.6, 0.8) and (-0.8, 0.6) of the outputs.
    Matrix gradient{{1.8f, -0.08f}, {2.4f, 0.06f}};
    Matrix by_adamw = xt::zeros<Real>({2, 2}), by_muon = by_adamw;
    const auto parameter = [](Matrix& matrix) {
        return Parameter{"w", {2, 2}, {matrix.data(), matrix.size()}};
    };
    AdamW adamw;
    adamw.step({parameter(by_adamw)}, {parameter(gradient)}, Real(0.01));
    Muon muon;
    muon.step({parameter(by_muon)}, {parameter(gradient)}, Real(0.01));
    show("gradient", gradient);
    show("orthogonalized_gradient", newton_schulz(gradient));
    show("adamw_update", by_adamw);
    show("muon_update", by_muon);

    // diag(s, t) with s² + t² = 1 has the Frobenius norm 1 and the singular values s and t.
    Line line{"", {}, {}};
    for (int i = 0; i <= 500; ++i) {
        const Real s = Real(0.002) * static_cast<Real>(i);
        const Real t = std::sqrt(std::max(Real(0), 1 - s * s));
        line.x.push_back(double(s));
        line.y.push_back(double(newton_schulz({{s, 0}, {0, t}})(0, 0)));
    }
    plot("newton_schulz", {LinePlot{"What newton_schulz makes of a singular value",
                                    "singular value before",
                                    "after",
                                    {line}}});
}

void learning_rates(const LRSchedule& schedule) {
    step("The learning-rate schedule");
    const auto [learning_rate, min_learning_rate, warmup_steps, max_steps] = schedule;
    Line line{"", {}, {}};
    for (std::size_t n = 0; n < max_steps; n += 1 + max_steps / 400) {
        line.x.push_back(double(n));
        line.y.push_back(double(learning_rate_at(schedule, n)));
    }
    std::vector<TableRow> rows;
    for (const std::size_t n :
         {std::size_t(0), warmup_steps, (warmup_steps + max_steps) / 2, max_steps - 1})
        rows.push_back({to_text(n + 1), fixed(double(learning_rate_at(schedule, n)), 5)});
    show_table({"step", "learning rate"}, rows);
    plot("schedule", {LinePlot{"Learning rate", "step", "", {line}}});
}

std::vector<std::string> sample_names(const Model& model, const TrainingTask& task,
                                      std::size_t count, Generator& generator) {
    const Id newline = task.tokenizer.vocab.at("\n");
    GenerationConfig config;
    config.max_new_tokens = task.config.max_position_embeddings - 2;
    config.eos_token_ids = {newline};
    std::vector<std::string> names;
    while (names.size() < count)
        names.push_back(
            task.tokenizer.decode(generate(model, {newline}, config, generator).ids));
    return names;
}

void forty_names(const Model& model, const TrainingTask& task,
                 const std::vector<std::string>& names, Generator& generator) {
    step("Forty sampled names");
    const std::string training_text = task.tokenizer.decode(task.dataset.train);
    std::string in_training, in_validation, in_neither;
    for (const std::string& name : sample_names(model, task, 40, generator)) {
        const bool is_known = std::find(names.begin(), names.end(), name) != names.end();
        const bool was_trained_on = training_text.find("\n" + name + "\n") != std::string::npos;
        (was_trained_on ? in_training
         : is_known     ? in_validation
                        : in_neither) += escaped(name) + " ";
    }
    const auto or_none = [](const std::string& list) { return list.empty() ? "none" : list; };
    say("New: " + or_none(in_neither));
    say("In the validation set: " + or_none(in_validation));
    say("In the training set: " + or_none(in_training));
}

void examples_before_training(const std::vector<std::string>& names, const TrainingTask& task,
                              Generator& generator) {
    inputs_and_targets(names, task, generator);
    loss_before_training(task, generator);
    gradient_norms_at_initialization(task, generator);
    first_steps_of_adamw();
    first_step_of_muon();
    learning_rates(task.args.lr_schedule);
}

// Four names, always with the same seed.
std::string four_names(const Model& model, const TrainingTask& task) {
    Generator generator(task.args.seed);
    std::string line;
    for (const std::string& name : sample_names(model, task, 4, generator))
        line += (line.size() + name.size() < 44 ? escaped(name) : "...") + " ";
    return line;
}

}  // namespace

void names_demo(TrainingTask task, RunFolder folder, Generator& generator) {
    const std::vector<std::string> names = load_names(task, generator);
    if (folder.path.empty()) folder.path = default_folder("names", folder.resume);
    open_training_folder(folder, task);
    // The examples before the run use sequences of 16 tokens, for any --seq-len.
    std::size_t& max_positions = task.config.max_position_embeddings;
    max_positions = std::max<std::size_t>(max_positions, 16);

    // Load the checkpoint first, so that an error is reported before the examples run.
    Generator init_generator(task.args.seed);
    const Model model = make_model_for_training(task.config, init_generator);
    TrainerState state = start_or_resume(task, model, folder);

    examples_before_training(names, task, generator);
    step("Training");
    if (folder.resume) explain_resumed_run(state, task, false);
    const auto sample = [&](const Model& now) { return four_names(now, task); };
    if (train_and_evaluate(state, task, folder, sample).interrupted) return;

    step("Comparison with n-gram models");
    compare_with_ngrams(task, state.model, ngram_baseline(task));
    forty_names(state.model, task, names, generator);
}

}  // namespace llm
