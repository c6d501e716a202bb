// ./learn bench: timing of functions and comparison with the roofline.
#pragma once

#include <functional>
#include <map>

#include "chapters/15_fast/roofline.hpp"
#include "common/output/show.hpp"

namespace llm::bench {

// A function to be timed, and the minimum work that it requires: FLOPs if it is compute-bound,
// bytes if it is memory-bound.
struct Benchmark {
    std::string name;
    std::function<void()> function;
    double flops = 0, bytes = 0;
};

// The number in the middle, or the mean of the two in the middle.
double median(std::vector<double> numbers);

// Every call of every benchmark; none is left out. The limit of a benchmark, peak or bandwidth,
// is measured directly before each repetition of it.
struct BenchmarkResults {
    struct Calls {
        std::vector<double> seconds;
        std::vector<double> percentages;  // of the limit; empty for a benchmark without work
    };
    std::map<std::string, Calls> calls;     // by name
    std::vector<double> peaks, bandwidths;  // all measured limits, in GFLOP/s and GB/s

    double seconds(const std::string& name) const;  // the median
};

// Adds repetitions of all benchmarks, of 0.1 seconds each, to the results. They are interleaved
// at random, so that the load of other programs affects all of them.
void run_benchmarks(const std::vector<Benchmark>& benchmarks, int repetitions,
                    BenchmarkResults& results);

// A row of a table: milliseconds, speed, and percent of the peak or of the bandwidth; medians.
TableRow result_row(const Benchmark& benchmark, const BenchmarkResults& results);
void show_roofline_of(const BenchmarkResults& results);

// bench_layer.cpp: the parts of a layer, at 512 tokens.
void benchmark_layer(Generator& generator, int repetitions);

// bench_kernels.cpp: products of one matrix in the types of chapter 16.
void benchmark_integer_products(Generator& generator, int repetitions);

// bench_small_models.cpp: tokens per second of two small models.
void benchmark_small_models(int repetitions);

// bench_encoder.cpp: a text of 512 tokens by an encoder of ModernBERT-base's sizes.
void benchmark_encoder(Generator& generator, int repetitions);

// bench_training.cpp: training steps at the default sizes of chapter 13.
void benchmark_training(int repetitions);

// bench_linear_attention.cpp: one head of softmax and of linear attention, by length.
void benchmark_linear_attention(Generator& generator, int repetitions);

// bench_serving.cpp: many requests at once, with a model of Mini-LLM's sizes in q8_0.
void benchmark_serving(const Model& mini_llm, Generator& generator, int repetitions);

// bench_profile.cpp: the functions in which a prefill and a decode step spend their time,
// measured by perf.
void benchmark_profile();

// What perf measures: prefills of 512 tokens, or decode steps at position 256, for 8 seconds.
void run_for_profiler(const Model& model, const std::string& phase);

}  // namespace llm::bench
