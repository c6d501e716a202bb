// ./learn fine_tune MODEL: teaches a model to answer, with conversations or preferences in
// files.
#include "chapters/apps/fine_tune/encoder_tuning.hpp"
#include "chapters/models/encoders/encoder_family.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "common/system/options.hpp"
#include "common/tensors/tensor.hpp"

using namespace llm;
using namespace llm::fine_tune;

// All methods, of which the option --method names one, and the options that several have.
struct Methods {
    Sft sft;
    Sample sample;
    Dpo dpo;
    Grpo grpo;
    Classifier classifier;
    Contrastive contrastive;
    std::string name = Sft::name;
    std::size_t steps = 0, batch_size = 0;  // by default those of the method, as the others
    float learning_rate = 0, beta = -1;
};

void add_options(Options& options, FineTuningTask& task, Methods& methods, std::string& dtype) {
    models::add_model_path(options, task.model, "a Hugging Face folder");
    options.path("--adapter", task.adapter, "a LoRA adapter in PEFT's format to continue");
    options.path("--train", task.train,
                 "JSON Lines of conversations, of preferences, or for an encoder of labels or "
                 "passages");
    options.path("--test", task.test, "JSON Lines of held-out questions and answers");
    options.text("--task", task.task, "only the conversations of this task");
    options.choice("--method", methods.name,
                   {"sft", "sample", "dpo", "grpo", "classifier", "contrastive"},
                   "sample: write preferences for dpo; the last two are for encoders");
    options.text("--folder", task.folder.path,
                 "where the result is saved; of sample, the file");
    options.flag("--resume", task.folder.resume,
                 "continue the run of the checkpoint in --folder");
    options.count("--save-steps", task.folder.save_steps, 0, 1 << 24,
                  "steps between checkpoints, 0: about a minute");
    options.flag("--full", task.full, "train all parameters, without LoRA");
    options.choice("--dtype", dtype, {"float32", "bfloat16"},
                   "data type of the model that --full saves");
    options.needs("--dtype", "--full");
    options.flag("--loss-on-everything", methods.sft.loss_on_everything,
                 "sft: no response mask");
    options.count("--steps", methods.steps, 1, 1 << 24,
                  "number of steps; default 600 for sft, 300 for encoders, otherwise 60");
    options.count("--batch-size", methods.batch_size, 1, 4096,
                  "conversations, texts, pairs or questions per step");
    options.number("--learning-rate", methods.learning_rate, 0, 1,
                   "learning rate after warm-up, 0: the default of the method");
    options.count("--lora-r", task.lora_r, 1, 4096, "rank of a new adapter");
    options.number("--lora-alpha", task.lora_alpha, 0.001, 1e6, "α of a new adapter");
    options.number("--beta", methods.beta, 0, 100, "β of dpo (0.1) or of grpo (0.04)");
    options.number("--rpo-alpha", methods.dpo.rpo_alpha, 0, 1000,
                   "dpo: weight of the SFT loss of the chosen answers");
    options.choice("--loss-type", methods.grpo.loss_type, {"grpo", "dapo", "dr_grpo"},
                   "grpo: how the tokens' losses become one number");
    options.count("--group-size", methods.grpo.group_size, 2, 1024, "answers to each question");
    options.count("--max-new-tokens", task.max_new_tokens, 1, 1 << 20, "the longest answer");
    options.number("--temperature", task.temperature, 0, 100,
                   "temperature of the answers to --test; contrastive: of cosines (0.05)");
    options.count("--test-questions", task.test_questions, 0, 1 << 24,
                  "questions of each task, 0: all");
}

template <class Method>
Method with_options(Method method, const Methods& methods, const Options& options) {
    if (options.given("--steps")) method.steps.count = methods.steps;
    if (options.given("--batch-size")) method.steps.batch_size = methods.batch_size;
    if (methods.learning_rate > 0) method.steps.learning_rate = methods.learning_rate;
    if constexpr (requires { method.beta; })
        if (options.given("--beta")) method.beta = methods.beta;
    return method;
}

Method chosen_method(const Methods& methods, const Options& options) {
    if (methods.name == Sample::name) return with_options(methods.sample, methods, options);
    if (methods.name == Dpo::name) return with_options(methods.dpo, methods, options);
    if (methods.name == Grpo::name) return with_options(methods.grpo, methods, options);
    return with_options(methods.sft, methods, options);
}

// What an encoder's methods do not have.
void reject_options_of_texts(const Options& options) {
    for (const char* name : {"--adapter", "--task", "--full", "--loss-on-everything",
                             "--lora-r", "--lora-alpha", "--beta", "--rpo-alpha", "--loss-type",
                             "--group-size", "--max-new-tokens", "--test-questions"})
        require(!options.given(name), "{} is not for the methods of encoders", name);
}

void fine_tune_encoder(const FineTuningTask& task, Methods methods, const Options& options) {
    reject_options_of_texts(options);
    EncoderTuningTask tuning{task.model, task.train, task.test, {}, task.folder, task.seed};
    if (methods.name == Classifier::name) {
        require(!options.given("--temperature"),
                "--temperature is not for --method classifier");
        tuning.method = with_options(methods.classifier, methods, options);
    } else {
        if (options.given("--temperature")) methods.contrastive.temperature = task.temperature;
        require(methods.contrastive.temperature > 0,
                "--temperature of --method contrastive must be positive");
        tuning.method = with_options(methods.contrastive, methods, options);
    }
    llm::fine_tune::fine_tune_encoder(tuning);
}

int main(int argc, char** argv) {
    FineTuningTask task;
    Methods methods;
    std::string dtype = "float32";
    Options options("fine_tune", "How does a model learn to answer?");
    add_options(options, task, methods, dtype);
    options.needs("--resume", "--train");
    options.needs("--save-steps", "--train");
    return options.run(argc, argv, [&] {
        require(!task.model.empty(), "--model is missing: ./learn fine_tune DIR");
        require(!task.train.empty() || !task.test.empty(),
                "--model needs --train, --test or both");
        task.folder.dtype = dtype_named(dtype);
        task.seed = options.seed();
        const bool is_for_encoders =
            methods.name == Classifier::name || methods.name == Contrastive::name;
        const bool is_encoder = models::find_encoder_family(task.model);
        require(is_encoder || !is_for_encoders,
                "--method {} needs an encoder, such as BERT, but {} writes texts", methods.name,
                task.model);
        require(!is_encoder || is_for_encoders,
                "--method {}: {} is an encoder, which writes no text; its methods are "
                "classifier and contrastive",
                methods.name, task.model);
        if (is_encoder) return fine_tune_encoder(task, methods, options);
        task.method = chosen_method(methods, options);
        fine_tune_model(task);
    });
}
