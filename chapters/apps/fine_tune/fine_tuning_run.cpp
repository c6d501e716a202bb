#include "chapters/apps/fine_tune/fine_tuning_run.hpp"

#include <algorithm>
#include <functional>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/10_tokenizer/tokenizer_json.hpp"
#include "chapters/11_generation/special_tokens.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/apps/fine_tune/methods.hpp"
#include "chapters/models/chat/chat_templates.hpp"
#include "chapters/models/chat/peft_files.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm {
namespace {

bool samples(const FineTuningArguments& arguments) { return arguments.method == "sample"; }

// The template that is saved with a model that had none: ChatML, as in Hugging Face's
// documentation.
const std::string chatml_template =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Throws FileError if the result would overwrite something.
void check_result_is_new(const FineTuningArguments& arguments) {
    const std::string& path = arguments.folder;
    require(arguments.train.empty() || !path.empty(),
            "--train needs --folder, where the result is saved");
    std::vector<std::string> files = {path + "/adapter_config.json", path + "/config.json"};
    if (samples(arguments)) files = {path};
    for (const std::string& file : files)
        if (is_file(file)) throw FileError(file + ": it exists, and is not overwritten");
}

template <class T>
std::vector<T> of_task(std::vector<T> all, const std::string& task, const std::string& file) {
    if (!task.empty()) std::erase_if(all, [&](const T& one) { return one.task != task; });
    if (all.empty())
        throw FileError(file + ": it has no conversations" +
                        (task.empty() ? "" : " of the task " + task));
    return all;
}

std::vector<AskedQuestion> read_questions(const std::string& file, const std::string& task) {
    std::vector<AskedQuestion> questions;
    for (const Conversation& conversation : of_task(read_conversations(file), task, file))
        questions.push_back(question_of(conversation));
    return questions;
}

// The first questions of each task.
std::vector<AskedQuestion> first_of_each_task(const std::vector<AskedQuestion>& questions,
                                              std::size_t count) {
    std::map<std::string, std::size_t> counts;
    std::vector<AskedQuestion> chosen;
    for (const AskedQuestion& question : questions)
        if (++counts[question.task] <= count || count == 0) chosen.push_back(question);
    return chosen;
}

// All parameters, or an adapter: that of --adapter, or a new one of all linear layers.
FineTuner start_tuner(const FineTuningArguments& arguments, const Model& model,
                      Generator& generator) {
    if (!arguments.adapter.empty()) {
        const LoraAdapter adapter = load_adapter(arguments.adapter, model);
        if (arguments.full) return make_fine_tuner(merge_lora(model, adapter));
        return make_fine_tuner(model, adapter);
    }
    if (arguments.full) return make_fine_tuner(model);
    LoraConfig config{arguments.lora_r, Real(arguments.lora_alpha), false, {}};
    config.target_modules = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                             "gate_proj", "up_proj", "down_proj"};
    return make_fine_tuner(model, make_lora(model, config, generator));
}

// The defaults of each method.
void set_defaults(FineTuningArguments& arguments) {
    const bool grpo = arguments.method == "grpo", dpo = arguments.method == "dpo";
    if (arguments.steps == 0) arguments.steps = grpo || dpo || samples(arguments) ? 60 : 600;
    if (arguments.batch_size == 0) arguments.batch_size = grpo ? 16 : 32;
    if (arguments.learning_rate == 0)
        arguments.learning_rate = grpo ? 0.0005f : dpo ? 0.0002f : 0.003f;
}

LRSchedule schedule_of(const FineTuningArguments& arguments) {
    const Real rate = Real(arguments.learning_rate);
    return {rate, rate / 10, std::min<std::size_t>(100, arguments.steps / 20), arguments.steps};
}

// A whole model with what tells how it is used: its tokenizer, template and special tokens.
void save_model(const FineTuningArguments& arguments, const FineTuningRun& run) {
    export_model(run.tuner.model, arguments.folder);
    save_tokenizer(run.encoder.tokenizer, arguments.folder + "/tokenizer.json");
    for (const char* name :
         {"/chat_template.jinja", "/tokenizer_config.json", "/generation_config.json"})
        if (is_file(arguments.model + name))
            write_text_file(arguments.folder + name, read_text(arguments.model + name));
}

