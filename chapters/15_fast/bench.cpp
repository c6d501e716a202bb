// ./learn bench: the times of the fast model, in shares of what the machine can do at best.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/15_fast/matmul.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/options.hpp"
#include "common/system/parallel.hpp"
#include "common/output/plot.hpp"
#include "common/files/safetensors.hpp"
#include "common/output/show.hpp"

using namespace llm;

// Something to be timed, and what it needs at least.
struct Row {
    std::string name;
    std::function<void()> work;
    double operations = 0, bytes = 0;
};

// Seconds of the fastest of several repetitions, by name.
class Fastest : public benchmark::BenchmarkReporter {
 public:
    std::map<std::string, double> seconds;

    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>& runs) override {
        for (const Run& run : runs) {
            if (run.run_type != Run::RT_Iteration) continue;  // a mean or the like
            const double time = run.real_accumulated_time / double(run.iterations);
            const std::string name = run.run_name.function_name;
            const auto [found, is_new] = seconds.emplace(name, time);
            if (!is_new) found->second = std::min(found->second, time);
        }
        show_progress(runs[0].run_name.function_name);
    }
};

int repetitions = 6;

// The rows' seconds, and what the machine did at best between them.
struct Timing {
    std::map<std::string, double> seconds;
    Limits limits;
};

// The repetitions of all rows are mixed: what disturbs the machine for a while disturbs all.
Timing time_all(std::vector<Row> rows) {
    LimitWork limit;
    rows.push_back({"one core", [&] { limit.multiply_on_one_core(); }});
    rows.push_back({"all cores", [&] { limit.multiply_on_all_cores(); }});
    rows.push_back({"together", [&] { limit.multiply_together(); }});
    rows.push_back({"reading", [&] { limit.read(); }});
    benchmark::ClearRegisteredBenchmarks();
    for (const Row& row : rows)
        benchmark::RegisterBenchmark(row.name.c_str(),
                                     [&row](benchmark::State& state) {
                                         for ([[maybe_unused]] auto turn : state) row.work();
                                     })
            ->UseRealTime()
            ->MinTime(repetitions == 1 ? 0.001 : 0.1)
            ->Repetitions(repetitions);
    Fastest fastest;
    benchmark::RunSpecifiedBenchmarks(&fastest);
    show_progress("");
    std::map<std::string, double>& seconds = fastest.seconds;
    return {seconds,
            {LimitWork::operations / seconds["one core"] / 1e9,
             LimitWork::operations / std::min(seconds["all cores"], seconds["together"]) / 1e9,
             LimitWork::bytes / seconds["reading"] / 1e9}};
}

// Time, speed, and its share of the limit that stands in the way: arithmetic or memory.
TableRow measured(const Row& row, double seconds, const Limits& limits) {
    const bool computes = row.operations > 0;
    const double speed = (computes ? row.operations : row.bytes) / seconds / 1e9;
    const double limit = computes ? limits.all_cores : limits.reading;
    return {row.name, fixed(1000 * seconds, 3),
            fixed(speed, 1) + (computes ? " GFLOP/s" : " GB/s"), fixed(100 * speed / limit, 0)};
}

void show_limits(const Limits& limits) {
    show("at best meanwhile",
         fixed(limits.all_cores, 1) + " GFLOP/s, " + fixed(limits.reading, 1) + " GB/s");
}

// Token ids that never come twice.
std::vector<Id> some_ids(std::size_t count) {
    std::vector<Id> ids;
    for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<Id>(i * 7919 % 32000));
    return ids;
}

// What Debian's PyTorch takes for the same, with its best number of threads; empty, and why, if
// there is none.
std::map<std::string, double> times_of_pytorch(const Model& model, const Matrix& logits) {
    if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0) {
        say("PyTorch: /usr/bin/python3 cannot import torch");
        return {};
    }
    const std::string folder = model_folder("bench"), result = folder + "/pytorch.json";
    export_model(model, folder);
    write_safetensors(
        folder + "/logits",
        {{"logits", {logits.shape(0), logits.shape(1)}, {logits.data(), logits.size()}}});
    std::map<std::string, double> times;
    for (const char* threads : {"", "OPENBLAS_NUM_THREADS=1 "}) {
        const std::string command = threads +
                                    std::string("/usr/bin/python3 '" LLM_TESTS_FOLDER) +
                                    "/time_inference.py' '" + folder + "' > '" + result + "'";
        if (std::system(command.c_str()) != 0) {
            say("PyTorch: tests/time_inference.py failed");
            return {};
        }
        const JsonFile json(result);
        const double difference = json.number("largest difference");
        show("PyTorch's logits differ by at most", difference);
        if (difference > 1e-3) return {};
        for (const char* name :
             {"prefill 512", "decode at 0", "decode at 256", "decode at 1024"}) {
            const auto [found, is_new] = times.emplace(name, json.number(name));
            if (!is_new) found->second = std::min(found->second, json.number(name));
        }
    }
    return times;
}

