// ./learn bench: run times of the fast model, compared with the roofline, PyTorch and
// llama.cpp.
#include <benchmark/benchmark.h>

#include "chapters/15_fast/inference.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/apps/bench/bench_rivals.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "common/output/plot.hpp"
#include "common/system/options.hpp"

using namespace llm;
using namespace llm::bench;

constexpr std::array dtypes = {DType::float32, DType::bfloat16, DType::q8_0, DType::q4_0};

// The KV cache is float16, as in llama.cpp, unless the weights are float32.
DType cache_dtype(DType weights) {
    return weights == DType::float32 ? DType::float32 : DType::float16;
}

// Distinct token ids.
std::vector<Id> make_ids(std::size_t count) {
    std::vector<Id> ids;
    for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<Id>(i * 7919 % 32000));
    return ids;
}

// The least-squares fit of y = a x + b x², weighted by 1 / y²: it minimizes relative errors.
std::array<double, 2> fit(const std::vector<double>& x, const std::vector<double>& y) {
    double xx = 0, xxx = 0, xxxx = 0, xy = 0, xxy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double weight = 1 / (y[i] * y[i]), square = x[i] * x[i];
        xx += weight * square;
        xxx += weight * square * x[i];
        xxxx += weight * square * square;
        xy += weight * x[i] * y[i];
        xxy += weight * square * y[i];
    }
    const double determinant = xx * xxxx - xxx * xxx;
    return {(xy * xxxx - xxy * xxx) / determinant, (xx * xxy - xxx * xy) / determinant};
}

// Time and memory as functions of the sequence length.
struct Growth {
    std::vector<double> lengths, seconds, megabytes;  // of a prefill of so many tokens
    std::vector<double> positions, milliseconds;      // of a decode step at a position
};

Growth measure_growth(const FastModel& model, int repetitions) {
    Growth growth;
    const std::vector<Id> ids = make_ids(2048);
    std::vector<RunState> states;
    std::vector<Benchmark> benchmarks;
    for (std::size_t length = 64; length <= ids.size(); length *= 2) {
        growth.lengths.push_back(double(length));
        states.push_back(make_run_state(model, length));
        benchmarks.push_back({"prefill " + to_text(length), [&, length, i = states.size() - 1] {
                                  states[i].seq_len = 0;
                                  compute_logits(model, std::span(ids).first(length),
                                                 states[i]);
                              }});
    }
    for (std::size_t position = 0; position < ids.size(); position += 292) {
        growth.positions.push_back(double(position));
        benchmarks.push_back({"decode at " + to_text(position), [&, position] {
                                  states.back().seq_len = position;
                                  compute_logits(model, std::span(ids).first(1), states.back());
                              }});
    }
    BenchmarkResults results;
    run_benchmarks(benchmarks, repetitions, results);
    for (std::size_t i = 0; i < benchmarks.size(); ++i) {
        const double seconds = results.seconds(benchmarks[i].name);
        if (i < states.size())
            growth.seconds.push_back(seconds);
        else
            growth.milliseconds.push_back(1000 * seconds);
    }
    for (const RunState& state : states)
        growth.megabytes.push_back(double(state.nbytes()) / 1e6);
    return growth;
}

void plot_growth(Growth growth, const std::vector<double>& fitted) {
    for (std::vector<double>* numbers : {&growth.lengths, &growth.positions})
        for (double& number : *numbers) number /= 1000;
    const auto& [lengths, seconds, megabytes, positions, milliseconds] = growth;
    plot("growth", {LinePlot{"Prefill",
                             "thousand tokens",
                             "seconds",
                             {{"measured", lengths, seconds}, {"a T + b T²", lengths, fitted}}},
                    LinePlot{"Memory",
                             "thousand tokens",
                             "MB",
                             {{"KV cache and workspace", lengths, megabytes}}},
                    LinePlot{"Decode",
                             "position (thousands)",
                             "ms per token",
                             {{"measured", positions, milliseconds}}}});
}