// A model without a template is trained with that of its adapter, or with ChatML; the result
// is saved with it.
void save_result(const FineTuningArguments& arguments, const FineTuningRun& run) {
    const std::string& folder = arguments.folder;
    if (arguments.full)
        save_model(arguments, run);
    else
        save_adapter(run.tuner.lora->adapter, folder);
    const std::string of_adapter = arguments.adapter + "/chat_template.jinja";
    if (!find_chat_template(arguments.model))
        write_text_file(folder + "/chat_template.jinja",
                        is_file(of_adapter) ? read_text(of_adapter) : chatml_template);
    say("Saved in " + folder + ". ./learn chat --model " +
        (arguments.full ? folder : arguments.model + " --adapter " + folder) +
        " talks with it.");
}

// The run of a method, with its data, which is read before training begins.
std::function<void()> prepared_run(FineTuningRun& run) {
    const FineTuningArguments& arguments = run.arguments;
    if (arguments.method == "dpo")
        return [&run, data = read_preferences(arguments.train)] { run_dpo(run, data); };
    if (arguments.method == "grpo")
        return [&run, data = read_questions(arguments.train, arguments.task)] {
            run_grpo(run, data);
        };
    return [&run, data = of_task(read_conversations(arguments.train), arguments.task,
                                 arguments.train)] { run_sft(run, data); };
}

void train(FineTuningRun& run) {
    const std::function<void()> train_with_data = prepared_run(run);
    step("Training: " + run.arguments.method);
    show("trained parameters",
         with_commas(run.tuner.lora ? num_parameters(run.tuner.lora->adapter)
                                    : count_parameters(run.tuner.model).total()));
    const InterruptHandler interrupt_handler;
    try {
        train_with_data();
    } catch (const Interrupted&) {
        show_progress("");
        say("Stopped after the last complete step.");
    }
    save_result(run.arguments, run);
}

void sample(FineTuningRun& run) {
    const std::vector<AskedQuestion> questions =
        read_questions(run.arguments.train, run.arguments.task);
    step("Sampling answers, of which the wrong ones are saved");
    const std::vector<Preference> preferences = sample_preferences(run, questions);
    write_preferences(run.arguments.folder, preferences);
    show("preferences in " + run.arguments.folder, with_commas(preferences.size()));
}

std::string percent(const Score& score) {
    return fixed(100 * double(score.num_correct) / double(score.num_questions), 1);
}

// The row of a task: its name, and columns for the models before and after training.
TableRow row_of(const std::string& task, const std::vector<Score>& scores) {
    TableRow row = {task.empty() ? "(no task)" : task, to_text(scores[0].num_questions)};
    for (const Score& score : scores) {
        const Interval interval = wilson_interval(score);
        row.push_back(percent(score));
        row.push_back(fixed(100 * interval.low, 0) + " to " + fixed(100 * interval.high, 0));
    }
    return row;
}

using Scores = std::map<std::string, Score>;

void show_scores(const std::vector<Scores>& models) {
    std::vector<TableRow> rows;
    std::vector<Score> sums(models.size());
    for (const auto& [task, unused] : models[0]) {
        std::vector<Score> scores;
        for (std::size_t i = 0; i < models.size(); ++i) {
            scores.push_back(models[i].at(task));
            sums[i].num_correct += scores[i].num_correct;
            sums[i].num_questions += scores[i].num_questions;
        }
        rows.push_back(row_of(task, scores));
    }
    if (rows.size() > 1) rows.push_back(row_of("all", sums));
    TableRow headings = {"task", "questions"};
    for (std::size_t i = 0; i < models.size(); ++i) {
        headings.push_back(i + 1 < models.size() ? "before, %" : "correct, %");
        headings.emplace_back("95 % interval");
    }
    show_table(headings, rows);
}

