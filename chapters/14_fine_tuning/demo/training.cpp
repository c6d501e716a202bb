#include "chapters/14_fine_tuning/demo/training.hpp"

#include <algorithm>

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/trainer.hpp"
#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "chapters/14_fine_tuning/grpo_step.hpp"
#include "common/numbers/choices.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The vocabulary: the end of a text, the end of a prompt, and eight letters.
const std::string alphabet = ".=abcdefgh";
constexpr Id end_of_text = 0;

std::vector<Id> encode(const std::string& text) {
    std::vector<Id> ids;
    for (const char character : text) ids.push_back(Id(alphabet.find(character)));
    return ids;
}
std::string decode(const std::vector<Id>& ids) {
    std::string text;
    for (const Id id : ids) text += alphabet[static_cast<std::size_t>(id)];
    return text;
}

// The prompts "abc=" of all 512 words, with the answer "abc" or "cba".
struct Task {
    std::vector<Question> training, held_out;
};
Task make_task(bool reversed) {
    Task task;
    for (const char a : alphabet.substr(2))
        for (const char b : alphabet.substr(2))
            for (const char c : alphabet.substr(2)) {
                const std::string word{a, b, c};
                const Question question{
                    word + "=", reversed ? std::string{word.rbegin(), word.rend()} : word};
                (is_held_out(question, 20) ? task.held_out : task.training).push_back(question);
            }
    return task;
}

Completion completion_of(const Question& question) {
    return {encode(question.prompt), encode(question.answer + ".")};
}

ResponseBatch batch_of(const std::vector<Question>& questions, LossOn loss_on) {
    std::vector<Completion> completions;
    for (const Question& question : questions) completions.push_back(completion_of(question));
    return make_response_batch(completions, end_of_text, loss_on);
}

// The answer of greedy decoding: the most likely token at each step.
std::string answer_to(const Model& model, const Question& question) {
    Generator generator(1);
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = 4;
    config.eos_token_ids = {end_of_text};
    return decode(generate(model, encode(question.prompt), config, generator).ids);
}

// 1 for each correct answer, otherwise 0.
Vector correct_answers(const Model& model, const std::vector<Question>& questions) {
    Vector correct = xt::zeros<Real>({questions.size()});
    for (std::size_t i = 0; i < questions.size(); ++i)
        correct(i) = static_cast<Real>(
            exact_match_reward(questions[i].answer, answer_to(model, questions[i])));
    return correct;
}

double accuracy(const Model& model, const std::vector<Question>& questions) {
    return double(xt::sum<Real>(correct_answers(model, questions))()) /
           double(questions.size());
}

std::string percent(double fraction) { return fixed(100 * fraction, 1) + " %"; }

// What the runs have in common: a Model of gradients for each quarter of a batch.
struct Workspace {
    std::vector<Model> gradients;
    Generator generator;
};

void sft_steps(FineTuner& tuner, const Task& task, std::size_t count, LossOn loss_on,
               Real learning_rate, Workspace& workspace, Line* accuracies = nullptr) {
    for (std::size_t n = 0; n < count; ++n) {
        if (accuracies && n % 10 == 0) {
            accuracies->x.push_back(double(n));
            accuracies->y.push_back(100 * accuracy(tuner.model, task.held_out));
        }
        const ResponseBatch batch =
            batch_of(random_choices(task.training, 32, workspace.generator), loss_on);
        const auto loss = [&](const Matrix& log_probs) {
            return sft_loss(log_probs, batch.response_mask);
        };
        fine_tuning_step(tuner, batch, loss, learning_rate, 1, workspace.gradients);
    }
}

Model untrained_model(std::uint32_t seed) {
    Config config = mini_llm_config();
    config.hidden_size = 48;
    config.intermediate_size = 128;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = alphabet.size();
    config.max_position_embeddings = 12;
    Generator generator(seed);
    return make_model_for_training(validate_model(config), generator);
}

