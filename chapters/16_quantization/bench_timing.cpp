#include "chapters/16_quantization/bench_timing.hpp"

#include <benchmark/benchmark.h>

namespace llm {
namespace {

// Collects the fastest repetition of each benchmark.
class FastestReporter : public benchmark::BenchmarkReporter {
 public:
    std::map<std::string, double> seconds;

    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>& runs) override {
        for (const Run& run : runs) {
            if (run.run_type != Run::RT_Iteration) continue;  // an aggregate, such as the mean
            const double time = run.real_accumulated_time / double(run.iterations);
            const std::string name = run.run_name.function_name;
            const auto [found, is_new] = seconds.emplace(name, time);
            if (!is_new) found->second = std::min(found->second, time);
        }
        show_progress(runs[0].run_name.function_name);
    }
};

}  // namespace

BenchmarkResults run_benchmarks(std::vector<Benchmark> benchmarks, int repetitions) {
    RooflineBenchmark limit;
    benchmarks.push_back({"one core", [&] { limit.multiply_on_one_core(); }});
    benchmarks.push_back({"all cores", [&] { limit.multiply_on_all_cores(); }});
    benchmarks.push_back({"BLAS threads", [&] { limit.multiply_with_blas_threads(); }});
    benchmarks.push_back({"reading", [&] { limit.read_memory(); }});
    benchmark::ClearRegisteredBenchmarks();
    for (const Benchmark& row : benchmarks)
        benchmark::RegisterBenchmark(row.name.c_str(),
                                     [&row](benchmark::State& state) {
                                         for ([[maybe_unused]] auto _ : state) row.function();
                                     })
            ->UseRealTime()
            ->MinTime(repetitions == 1 ? 0.001 : 0.1)
            ->Repetitions(repetitions);
    FastestReporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    show_progress("");
    std::map<std::string, double>& seconds = reporter.seconds;
    const double all_cores = std::min(seconds["all cores"], seconds["BLAS threads"]);
    return {seconds,
            {RooflineBenchmark::flops / seconds["one core"] / 1e9,
             RooflineBenchmark::flops / all_cores / 1e9,
             RooflineBenchmark::bytes / seconds["reading"] / 1e9}};
}

TableRow result_row(const Benchmark& benchmark, const BenchmarkResults& results) {
    const bool compute_bound = benchmark.flops > 0;
    const double seconds = results.seconds.at(benchmark.name);
    const double speed = (compute_bound ? benchmark.flops : benchmark.bytes) / seconds / 1e9;
    const double limit = compute_bound ? results.roofline.peak : results.roofline.bandwidth;
    return {benchmark.name, fixed(1000 * seconds, 3),
            fixed(speed, 1) + (compute_bound ? " GFLOP/s" : " GB/s"),
            fixed(100 * speed / limit, 0)};
}

void show_roofline_of(const BenchmarkResults& results) {
    show("roofline", fixed(results.roofline.peak, 1) + " GFLOP/s, " +
                         fixed(results.roofline.bandwidth, 1) + " GB/s");
}

}  // namespace llm
