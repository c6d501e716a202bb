// ./learn bench: timing of functions and comparison with the roofline.
#pragma once

#include <functional>
#include <map>

#include "chapters/15_fast/roofline.hpp"
#include "common/output/show.hpp"

namespace llm {

// A function to be timed, and the minimum work that it requires: FLOPs if it is compute-bound,
// bytes if it is memory-bound.
struct Benchmark {
    std::string name;
    std::function<void()> function;
    double flops = 0, bytes = 0;
};

// Seconds of the fastest repetition of each, by name, and the roofline measured between them.
struct BenchmarkResults {
    std::map<std::string, double> seconds;
    Roofline roofline;
};

// The repetitions of all benchmarks are interleaved at random, so that the load of other
// programs affects all of them.
BenchmarkResults run_benchmarks(std::vector<Benchmark> benchmarks, int repetitions);

// A row of a table: milliseconds, speed, and percent of the peak or of the bandwidth.
TableRow result_row(const Benchmark& benchmark, const BenchmarkResults& results);
void show_roofline_of(const BenchmarkResults& results);

// bench_layer.cpp: the parts of a layer, at 512 tokens.
void benchmark_layer(Generator& generator, int repetitions);

}  // namespace llm
