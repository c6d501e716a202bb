// ./learn bench: a training step of chapter 13, beside its matrix products and PyTorch.
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/trainer.hpp"
#include "chapters/apps/bench/bench_rivals.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "chapters/apps/train/training_options.hpp"
#include "chapters/apps/train/training_task.hpp"
#include "common/system/parallel.hpp"
#include "common/tensors/matmul.hpp"

namespace llm::bench {
using namespace runs;

namespace {

// The default sizes of a run of chapter 13 and of ./learn train.
struct TrainingSizes {
    std::string name;
    Config config;
    TrainingArguments args;
};
TrainingSizes sizes_of(const std::string& name, TrainingTask task, std::size_t vocab_size) {
    task.config.vocab_size = vocab_size;
    task = apply({.steps = 1'000'000}, std::move(task));
    return {name, task.config, task.args};
}

// The three products of a linear layer with N rows: output, weight gradient, input gradient.
struct LinearProducts {
    Matrix input, weight, output;

    LinearProducts(std::size_t num_rows, std::size_t in_features, std::size_t out_features)
        : input(xt::zeros<Real>({num_rows, in_features})),
          weight(xt::zeros<Real>({out_features, in_features})),
          output(xt::zeros<Real>({num_rows, out_features})) {}

    void multiply() {
        matmul_transposed(view_of(input), view_of(weight), view_of(output));
        transposed_matmul(view_of(output), view_of(input), view_of(weight), Update::accumulate);
        matmul(view_of(output), view_of(weight), view_of(input));
    }
};

// The six products of one head of attention: scores, context, and the gradients of both
// factors of each.
struct AttentionProducts {
    Matrix head, result, weights;  // (T, D), (T, D), (T, T)

    AttentionProducts(std::size_t seq_len, std::size_t head_dim)
        : head(xt::zeros<Real>({seq_len, head_dim})),
          result(head),
          weights(xt::zeros<Real>({seq_len, seq_len})) {}

    void multiply() {
        for (int i = 0; i < 2; ++i) {
            matmul_transposed(view_of(head), view_of(head), view_of(weights));
            matmul(view_of(weights), view_of(head), view_of(result));
            transposed_matmul(view_of(weights), view_of(head), view_of(result));
        }
    }
};

// All matrix products of one micro-batch, of zeros, and nothing else.
struct ModelProducts {
    std::vector<LinearProducts> layer;
    AttentionProducts attention;
    LinearProducts lm_head;
    std::size_t num_layers, num_heads;  // those of all sequences

    explicit ModelProducts(const TrainingSizes& sizes)
        : attention(sizes.args.seq_len, sizes.config.head_dim),
          lm_head(sizes.args.batch_size * sizes.args.seq_len, sizes.config.hidden_size,
                  sizes.config.vocab_size),
          num_layers(sizes.config.num_hidden_layers),
          num_heads(sizes.args.batch_size * sizes.config.num_attention_heads) {
        const std::size_t C = sizes.config.hidden_size, F = sizes.config.intermediate_size;
        const std::size_t kv_size = sizes.config.num_key_value_heads * sizes.config.head_dim;
        for (const auto& [in_features, out_features] : std::vector<std::array<std::size_t, 2>>{
                 {C, C}, {C, kv_size}, {C, kv_size}, {C, C}, {C, F}, {C, F}, {F, C}})
            layer.emplace_back(lm_head.input.shape(0), in_features, out_features);
    }

    void multiply() {
        for (std::size_t n = 0; n < num_layers; ++n) {
            for (LinearProducts& linear : layer) linear.multiply();
            for (std::size_t h = 0; h < num_heads; ++h) attention.multiply();
        }
        lm_head.multiply();
    }
};

// A run whose steps are timed.
struct TimedRun {
    TrainingSizes sizes;
    std::vector<Id> tokens;
    TrainerState state;
    std::vector<Model> gradients;
    std::vector<ModelProducts> products;  // of each micro-batch

    explicit TimedRun(const TrainingSizes& given) : sizes(given) {
        Generator generator(77);
        const Model model = make_model_for_training(sizes.config, generator);
        for (std::size_t i = 0; i < 20000; ++i)
            tokens.push_back(static_cast<Id>(i * 7919 % sizes.config.vocab_size));
        state = make_trainer_state(model, sizes.args);
        gradients.assign(sizes.args.gradient_accumulation_steps, zeros_like(model));
        products.assign(gradients.size(), ModelProducts(sizes));
    }
};

}  // namespace

void benchmark_training(int repetitions) {
    step("A training step of chapter 13");
    std::vector<TimedRun> runs;
    runs.emplace_back(sizes_of("king_james", text_task(), 1024));
    runs.emplace_back(sizes_of("names", names_task(), 27));
    std::vector<Benchmark> benchmarks;
    for (TimedRun& run : runs) {
        benchmarks.push_back(
            {run.sizes.name,
             [&run] { train_step(run.state, run.sizes.args, run.tokens, run.gradients); }});
        benchmarks.push_back({run.sizes.name + " products", [&run] {
                                  parallel_for(run.products.size(), [&run](std::size_t i) {
                                      run.products[i].multiply();
                                  });
                              }});
    }
    Rival pytorch = repetitions > 1 ? make_pytorch_training_rival() : Rival{};
    BenchmarkResults results;
    for (int round = 0; round < (repetitions + 1) / 2; ++round) {
        run_benchmarks(benchmarks, std::min(repetitions, 2), results);
        pytorch.run();
    }
    std::vector<TableRow> table;
    for (const TimedRun& run : runs) {
        const std::string& name = run.sizes.name;
        const double seconds = results.seconds(name),
                     products = results.seconds(name + " products");
        table.push_back({name, fixed(1000 * seconds, 1), fixed(1000 * products, 1),
                         fixed(100 * products / seconds, 0), pytorch.speedup(name, seconds)});
    }
    show_table({"sizes", "ms per step", "products alone, ms", "%", "PyTorch"}, table);
    say("PyTorch: its time in the fastest of its settings (1 or 2 threads), divided by ours");
}

}  // namespace llm::bench
