#include "chapters/apps/fine_tune/fine_tune.hpp"

#include <algorithm>
#include <functional>
#include <memory>

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/apps/fine_tune/held_out.hpp"
#include "chapters/apps/fine_tune/run_steps.hpp"
#include "chapters/models/chat/chat_templates.hpp"
#include "chapters/models/chat/peft_files.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/folder_lock.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm::fine_tune {
using namespace models;

namespace {

bool samples(const FineTuningArguments& arguments) { return arguments.method == "sample"; }

// The template that is saved with a model that had none: ChatML, as in Hugging Face's
// documentation.
const std::string chatml_template =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// Throws FileError if something would be overwritten, or if there is nothing to resume.
void check_result(const FineTuningArguments& arguments) {
    const std::string& path = arguments.folder;
    if (arguments.train.empty()) return;
    require(!path.empty(), "--train needs --folder, where the result is saved");
    require(arguments.method != "dpo" || arguments.task.empty(),
            "--task: preferences have no tasks");
    const std::string checkpoint = checkpoint_file(arguments);
    std::vector<std::string> files;
    for (const char* name : {"/adapter_config.json", "/adapter_model.safetensors",
                             "/config.json", "/model.safetensors"})
        files.push_back(path + name);
    if (samples(arguments)) {
        require(!arguments.resume, "--resume: --method sample has no checkpoints");
        files = {path};
    } else if (arguments.resume) {
        if (!is_file(checkpoint)) throw FileError(path + " holds no checkpoint to resume from");
        files.clear();  // the result of this run, if it was stopped
    } else if (is_file(checkpoint)) {
        throw FileError(path +
                        " holds a checkpoint: --resume continues its run, and --folder "
                        "names another folder for a new run");
    }
    for (const std::string& file : files)
        if (is_file(file)) throw FileError(file + ": it exists, and is not overwritten");
}

// Locks the folder of the result. Throws FileError as check_result does, if another run is
// writing to it, or if nothing can be written.
std::unique_ptr<FolderLock> lock_result_folder(const FineTuningArguments& arguments) {
    if (arguments.train.empty()) return nullptr;
    auto lock = std::make_unique<FolderLock>(arguments.folder);
    check_result(arguments);  // again: another run may have ended
    check_writable(checkpoint_file(arguments));
    return lock;
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
    models::export_model(run.tuner.model, arguments.folder, dtype_named(arguments.dtype));
    models::save_tokenizer(run.encoder.tokenizer, arguments.folder + "/tokenizer.json");
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
        save_adapter(run.tuner.lora->adapter, folder,
                     Existing::replace);  // a stopped run has one
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

void train(FineTuningRun& run, const std::function<void()>& train_with_data) {
    step("Training: " + run.arguments.method);
    show("trained parameters",
         with_commas(run.tuner.lora ? num_parameters(run.tuner.lora->adapter)
                                    : count_parameters(run.tuner.model).total()));
    const InterruptHandler interrupt_handler;
    bool is_stopped = false;
    try {
        train_with_data();
    } catch (const Interrupted&) {
        show_progress("");
        is_stopped = true;
    }
    save_result(run.arguments, run);
    if (is_stopped)
        say("Stopped and saved after the last complete step. With --resume, the same command "
            "continues the run.");
    else
        remove_file(checkpoint_file(run.arguments));
}

void sample(FineTuningRun& run) {
    const std::vector<AskedQuestion> questions =
        read_questions(run.arguments.train, run.arguments.task);
    check_writable(run.arguments.folder);
    step("Sampling answers, of which the wrong ones are saved");
    std::vector<Preference> preferences;
    const InterruptHandler interrupt_handler;
    try {
        sample_preferences(run, questions, preferences);
    } catch (const Interrupted&) {
        show_progress("");
        say("Stopped.");
    }
    write_preferences(run.arguments.folder, preferences);
    show("preferences in " + run.arguments.folder, with_commas(preferences.size()));
}

}  // namespace

void fine_tune_model(const FineTuningArguments& given, std::uint32_t seed) {
    FineTuningArguments arguments = given;
    set_defaults(arguments);
    check_result(arguments);
    const Model model = models::load_model(arguments.model);
    const Tokenizer tokenizer =
        models::load_tokenizer_of_model(arguments.model, "", model.config.vocab_size);
    Generator generator(seed);
    FineTuningRun run{arguments,
                      {},
                      {tokenizer, chat_template_of(arguments.model, arguments.adapter)},
                      start_tuner(arguments, model, generator),
                      std::vector<Model>(4, zeros_like(model)),
                      generator,
                      arguments.steps,
                      arguments.batch_size,
                      schedule_of(arguments)};
    run.encoder.end_of_turn();  // throws if the tokenizer lacks it
    if (samples(arguments)) return sample(run);
    std::function<void()> train_with_data;
    if (!arguments.train.empty()) {
        train_with_data = prepared_run(run);
        run.settings = settings_of(arguments, seed, run.tuner.model);
    }
    HeldOutQuestions held_out(arguments);
    const std::unique_ptr<FolderLock> lock = lock_result_folder(arguments);
    if (arguments.resume)
        open_run(checkpoint_file(arguments), run.settings);  // throws before any question

    held_out.ask(run.tuner.model, run.encoder, seed);
    if (train_with_data) {
        train(run, train_with_data);
        held_out.ask(run.tuner.model, run.encoder, seed);
    }
    held_out.show(seed);
}

}  // namespace llm::fine_tune
