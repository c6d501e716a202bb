#include "chapters/experiments/demo/runs.hpp"

#include <algorithm>
#include <numeric>

#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"
#include "common/system/timer.hpp"

namespace llm {
using namespace runs;

void run_all(std::size_t count, const std::function<void(std::size_t)>& fn) {
    const InterruptHandler interrupt_handler;
    const double start = elapsed_seconds();
    parallel_for(count, fn,
                 [&](std::size_t num_done) { show_runs_left(start, num_done, count); });
    show_progress("");
}

void show_runs_left(double start_seconds, std::size_t num_done, std::size_t count) {
    const double seconds = (elapsed_seconds() - start_seconds) / double(num_done);
    show_progress("run " + to_text(num_done) + " of " + to_text(count) + ", about " +
                  minutes_and_seconds(seconds * double(count - num_done)) + " left");
}

Config config_of_width(const Config& task, std::size_t width, std::size_t seq_len) {
    Config config = task;
    config.hidden_size = width;
    config.intermediate_size = 3 * width;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.max_position_embeddings = seq_len;
    return validate_model(config);
}

Config small_config(std::size_t vocab_size, std::size_t max_position_embeddings) {
    Config config = mini_llm_config();
    config.hidden_size = 64;
    config.intermediate_size = 176;
    config.num_hidden_layers = 4;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 16;
    config.vocab_size = vocab_size;
    config.max_position_embeddings = max_position_embeddings;
    return validate_model(config);
}

TrainingArguments small_run_arguments(std::size_t seq_len, std::size_t num_steps,
                                      std::uint32_t seed) {
    TrainingArguments args;
    args.batch_size = 8;
    args.seq_len = seq_len;
    args.lr_schedule = {Real(0.004), Real(0.0004), num_steps / 10, num_steps};
    args.seed = seed;
    return args;
}

double mean_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

std::string mean_and_spread(const std::vector<double>& values, int decimals) {
    const auto [lowest, highest] = std::minmax_element(values.begin(), values.end());
    return fixed(mean_of(values), decimals) + " ± " + fixed((*highest - *lowest) / 2, decimals);
}

}  // namespace llm