void benchmark_growth(const FastModel& model, int repetitions) {
    step("Scaling with the sequence length: the whole model, float32");
    const Growth growth = measure_growth(model, repetitions);
    const auto [linear, quadratic] = fit(growth.lengths, growth.seconds);
    std::vector<double> fitted;
    std::vector<TableRow> table;
    for (std::size_t i = 0; i < growth.lengths.size(); ++i) {
        const double length = growth.lengths[i];
        fitted.push_back(linear * length + quadratic * length * length);
        table.push_back({fixed(length, 0), fixed(1000 * growth.seconds[i], 1),
                         fixed(1000 * fitted[i], 1), fixed(growth.megabytes[i], 1)});
    }
    show_table({"tokens", "prefill, ms", "fit, ms", "KV cache and workspace, MB"}, table);
    say("fit: " + fixed(1e3 * linear, 3) + " ms per token and " + fixed(1e9 * quadratic, 0) +
        " ns per token squared");
    table.clear();
    for (std::size_t i = 0; i < growth.positions.size(); ++i)
        table.push_back({fixed(growth.positions[i], 0), fixed(growth.milliseconds[i], 2)});
    show_table({"position", "decode, ms"}, table);
    plot_growth(growth, fitted);
}

// Prefill and decode of a model whose weights have this dtype.
std::vector<Benchmark> model_benchmarks(const FastModel& model, const std::vector<Id>& ids,
                                        RunState& state) {
    const std::string name = ", " + std::string(to_text(model.embed_tokens.dtype()));
    const auto run = [&](std::size_t position, std::size_t count, LogitsToKeep keep) {
        state.seq_len = position;
        compute_logits(model, std::span(ids).subspan(position, count), state, keep);
    };
    std::vector<Benchmark> benchmarks = {
        {"prefill 512" + name, [run] { run(0, 512, LogitsToKeep::last); },
         static_cast<double>(prefill_flops(model.config, 512, LogitsToKeep::last))}};
    for (const std::size_t position : {0u, 256u, 1024u})
        benchmarks.push_back({"decode at " + to_text(position) + name,
                              [run, position] { run(position, 1, LogitsToKeep::last); }, 0,
                              double(model.weight_bytes() +
                                     kv_cache_bytes(model.config, position + 1,
                                                    cache_dtype(model.embed_tokens.dtype())))});
    return benchmarks;
}

// The time of a few new tokens, beside a bound: that of one token, which reads all weights, or
// that of so many tokens in a long prefill, whichever is longer.
void benchmark_few_tokens(const std::vector<FastModel>& models, const std::vector<Id>& ids,
                          std::vector<RunState>& states, int repetitions) {
    step("A few new tokens at once");
    const std::vector<std::size_t> counts = {1, 2, 3, 4, 6, 8, 12, 16, 512};
    const auto name_of = [](std::size_t k, std::size_t count) {
        return to_text(count) + ", " + std::string(to_text(dtypes[k]));
    };
    std::vector<Benchmark> benchmarks;
    for (std::size_t k = 0; k < models.size(); ++k)
        for (const std::size_t count : counts)
            benchmarks.push_back({name_of(k, count), [&, k, count] {
                                      states[k].seq_len = 0;
                                      compute_logits(models[k], std::span(ids).first(count),
                                                     states[k]);
                                  }});
    BenchmarkResults results;
    run_benchmarks(benchmarks, repetitions, results);
    TableRow headings = {"tokens"};
    for (const DType dtype : dtypes) {
        headings.push_back(std::string(to_text(dtype)) + ", ms");
        headings.push_back("/ bound");
    }
    std::vector<TableRow> table;
    for (const std::size_t count : counts) {
        table.push_back({to_text(count)});
        for (std::size_t k = 0; k < models.size(); ++k) {
            const double time = results.seconds(name_of(k, count));
            const double bound =
                std::max(results.seconds(name_of(k, 1)),
                         double(count) * results.seconds(name_of(k, 512)) / 512);
            table.back().push_back(fixed(1000 * time, 2));
            table.back().push_back(fixed(time / bound, 2));
        }
    }
    show_table(headings, table);
}

// PyTorch computes in float32; llama.cpp's weights have our dtype.
struct Rivals {
    Rival pytorch;
    std::array<Rival, dtypes.size()> llama_cpp;
};

Rivals make_rivals(const Model& model, const Matrix& logits) {  // (T, V)
    Rivals rivals{make_pytorch_rival(model, logits), {}};
    // Its tokens do not matter here: those that are missing get a name.
    const Tokenizer tokenizer = models::load_tokenizer(asset("king_james/tokenizer.json"));
    for (std::size_t k = 0; k < dtypes.size(); ++k)
        rivals.llama_cpp[k] = make_llama_cpp_rival(model, tokenizer, dtypes[k], "steps");
    return rivals;
}

