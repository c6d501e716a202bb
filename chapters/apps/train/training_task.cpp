#include "chapters/apps/train/training_task.hpp"

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/choices.hpp"

namespace llm::runs {
namespace {

// Shuffles the list, which is sorted, so that the validation set contains all initials.
std::vector<std::string> shuffled_names(Generator& generator) {
    std::vector<std::string> names = lines_of(read_text(asset("data/names.txt")));
    shuffle(names, generator);
    return names;
}

TrainingTask small_task(std::size_t hidden_size, std::size_t num_layers,
                        std::size_t num_heads) {
    TrainingTask task;
    task.config.hidden_size = hidden_size;
    task.config.num_hidden_layers = num_layers;
    task.config.num_attention_heads = num_heads;
    task.config.num_key_value_heads = 2;
    task.args.gradient_accumulation_steps = 4;
    return task;
}

}  // namespace

TrainingTask names_task() {
    TrainingTask task = small_task(64, 3, 4);
    task.args.batch_size = 8;
    task.args.seq_len = 32;
    task.args.lr_schedule.learning_rate = Real(0.003);
    task.args.lr_schedule.max_steps = 1500;
    return task;
}

TrainingTask text_task() {
    TrainingTask task = small_task(192, 4, 6);
    task.args.batch_size = 2;
    task.args.seq_len = 256;
    task.args.lr_schedule.learning_rate = Real(0.002);
    return task;
}

TrainingTask masked_lm_task() {
    TrainingTask task = small_task(96, 3, 4);
    task.args.batch_size = 4;
    task.args.seq_len = 64;
    task.args.lr_schedule.learning_rate = Real(0.003);
    return task;
}

std::vector<std::string> load_names(TrainingTask& task, Generator& generator) {
    const std::vector<std::string> names = shuffled_names(generator);
    std::string text = "\n";
    for (const std::string& name : names) text += name + "\n";
    tokenize_dataset(task, text, 0);
    return names;
}

void tokenize_dataset(TrainingTask& task, const std::string& text, std::size_t vocab_size) {
    task.tokenizer = train_bpe(text, vocab_size);
    task.dataset = train_validation_split(task.tokenizer.encode(text), task.args.seq_len);
    task.config.vocab_size = task.tokenizer.vocab_size();
}

void set_max_steps(LRSchedule& schedule, std::size_t max_steps) {
    schedule.max_steps = max_steps;
    schedule.warmup_steps = std::min<std::size_t>(100, max_steps / 10);
}

std::size_t tokens_per_step(const TrainingArguments& args) {
    return args.gradient_accumulation_steps * args.batch_size * args.seq_len;
}

}  // namespace llm::runs