Model train_base(std::size_t steps, std::uint32_t seed) {
    step("A base model learns to copy: abc=abc.");
    const Task copying = make_task(false);
    const Model start = untrained_model(seed);
    show("training questions", copying.training.size());
    show("held-out questions", copying.held_out.size());
    std::vector<TableRow> rows;
    Model best = start;
    for (const LossOn loss_on : {LossOn::everything, LossOn::response}) {
        FineTuner tuner = make_fine_tuner(start);
        Workspace workspace{std::vector<Model>(4, zeros_like(start)), Generator(seed)};
        sft_steps(tuner, copying, steps, loss_on, Real(0.005), workspace);
        rows.push_back({loss_on == LossOn::response ? "the response" : "everything",
                        percent(accuracy(tuner.model, copying.training)),
                        percent(accuracy(tuner.model, copying.held_out))});
        best = tuner.model;
    }
    show_table({"loss on", "correct, training", "correct, held out"}, rows);
    return best;
}

// LoRA on all linear layers of a model.
FineTuner lora_tuner(const Model& base, Generator& generator) {
    LoraConfig config;
    config.target_modules = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                             "gate_proj", "up_proj", "down_proj"};
    return make_fine_tuner(base, make_lora(base, config, generator));
}

void show_accuracies(const Model& before, const Model& after, const std::string& name) {
    const Task copying = make_task(false), reversing = make_task(true);
    show_table({"held-out questions", "before", name},
               {{"copy", percent(accuracy(before, copying.held_out)),
                 percent(accuracy(after, copying.held_out))},
                {"reverse", percent(accuracy(before, reversing.held_out)),
                 percent(accuracy(after, reversing.held_out))}});
}

FineTuner train_lora(const Model& base, std::size_t steps, Line& accuracies,
                     Workspace& workspace) {
    step("SFT with LoRA: the same model learns to reverse, abc=cba.");
    FineTuner tuner = lora_tuner(base, workspace.generator);
    show("parameters of the base model, frozen", count_parameters(base.config).total());
    show("parameters of the adapter, trained", num_parameters(tuner.lora->adapter));
    sft_steps(tuner, make_task(true), steps, LossOn::response, Real(0.005), workspace,
              &accuracies);
    show_accuracies(base, tuner.model, "after SFT");
    say("The prompts of both tasks are the same, so that one replaces the other. Without the "
        "adapter, the base model still copies.");
    return tuner;
}

// Answers to questions, sampled in groups, and their rewards.
struct RewardedAnswers {
    Rollouts rollouts;
    Vector rewards;  // (B)
};
RewardedAnswers sample_answers(const Model& model, const std::vector<Question>& questions,
                               std::size_t group_size, Generator& generator) {
    std::vector<std::vector<Id>> prompts;
    std::vector<std::string> answers;
    for (const auto& [prompt, answer] : questions) {
        prompts.push_back(encode(prompt));
        answers.push_back(answer);
    }
    const Rollouts rollouts =
        sample_rollouts(model, prompts, group_size, 5, end_of_text, generator);
    return {rollouts, exact_match_rewards(rollouts, answers, decode)};
}

// The mean of pass@k over questions, from 16 samples for each.
std::vector<double> pass_at(const std::vector<std::size_t>& ks, const Model& model,
                            const std::vector<Question>& questions) {
    constexpr std::size_t num_samples = 16;
    Generator generator(1);
    const Vector rewards = sample_answers(model, questions, num_samples, generator).rewards;
    std::vector<double> means(ks.size());
    for (std::size_t begin = 0; begin < rewards.size(); begin += num_samples) {
        std::size_t num_correct = 0;
        for (std::size_t i = 0; i < num_samples; ++i) num_correct += rewards(begin + i) == 1;
        for (std::size_t j = 0; j < ks.size(); ++j)
            means[j] += pass_at_k(num_samples, num_correct, ks[j]) / double(questions.size());
    }
    return means;
}

void show_pass_at_k(const Model& before, const Model& after) {
    const std::vector<std::size_t> ks = {1, 4, 16};
    const std::vector<Question> questions = make_task(true).held_out;
    const std::vector<double> first = pass_at(ks, before, questions),
                              second = pass_at(ks, after, questions);
    std::vector<TableRow> rows;
    for (std::size_t j = 0; j < ks.size(); ++j)
        rows.push_back({to_text(ks[j]), percent(first[j]), percent(second[j])});
    show_table({"pass@k, held out", "before", "after GRPO"}, rows);
}