// The benchmarks of all dtypes, equally many for each.
void show_model_table(const std::vector<Benchmark>& benchmarks, const BenchmarkResults& results,
                      const Rivals& rivals) {
    const std::size_t num_of_dtype = benchmarks.size() / dtypes.size();
    std::vector<TableRow> table;
    for (std::size_t i = 0; i < benchmarks.size(); ++i) {
        const std::string& name = benchmarks[i].name;
        const std::string name_of_all = name.substr(0, name.find(','));  // without the dtype
        const double seconds = results.seconds(name);
        table.push_back(result_row(benchmarks[i], results));
        for (const Rival& rival : {rivals.pytorch, rivals.llama_cpp[i / num_of_dtype]})
            table.back().push_back(rival.speedup(name_of_all, seconds));
    }
    show_table({"benchmark", "ms", "speed", "% of roofline", "PyTorch", "llama.cpp"}, table);
    say("PyTorch, llama.cpp: their time, divided by ours");
    show_roofline_of(results);
}

// Our runs and those of the other programs alternate.
BenchmarkResults run_in_turn(const std::vector<Benchmark>& benchmarks, Rivals& rivals,
                             int repetitions) {
    BenchmarkResults results;
    for (int round = 0; round < (repetitions + 1) / 2; ++round) {
        run_benchmarks(benchmarks, std::min(repetitions, 2), results);
        rivals.pytorch.run();
        for (Rival& rival : rivals.llama_cpp) rival.run();
    }
    return results;
}

void benchmark_model(const Model& model, int repetitions) {
    step("The whole model: Mini-LLM's sizes, random weights");
    const std::vector<Id> ids = make_ids(1025);
    std::vector<FastModel> models;
    std::vector<RunState> states;
    for (const DType dtype : dtypes) models.push_back(quantize_model(model, dtype));
    for (std::size_t k = 0; k < models.size(); ++k)
        states.push_back(make_run_state(models[k], ids.size(), cache_dtype(dtypes[k])));
    std::vector<Benchmark> benchmarks;
    for (std::size_t k = 0; k < models.size(); ++k)
        std::ranges::move(model_benchmarks(models[k], ids, states[k]),
                          std::back_inserter(benchmarks));

    compute_logits(models[0], std::span(ids).first(512), states[0], LogitsToKeep::all);
    Rivals rivals;
    if (repetitions > 1) rivals = make_rivals(model, states[0].logits);
    for (std::size_t k = 0; k < models.size(); ++k) {
        states[k].seq_len = 0;
        compute_logits(models[k], ids, states[k]);
    }

    show_model_table(benchmarks, run_in_turn(benchmarks, rivals, repetitions), rivals);
    benchmark_few_tokens(models, ids, states, repetitions);
    benchmark_growth(models[0], repetitions);
}

int main(int argc, char** argv) {
    bool is_short = false, only_linear_attention = false, only_serving = false,
         only_encoder = false;
    std::string loop = "none";
    Options options("bench", "How fast is it?");
    options.flag("--short", is_short, "run each benchmark once, to see that it works");
    options.choice("--loop", loop, {"none", "prefill", "decode"},
                   "only repeat this for 8 seconds, for a profiler");
    options.flag("--linear-attention", only_linear_attention, "only the heads of chapter 20");
    options.flag("--serving", only_serving, "only the requests of chapter 21");
    options.flag("--encoder", only_encoder, "only an encoder of ModernBERT-base's sizes");
    return options.run(argc, argv, [&] {
        Generator generator(options.seed());
        const Model model = make_model(mini_llm_config(), generator);
        if (loop != "none") return run_for_profiler(model, loop);
        const int repetitions = is_short ? 1 : 6;
        if (only_linear_attention) return benchmark_linear_attention(generator, 3);
        if (only_serving) return benchmark_serving(model, generator, repetitions);

        std::string name = "bench",
                    interleaving = "--benchmark_enable_random_interleaving=true";
        std::array arguments = {name.data(), interleaving.data()};
        int count = arguments.size();
        benchmark::Initialize(&count, arguments.data());
        if (only_encoder) {
            benchmark_encoder(generator, repetitions);
            return remove_files_of_rivals();
        }

        benchmark_model(model, repetitions);
        benchmark_layer(generator, repetitions);
        benchmark_integer_products(generator, repetitions);
        benchmark_small_models(repetitions);
        benchmark_encoder(generator, repetitions);
        benchmark_training(repetitions);
        benchmark_linear_attention(generator, repetitions);
        benchmark_serving(model, generator, repetitions);
        if (!is_short) benchmark_profile();
        remove_files_of_rivals();
    });
}