void show_difference(const Vector& before, const Vector& after, std::uint32_t seed) {
    Generator generator(seed);
    const PairedDifference difference = paired_bootstrap(before, after, generator);
    show("difference of all questions, points",
         fixed(100 * difference.mean, 1) + ", 95 % interval " +
             fixed(100 * difference.interval.low, 1) + " to " +
             fixed(100 * difference.interval.high, 1));
}

// How many of the conversations up to a question stand in the training data, too.
void show_contamination(const FineTuningArguments& arguments,
                        const std::vector<AskedQuestion>& questions) {
    if (arguments.train.empty() || arguments.method == "dpo") return;
    const auto text_of = [](const AskedQuestion& question) {  // with what precedes it
        std::string text;
        for (const Message& message : question.messages) text += message.content + "\n";
        return text;
    };
    std::vector<std::string> held_out, training;
    for (const AskedQuestion& question : questions) held_out.push_back(text_of(question));
    for (const AskedQuestion& question : read_questions(arguments.train, arguments.task))
        training.push_back(text_of(question));
    show_progress("comparing " + to_text(questions.size()) +
                  " questions with the training data ...");
    const std::vector<bool> occurs = contaminated(held_out, training);
    show_progress("");
    show("held-out questions that stand in the training data",
         to_text(std::count(occurs.begin(), occurs.end(), true)) + " of " +
             to_text(questions.size()));
}

// The first question of each task with its answer.
void show_examples(const std::vector<AskedQuestion>& questions,
                   const std::vector<std::string>& answers) {
    std::map<std::string, bool> shown;
    for (std::size_t i = 0; i < questions.size(); ++i) {
        const auto& [messages, correct, task] = questions[i];
        if (shown[task]) continue;
        shown[task] = true;
        say(messages.back().content);
        const bool is_correct = exact_match_reward(correct, answers[i]) == 1;
        say("    " + (answers[i].empty() ? "(no end)" : answers[i]) +
            (is_correct ? "" : "    not: " + correct));
    }
}

}  // namespace

void fine_tune_model(const FineTuningArguments& given, std::uint32_t seed) {
    FineTuningArguments arguments = given;
    set_defaults(arguments);
    check_result_is_new(arguments);
    const Model model = load_model(arguments.model);
    const Tokenizer tokenizer =
        load_tokenizer_of_model(arguments.model, "", model.config.vocab_size);
    Generator generator(seed);
    FineTuningRun run{arguments,
                      {tokenizer, chat_template_of(arguments.model, arguments.adapter)},
                      start_tuner(arguments, model, generator),
                      std::vector<Model>(4, zeros_like(model)),
                      generator,
                      arguments.steps,
                      arguments.batch_size,
                      schedule_of(arguments)};
    run.encoder.end_of_turn();  // throws if the tokenizer lacks it
    if (samples(arguments)) return sample(run);

    std::vector<AskedQuestion> questions;
    std::vector<Scores> scores;
    std::vector<Vector> correct;  // 1 for each correct answer, before and after training
    std::vector<std::string> answers;
    const auto ask = [&] {
        Generator own_generator(seed);  // so that --test does not change the training
        show_progress("asking " + to_text(questions.size()) + " questions ...");
        answers =
            answers_of(run.tuner.model, run.encoder, questions,
                       {Real(arguments.temperature), arguments.max_new_tokens}, own_generator);
        show_progress("");
        scores.push_back(score_answers(questions, answers));
        correct.push_back(xt::zeros<Real>({questions.size()}));
        for (std::size_t i = 0; i < questions.size(); ++i)
            correct.back()(i) =
                static_cast<Real>(exact_match_reward(questions[i].answer, answers[i]));
    };
    if (!arguments.test.empty()) {
        questions = first_of_each_task(read_questions(arguments.test, arguments.task),
                                       arguments.test_questions);
        ask();
    }
    if (!arguments.train.empty()) {
        train(run);
        if (!arguments.test.empty()) ask();
    }
    if (arguments.test.empty()) return;
    step("Held-out questions");
    show_scores(scores);
    if (correct.size() == 2) show_difference(correct[0], correct[1], seed);
    show_contamination(arguments, questions);
    show_examples(questions, answers);
}

}  // namespace llm