// How sure is it that a model answers more questions than another one?
void show_difference(const Model& before, const Model& after) {
    const std::vector<Question> questions = make_task(true).held_out;
    const Vector first = correct_answers(before, questions),
                 second = correct_answers(after, questions);
    const auto interval_of = [&](const Vector& correct) {
        const Interval interval = wilson_interval(
            {static_cast<std::size_t>(xt::sum<Real>(correct)()), questions.size()});
        return percent(interval.low) + " to " + percent(interval.high);
    };
    Generator generator(1);
    const PairedDifference difference = paired_bootstrap(first, second, generator);
    show("95 % interval before", interval_of(first));
    show("95 % interval after", interval_of(second));
    show("difference", percent(difference.mean) + ", 95 % interval " +
                           percent(difference.interval.low) + " to " +
                           percent(difference.interval.high));
}

// Samples groups of eight answers to twelve questions, and updates. Returns a row of the table.
TableRow update_with_rewards(FineTuner& tuner, const Model& reference, const Task& task,
                             Real beta, Workspace& workspace) {
    GrpoArguments args;
    args.learning_rate = Real(0.002);
    args.loss.beta = beta;
    const RewardedAnswers answers =
        sample_answers(tuner.model, random_choices(task.training, 12, workspace.generator),
                       args.group_size, workspace.generator);
    const GrpoMetrics metrics = grpo_step(tuner, reference, answers.rollouts, answers.rewards,
                                          args, workspace.gradients);
    return {fixed(metrics.mean_reward, 2), to_text(metrics.groups_with_gradient),
            fixed(metrics.clip_fraction, 3), fixed(metrics.kl, 3)};
}

void train_with_rewards(FineTuner tuner, std::size_t steps, Real beta, Line& accuracies,
                        Workspace& workspace) {
    step("GRPO: the model sees rewards, and no answers");
    const Task task = make_task(true);
    const Model reference = tuner.model;
    tuner.optimizer = {};
    tuner.optimizer.weight_decay = 0;
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < steps; ++n) {
        if (n % 10 == 0) {
            accuracies.x.push_back(double(n));
            accuracies.y.push_back(100 * accuracy(tuner.model, task.held_out));
        }
        TableRow row = update_with_rewards(tuner, reference, task, beta, workspace);
        row.insert(row.begin(), to_text(n + 1));
        if (n % std::max<std::size_t>(1, steps / 6) == 0 || n + 1 == steps) rows.push_back(row);
        show_progress("step " + to_text(n + 1) + " of " + to_text(steps));
    }
    show_progress("");
    show_table({"step", "mean reward", "groups with a gradient, of 12", "clipped", "KL"}, rows);
    show_accuracies(reference, tuner.model, "after GRPO");
    show_difference(reference, tuner.model);
    show_pass_at_k(reference, tuner.model);
    accuracies.x.push_back(double(steps));
    accuracies.y.push_back(100 * accuracy(tuner.model, task.held_out));
}

}  // namespace

void training_demo(const RunArguments& arguments, std::uint32_t seed) {
    const Model base = train_base(arguments.base_steps, seed);
    Workspace workspace{std::vector<Model>(4, zeros_like(base)), Generator(seed)};
    Line sft{"SFT", {}, {}}, grpo{"GRPO", {}, {}};
    FineTuner tuner = train_lora(base, arguments.sft_steps, sft, workspace);
    sft.x.push_back(double(arguments.sft_steps));
    sft.y.push_back(100 * accuracy(tuner.model, make_task(true).held_out));
    train_with_rewards(std::move(tuner), arguments.grpo_steps, arguments.beta, grpo, workspace);
    for (double& x : grpo.x) x += double(arguments.sft_steps);
    plot("accuracy", {LinePlot{"Reversing held-out words", "step", "correct, %", {sft, grpo}}});
}

}  // namespace llm