// Parts of a layer, at 512 tokens, as the fast model computes them.
struct Parts {
    static constexpr std::size_t T = 512, C = 384, F = 1536, H = 6, D = 64;
    Matrix stream, outputs, qkv, context, gates, gate_up, scores;
    Matrix qkv_weight, head_weight, logits;
    RotaryTable table;
    Vector norm = xt::ones<Real>({C});

    explicit Parts(Generator& generator)
        : stream(randn({T, C}, generator)),
          outputs(randn({T, 3 * C}, generator)),
          qkv(randn({T, 3 * C}, generator)),
          context(xt::zeros<Real>({T, C})),
          gates(randn({T, 2 * F}, generator)),
          gate_up(gates),
          scores(randn({T, T}, generator)),
          qkv_weight(randn({3 * C, C}, generator)),
          head_weight(uniform({32000, C}, -1, 1, generator)),
          logits(xt::zeros<Real>({T, std::size_t{32000}})),
          table(make_rotary_table(inverse_frequencies(D, 10000), T)) {}

    // Work on some of the tokens, for every core.
    template <class Function>
    static std::function<void()> on_all_cores(const Function& function) {
        return [function] {
            in_parallel(num_cores(), [&](std::size_t core) {
                const std::size_t begin = core * T / num_cores();
                function(begin, (core + 1) * T / num_cores() - begin);
            });
        };
    }
    template <class Function>
    static std::function<void()> for_each_token(const Function& function) {
        return on_all_cores([function](std::size_t begin, std::size_t count) {
            for (std::size_t t = begin; t < begin + count; ++t) function(t);
        });
    }
    std::function<void()> product(const Matrix& weight, Matrix& result) {
        return on_all_cores([&](std::size_t begin, std::size_t count) {
            multiply_rows(rows_of(stream).rows(begin, count), rows_of(weight),
                          rows_of(result).rows(begin, count));
        });
    }
    void attend(std::size_t i) {
        const std::size_t head = i % H, begin = T - (i / H + 1) * tile_size;
        const auto part = [&](std::size_t which) {
            return rows_of(qkv).columns(which * C + head * D, D);
        };
        attend_blockwise(part(0).rows(begin, tile_size), part(1), part(2), begin,
                         rows_of(context).rows(begin, tile_size).columns(head * D, D));
    }

    std::vector<Row> rows() {
        const double numbers = double(T) * C, wide = double(T) * F;
        return {{"linear: q, k, v", product(qkv_weight, outputs), 2 * 3 * numbers * C},
                {"head", product(head_weight, logits), 2 * numbers * 32000},
                {"attention",
                 [this] { in_parallel(H * T / tile_size, [&](std::size_t i) { attend(i); }); },
                 4 * double(H * D) * double(T) * double(T + 1) / 2},
                {"softmax", for_each_token([this](std::size_t t) {
                     const Real most = largest(rows_of(scores)[t]);
                     exponentials(rows_of(scores)[t], 1, most);
                 }),
                 0, 8 * double(T) * double(T)},
                {"RoPE", for_each_token([this](std::size_t t) {
                     for (std::size_t begin = 0; begin < 2 * C; begin += D)
                         rotate_head(rows_of(outputs)[t].subspan(begin, D),
                                     rows_of(std::as_const(table.cos))[t],
                                     rows_of(std::as_const(table.sin))[t]);
                 }),
                 0, 8 * 2 * numbers},
                {"RMSNorm", for_each_token([this](std::size_t t) {
                     normalize(rows_of(stream)[t], {norm.data(), C}, Real(1e-6),
                               rows_of(stream)[t]);
                 }),
                 0, 8 * numbers},
                {"SwiGLU's gate, copied", for_each_token([this](std::size_t t) {
                     const std::span<Real> row = rows_of(gate_up)[t];
                     std::ranges::copy(rows_of(gates)[t], row.begin());
                     apply_gate(row.first(F), row.subspan(F));
                 }),
                 0, 28 * wide}};
    }
};

void parts_of_it(Generator& generator) {
    step("Parts of it, at 512 tokens");
    Parts parts(generator);
    const std::vector<Row> rows = parts.rows();
    auto [seconds, limits] = time_all(rows);
    std::vector<TableRow> table;
    for (const Row& row : rows) table.push_back(measured(row, seconds[row.name], limits));
    show_table({"what", "ms", "speed", "% of the limit"}, table);
    say("More than 100 % of reading memory: it lies in a cache.");
    show_limits(limits);
}

