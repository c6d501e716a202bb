#include "chapters/apps/fine_tune/encoder_run.hpp"

#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/hash.hpp"

namespace llm::fine_tune {
namespace {

// The settings that identify a run.
std::vector<Setting> settings_of(const EncoderRun& run) {
    const EncoderTuningTask& task = run.task;
    const std::uint64_t model =
        std::visit([](auto encoder) { return runs::checksum(named_parameters(encoder)); },
                   run.text.encoder);
    const std::string test = task.test.empty() ? "" : read_text(task.test);
    return std::visit(
        [&](const auto& method) {
            std::vector<Setting> settings = {
                {"--method", method.name},
                {"--steps", method.steps.count},
                {"--batch-size", method.steps.batch_size},
                {"--learning-rate", method.steps.learning_rate},
                {"--seed", task.seed},
                {"the model", model},
                {"the training data", fnv1a(read_text(task.train))},
                {"the held-out data", fnv1a(test)}};
            for (const Setting& setting : method.settings()) settings.push_back(setting);
            return settings;
        },
        task.method);
}

}  // namespace

void open_result(EncoderRun& run) {
    runs::RunFolder& folder = run.task.folder;
    lock_run_folder(folder);
    runs::reject_existing_result(folder);  // again: another run may have ended
    check_writable(folder.checkpoint_file());
    if (folder.resume) runs::open_checkpoint(folder, run.settings);
}

void show_counts(const EncoderRun& run, const std::string& name, std::size_t train,
                 std::size_t held_out, std::size_t left_out) {
    if (left_out > 0)
        show("left out, longer than " + to_text(run.text.max_tokens) + " tokens", left_out);
    show(name, with_commas(train) + ", held out: " + with_commas(held_out));
}

BatchEncoding encode_batch(const models::TextEncoder& encoder,
                           const std::vector<std::string>& texts) {
    std::vector<std::vector<Id>> ids;
    for (const std::string& text : texts) ids.push_back(encoder.tokenizer.encode(text));
    return pad(ids, models::config_of(encoder.encoder).pad_token_id);
}

void train_encoder(EncoderRun& run, const Steps& steps,
                   const std::vector<Parameter>& parameters, const std::string& method,
                   const runs::TakeStep& take_step, const std::function<void()>& save) {
    const runs::RunFolder& folder = run.task.folder;
    std::size_t num_parameters = 0;
    for (const Parameter& parameter : parameters) num_parameters += parameter.values.size();
    step("Training: " + method);
    show("trained parameters", with_commas(num_parameters));
    runs::StepRun state{folder, run.settings, parameters, run.optimizer, run.generator};
    const InterruptHandler interrupt_handler;
    const auto train = [&] {
        const auto lines =
            runs::run_steps(state, schedule_of(steps), {"loss", "gradient norm"}, take_step);
        plot(method, {LinePlot{method, "step", "loss, nats", {lines[0]}}});
    };
    runs::train_and_save(folder, train, save);
}

void save_tokenizer_files(const EncoderRun& run) {
    for (const char* name :
         {"/tokenizer.json", "/tokenizer_config.json", "/special_tokens_map.json", "/vocab.txt",
          "/sentence_bert_config.json", "/config_sentence_transformers.json"})
        if (is_file(run.task.model + name))
            write_text_file(run.task.folder.path + name, read_text(run.task.model + name));
}

void fine_tune_encoder(EncoderTuningTask task) {
    require(!task.train.empty(), "an encoder needs --train: JSON Lines of examples");
    require(!task.folder.path.empty(), "--train needs --folder, where the result is saved");
    require(is_folder(task.model), "{}: only encoders in a Hugging Face folder are trained",
            task.model);
    runs::reject_existing_result(task.folder);
    EncoderRun run{task, models::load_text_encoder(task.model), Generator(task.seed)};
    run.settings = settings_of(run);
    std::visit([&](const auto& method) { train(run, method); }, task.method);
}

}  // namespace llm::fine_tune
