#include <cstdlib>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/apps/bench/bench_rivals.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"

namespace llm::bench {
namespace {

constexpr std::size_t num_tokens = 200;
constexpr std::array dtypes = {DType::float32, DType::q8_0};

// A model with one of these dtypes, and the other programs that run it.
struct SmallModel {
    std::string name;
    FastModel model;
    RunState state;
    Rival llama2c, llama_cpp;
};

// 200 tokens, one at a time, from an empty cache.
void decode_sequence(SmallModel& small) {
    small.state.seq_len = 0;
    for (std::size_t i = 0; i < num_tokens; ++i) {
        const Id id = static_cast<Id>(i * 7919 % 512);
        compute_logits(small.model, {&id, 1}, small.state);
    }
}

// llama2.c's norms have this epsilon in all models.
void set_eps_of_llama2c(Model& model) {
    for (PreNormBlock& layer : model.layers)
        layer.attention_norm.eps = layer.ffn_norm.eps = Real(1e-5);
    model.norm.eps = Real(1e-5);
}

void add_models(const std::string& name, const std::string& path,
                const std::string& tokenizer_path, bool with_rivals,
                std::vector<SmallModel>& models) {
    Model model = models::load_model(path);
    set_eps_of_llama2c(model);
    const Tokenizer tokenizer =
        models::load_tokenizer_of_model(path, tokenizer_path, model.config.vocab_size);
    for (const DType dtype : dtypes) {
        const FastModel fast = quantize_model(model, dtype);
        models.push_back({name + ", " + std::string(to_text(dtype)),
                          fast,
                          make_run_state(fast, num_tokens),
                          {},
                          {}});
        SmallModel& small = models.back();
        decode_sequence(small);
        if (!with_rivals) continue;
        if (dtype == DType::float32)
            small.llama2c = make_llama2c_rival(model, view_of(small.state.logits)[0]);
        else
            small.llama2c = models[models.size() - 2].llama2c;
        small.llama_cpp = make_llama_cpp_rival(model, tokenizer, dtype, "sequence");
    }
}

void show_small_models(const std::vector<SmallModel>& models, const BenchmarkResults& results) {
    std::vector<TableRow> table;
    for (const SmallModel& small : models) {
        const double seconds = results.seconds(small.name);
        table.push_back({small.name, fixed(double(num_tokens) / seconds, 0),
                         small.llama2c.speedup("200 tokens", seconds),
                         small.llama_cpp.speedup("200 tokens", seconds)});
    }
    show_table({"model", "tokens per second", "llama2.c", "llama.cpp"}, table);
    say("llama2.c (float32), llama.cpp: their time, divided by ours");
}

}  // namespace

void benchmark_small_models(int repetitions) {
    step("Small models: 200 tokens, one at a time");
    std::vector<SmallModel> models;
    add_models("king_james", asset("king_james"), "", repetitions > 1, models);
    if (const char* file = std::getenv("STORIES260K"))
        add_models("stories260K", file,
                   std::filesystem::path(file).replace_filename("tok512.bin"), repetitions > 1,
                   models);
    std::vector<Benchmark> benchmarks;
    for (SmallModel& small : models)
        benchmarks.push_back({small.name, [&small] { decode_sequence(small); }});

    BenchmarkResults results;
    for (int round = 0; round < (repetitions + 1) / 2; ++round) {
        run_benchmarks(benchmarks, std::min(repetitions, 2), results);
        for (SmallModel& small : models) {
            small.llama2c.run();
            small.llama_cpp.run();
        }
    }
    show_small_models(models, results);
}

}  // namespace llm::bench