// The law a x + b x² that fits best; errors count in proportion to y.
std::array<double, 2> fit(const std::vector<double>& x, const std::vector<double>& y) {
    double xx = 0, xxx = 0, xxxx = 0, xy = 0, xxy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        // Each point counts in proportion to its own size.
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

// What a text costs that grows: seconds and megabytes for so many tokens at once, milliseconds
// for one token at a position.
struct Growth {
    std::vector<double> lengths, seconds, megabytes;
    std::vector<double> positions, milliseconds;
};

Growth measure_growth(const FastModel& model) {
    Growth growth;
    const std::vector<Id> ids = some_ids(2048);
    std::vector<FastState> states;
    std::vector<Row> rows;
    for (std::size_t length = 64; length <= ids.size(); length *= 2) {
        growth.lengths.push_back(double(length));
        states.push_back(make_state(model, length));
        rows.push_back({"prefill " + to_text(length), [&, length, i = states.size() - 1] {
                            states[i].length = 0;
                            compute_logits(model, std::span(ids).first(length), states[i]);
                        }});
    }
    for (std::size_t position = 0; position < ids.size(); position += 292) {
        growth.positions.push_back(double(position));
        rows.push_back({"decode at " + to_text(position), [&, position] {
                            states.back().length = position;
                            compute_logits(model, std::span(ids).first(1), states.back());
                        }});
    }
    auto seconds = time_all(rows).seconds;
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (i < states.size())
            growth.seconds.push_back(seconds[rows[i].name]);
        else
            growth.milliseconds.push_back(1000 * seconds[rows[i].name]);
    for (const FastState& state : states)
        growth.megabytes.push_back(double(state.memory()) / 1e6);
    return growth;
}

void growth(const FastModel& model) {
    step("Growth: the whole model, float32");
    auto [lengths, seconds, megabytes, positions, milliseconds] = measure_growth(model);
    const auto [linear, quadratic] = fit(lengths, seconds);
    std::vector<double> law;
    std::vector<TableRow> table;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        law.push_back(linear * lengths[i] + quadratic * lengths[i] * lengths[i]);
        table.push_back({fixed(lengths[i], 0), fixed(1000 * seconds[i], 1),
                         fixed(1000 * law[i], 1), fixed(megabytes[i], 1)});
    }
    show_table({"tokens", "last logits, ms", "the law", "cache and workspace, MB"}, table);
    say("the law: " + fixed(1e3 * linear, 3) + " ms a token and " + fixed(1e9 * quadratic, 0) +
        " ns a pair of tokens");
    table.clear();
    for (std::size_t i = 0; i < positions.size(); ++i)
        table.push_back({fixed(positions[i], 0), fixed(milliseconds[i], 2)});
    show_table({"position", "decode, ms"}, table);
    for (std::vector<double>* numbers : {&lengths, &positions})
        for (double& number : *numbers) number /= 1000;
    plot("growth",
         {LinePlot{"Prefill",
                   "thousand tokens",
                   "seconds",
                   {{"measured", lengths, seconds}, {"a T + b T²", lengths, law}}},
          LinePlot{
              "Memory", "thousand tokens", "MB", {{"cache and workspace", lengths, megabytes}}},
          LinePlot{"Decode",
                   "position in thousands",
                   "ms per token",
                   {{"measured", positions, milliseconds}}}});
}

void whole_model(const Model& model) {
    step("The whole model: Mini-LLM's sizes, drawn weights");
    const std::vector<Id> ids = some_ids(1025);
    std::vector<FastModel> models;
    std::vector<FastState> states;
    for (const Weights kind : all_weights) {
        models.push_back(make_fast(model, kind));
        states.push_back(make_state(models.back(), ids.size()));
        compute_logits(models.back(), ids, states.back());
    }
    std::vector<Row> rows;
    for (std::size_t k = 0; k < models.size(); ++k) {
        const auto run = [&, k](std::size_t position, std::size_t count, LogitsOf which) {
            states[k].length = position;
            compute_logits(models[k], std::span(ids).subspan(position, count), states[k],
                           which);
        };
        rows.push_back({"prefill 512, " + name_of(all_weights[k]),
                        [run] { run(0, 512, LogitsOf::all); },
                        operations_of_prefill(model.config, 512)});
        for (const std::size_t position : {0u, 256u, 1024u})
            rows.push_back(
                {"decode at " + to_text(position) + ", " + name_of(all_weights[k]),
                 [run, position] { run(position, 1, LogitsOf::last); }, 0,
                 double(models[k].weight_memory() + cache_bytes(model.config, position + 1))});
    }
    auto [seconds, limits] = time_all(rows);

    states[0].length = 0;
    compute_logits(models[0], std::span(ids).first(512), states[0], LogitsOf::all);
    std::map<std::string, double> theirs;
    if (repetitions > 1) theirs = times_of_pytorch(model, states[0].logits);
    std::vector<TableRow> table;
    for (const Row& row : rows) {
        table.push_back(measured(row, seconds[row.name], limits));
        const auto found = theirs.find(row.name.substr(0, row.name.find(',')));
        table.back().push_back(
            found == theirs.end() ? "-" : fixed(found->second / seconds[row.name], 1));
    }
    show_table({"what", "ms", "speed", "% of the limit", "PyTorch takes"}, table);
    show_limits(limits);
    growth(models[0]);
}

int main(int argc, char** argv) {
    bool brief_run = false;
    Options options("bench", "How fast is it?");
    options.flag("--short", brief_run, "each thing once: to see that it works");
    return options.run(argc, argv, [&] {
        if (brief_run) repetitions = 1;
        std::string name = "bench", mixed = "--benchmark_enable_random_interleaving=true";
        std::array arguments = {name.data(), mixed.data()};
        int count = arguments.size();
        benchmark::Initialize(&count, arguments.data());

        Generator generator(options.seed());
        whole_model(make_model(ModelConfig(), generator));
        parts_of_it(generator);
    });
}
