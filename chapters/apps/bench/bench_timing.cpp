#include "chapters/apps/bench/bench_timing.hpp"

#include <algorithm>

#include <benchmark/benchmark.h>

#include "common/system/timer.hpp"

namespace llm::bench {
namespace {

class ProgressReporter : public benchmark::BenchmarkReporter {
 public:
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>& runs) override {
        show_progress(runs[0].run_name.function_name);
    }
};

// FLOPs or bytes per second that the machine can reach at this moment: the fastest of three
// runs. 0 for a benchmark without work.
double measure_limit(const Benchmark& row, RooflineBenchmark& machine,
                     BenchmarkResults& results) {
    if (row.flops > 0) {
        const double seconds =
            std::min(fastest_seconds(3, [&] { machine.multiply_on_all_cores(); }),
                     fastest_seconds(3, [&] { machine.multiply_with_blas_threads(); }));
        results.peaks.push_back(RooflineBenchmark::flops / seconds / 1e9);
        return RooflineBenchmark::flops / seconds;
    }
    if (row.bytes > 0) {
        const double seconds = fastest_seconds(3, [&] { machine.read_memory(); });
        results.bandwidths.push_back(RooflineBenchmark::bytes / seconds / 1e9);
        return RooflineBenchmark::bytes / seconds;
    }
    return 0;
}

// One repetition. Google Benchmark chooses the number of calls.
void run_repetition(const Benchmark& row, RooflineBenchmark& machine, BenchmarkResults& results,
                    benchmark::State& state) {
    const double limit = measure_limit(row, machine, results);
    BenchmarkResults::Calls& calls = results.calls[row.name];
    for ([[maybe_unused]] auto _ : state) {
        const double seconds = fastest_seconds(1, row.function);
        state.SetIterationTime(seconds);
        calls.seconds.push_back(seconds);
        const double work = std::max(row.flops, row.bytes);
        if (limit > 0) calls.percentages.push_back(100 * work / seconds / limit);
    }
}

}  // namespace

double median(std::vector<double> numbers) {
    require(!numbers.empty(), "median: there are no numbers");
    std::sort(numbers.begin(), numbers.end());
    const std::size_t half = numbers.size() / 2;
    return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

double BenchmarkResults::seconds(const std::string& name) const {
    return median(calls.at(name).seconds);
}

void run_benchmarks(const std::vector<Benchmark>& benchmarks, int repetitions,
                    BenchmarkResults& results) {
    RooflineBenchmark machine;
    benchmark::ClearRegisteredBenchmarks();
    for (const Benchmark& row : benchmarks)
        benchmark::RegisterBenchmark(
            row.name.c_str(),
            [&](benchmark::State& state) { run_repetition(row, machine, results, state); })
            ->UseManualTime()
            ->MinTime(repetitions == 1 ? 0.001 : 0.1)
            ->Repetitions(repetitions);
    ProgressReporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    show_progress("");
}

TableRow result_row(const Benchmark& benchmark, const BenchmarkResults& results) {
    const bool compute_bound = benchmark.flops > 0;
    const double seconds = results.seconds(benchmark.name);
    const double speed = (compute_bound ? benchmark.flops : benchmark.bytes) / seconds / 1e9;
    return {benchmark.name, fixed(1000 * seconds, 3),
            fixed(speed, 1) + (compute_bound ? " GFLOP/s" : " GB/s"),
            fixed(median(results.calls.at(benchmark.name).percentages), 0)};
}

void show_roofline_of(const BenchmarkResults& results) {
    show("roofline (median)", fixed(median(results.peaks), 1) + " GFLOP/s, " +
                                  fixed(median(results.bandwidths), 1) + " GB/s");
}

}  // namespace llm::bench
