#include "chapters/apps/fine_tune/fine_tune.hpp"

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/apps/fine_tune/held_out.hpp"
#include "chapters/apps/fine_tune/train_method.hpp"
#include "chapters/models/chat/chat_templates.hpp"
#include "chapters/models/chat/peft_files.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm::fine_tune {
using namespace models;

namespace {

// The template that is saved with a model that had none: ChatML, as in Hugging Face's
// documentation.
const std::string chatml_template =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Throws FileError if something would be overwritten.
void check_result(const FineTuningTask& task) {
    const runs::RunFolder& folder = task.folder;
    require(!folder.path.empty(), "--train needs --folder, where the result is saved");
    if (std::holds_alternative<Sample>(task.method)) {
        require(!folder.resume, "--resume: --method sample has no checkpoints");
        return runs::check_new(folder.path);
    }
    require(!std::holds_alternative<Dpo>(task.method) || task.task.empty(),
            "--task: preferences have no tasks");
    runs::reject_existing_result(folder);
}

// Throws FileError as check_result does, or if there is nothing to resume.
void open_result(FineTuningRun& run) {
    lock_run_folder(run.task.folder);
    check_result(run.task);  // again: another run may have ended
    check_writable(run.task.folder.checkpoint_file());
    if (run.task.folder.resume) runs::open_checkpoint(run.task.folder, run.settings);
}

// All parameters, or an adapter: that of --adapter, or a new one of all linear layers.
FineTuner start_tuner(const FineTuningTask& task, const Model& model, Generator& generator) {
    if (!task.adapter.empty()) {
        const LoraAdapter adapter = load_adapter(task.adapter, model);
        if (task.full) return make_fine_tuner(merge_lora(model, adapter));
        return make_fine_tuner(model, adapter);
    }
    if (task.full) return make_fine_tuner(model);
    LoraConfig config{task.lora_r, Real(task.lora_alpha), false, {}};
    config.target_modules = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                             "gate_proj", "up_proj", "down_proj"};
    return make_fine_tuner(model, make_lora(model, config, generator));
}

// A whole model with what tells how it is used: its tokenizer, template and special tokens.
void save_model(const FineTuningRun& run) {
    const std::string& folder = run.task.folder.path;
    models::export_model(run.tuner.model, folder, run.task.folder.dtype);
    models::save_tokenizer(run.encoder.tokenizer, folder + "/tokenizer.json");
    for (const char* name :
         {"/chat_template.jinja", "/tokenizer_config.json", "/generation_config.json"})
        if (is_file(run.task.model + name))
            write_text_file(folder + name, read_text(run.task.model + name));
}

// A model without a template is trained with that of its adapter, or with ChatML; the result
// is saved with it.
void save_result(const FineTuningRun& run) {
    const FineTuningTask& task = run.task;
    const std::string& folder = task.folder.path;
    if (task.full)
        save_model(run);
    else
        save_adapter(run.tuner.lora->adapter, folder,
                     Existing::replace);  // a stopped run has one
    const std::string of_adapter = task.adapter + "/chat_template.jinja";
    if (!find_chat_template(task.model))
        write_text_file(folder + "/chat_template.jinja",
                        is_file(of_adapter) ? read_text(of_adapter) : chatml_template);
    say("Saved in " + folder + ". ./learn chat --model " +
        (task.full ? folder : task.model + " --adapter " + folder) + " talks with it.");
}

void show_start(const FineTuningRun& run, const std::string& method) {
    step("Training: " + method);
    show("trained parameters",
         with_commas(run.tuner.lora ? num_parameters(run.tuner.lora->adapter)
                                    : count_parameters(run.tuner.model).total()));
}

template <class Method>
void train_and_test(FineTuningRun& run, const Method& method) {
    run.settings = settings_of(run, method.name, method.steps);
    for (const Setting& setting : method.settings()) run.settings.push_back(setting);
    HeldOutQuestions held_out(run.task);
    std::optional<InterruptHandler> interrupt_handler;
    const auto start = [&] {  // after the data are read
        open_result(run);
        held_out.ask(run.tuner.model, run.encoder);
        show_start(run, method.name);
        interrupt_handler.emplace();
    };
    runs::train_and_save(
        run.task.folder, [&] { train(run, method, start); }, [&] { save_result(run); });
    interrupt_handler.reset();
    held_out.ask(run.tuner.model, run.encoder);
    held_out.show();
}

void train_and_test(FineTuningRun& run, const Sample& method) {
    const std::string& file = run.task.folder.path;
    const std::vector<AskedQuestion> questions = read_questions(run.task.train, run.task.task);
    check_writable(file);
    step("Sampling answers, of which the wrong ones are saved");
    std::vector<Preference> preferences;
    const InterruptHandler interrupt_handler;
    try {
        sample(run, method, questions, preferences);
    } catch (const Interrupted&) {
        say("Stopped.");
    }
    write_preferences(file, preferences);
    show("preferences in " + file, with_commas(preferences.size()));
}

}  // namespace

void fine_tune_model(const FineTuningTask& task) {
    const bool trains = !task.train.empty();
    if (trains) check_result(task);
    const Model model = models::load_model(task.model);
    const Tokenizer tokenizer =
        models::load_tokenizer_of_model(task.model, "", model.config.vocab_size);
    Generator generator(task.seed);
    FineTuningRun run{task,
                      {tokenizer, chat_template_of(task.model, task.adapter)},
                      start_tuner(task, model, generator),
                      std::vector<Model>(4, zeros_like(model)),
                      generator,
                      {}};
    run.encoder.end_of_turn();  // throws if the tokenizer lacks it
    if (trains)
        return std::visit([&](const auto& method) { train_and_test(run, method); },
                          task.method);
    HeldOutQuestions held_out(task);
    held_out.ask(run.tuner.model, run.encoder);
    held_out.show();
}

}  // namespace llm::fine_tune
