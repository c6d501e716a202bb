// ./learn bench: many requests at once (chapter 21).
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/21_serving/engine.hpp"
#include "chapters/22_speculation/mtp_draft.hpp"
#include "chapters/apps/bench/bench_rivals.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/timer.hpp"

namespace llm::bench {
namespace {

// Requests with the times of their arrival, in seconds.
struct Arrivals {
    std::vector<GenerationRequest> requests;
    std::vector<double> times;  // empty: all at once
};

// What a run of all requests took.
struct Measured {
    double seconds = 0;
    std::size_t num_tokens = 0;               // new ones
    std::vector<double> first_token_seconds;  // from the arrival, sorted
    double used_share = 0;                    // of the slots of pages in use, mean of all steps

    double tokens_per_second() const { return double(num_tokens) / seconds; }
    double percentile(double share) const {
        return first_token_seconds.at(
            std::size_t(share * double(first_token_seconds.size() - 1) + 0.5));
    }
};

GenerationRequest random_request(std::size_t prompt_len, std::size_t max_new_tokens,
                                 Generator& generator) {
    GenerationRequest request;
    for (std::size_t t = 0; t < prompt_len; ++t)
        request.prompt_ids.push_back(Id(generator.next_32_bits() % 32000));
    request.config.max_new_tokens = max_new_tokens;
    request.config.sampling.temperature = 0;
    return request;
}

double used_share(const Scheduler& scheduler) {
    std::size_t num_cached = 0, num_slots = 0;
    for (const ScheduledSequence& sequence : scheduler.running) {
        num_cached += sequence.num_cached;
        num_slots += sequence.pages.size() * scheduler.pool.page_size();
    }
    return num_slots == 0 ? 1 : double(num_cached) / double(num_slots);
}

// Shows how many requests are finished.
Measured serve(const FastModel& model, const EngineConfig& config, Arrivals arrivals) {
    Engine engine(model, config);
    Measured measured;
    const std::size_t count = arrivals.requests.size();
    if (arrivals.times.empty()) arrivals.times.resize(count);
    std::vector<double> first(count, -1);
    std::vector<double> shares;
    std::size_t num_finished = 0;
    const double start = elapsed_seconds();
    for (std::size_t next = 0; next < count || !engine.idle();) {
        for (; next < count && arrivals.times[next] <= elapsed_seconds() - start; ++next) {
            arrivals.requests[next].on_token = [&, i = next](Id, std::span<const Real>) {
                if (first[i] < 0) first[i] = elapsed_seconds() - start - arrivals.times[i];
                ++measured.num_tokens;
            };
            engine.submit(arrivals.requests[next]);
        }
        if (engine.idle())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        else
            num_finished += engine.step().size();
        show_progress(to_text(num_finished) + " of " + to_text(count) + " requests");
        if (!engine.scheduler().running.empty())
            shares.push_back(used_share(engine.scheduler()));
    }
    measured.seconds = elapsed_seconds() - start;
    show_progress("");
    std::ranges::sort(first);
    measured.first_token_seconds = first;
    measured.used_share =
        std::accumulate(shares.begin(), shares.end(), 0.0) / double(shares.size());
    return measured;
}

EngineConfig engine_config(std::size_t max_sequences) {
    return {{max_sequences, 128}, 512, 16, DType::float16};
}

// The same 16 requests, with at most 1, 4 or 16 of them at a time; and in llama.cpp, 16
// sequences in one batch.
void benchmark_concurrency(const FastModel& model, Rival llama_cpp, Generator& generator,
                           int repetitions) {
    step("16 requests of 32 + 64 tokens, by how many are served at a time");
    Arrivals arrivals;
    for (int i = 0; i < 16; ++i) arrivals.requests.push_back(random_request(32, 64, generator));
    const std::vector<std::size_t> counts = {1, 4, 16};
    std::vector<std::vector<double>> speeds(counts.size());
    for (int i = 0; i < repetitions; ++i) {
        for (std::size_t k = 0; k < counts.size(); ++k)
            speeds[k].push_back(
                serve(model, engine_config(counts[k]), arrivals).tokens_per_second());
        llama_cpp.run();
    }
    std::vector<TableRow> rows;
    for (std::size_t k = 0; k < counts.size(); ++k)
        rows.push_back({to_text(counts[k]), fixed(median(speeds[k]), 0),
                        fixed(median(speeds[k]) / median(speeds[0]), 2), "-"});
    rows.back().back() = llama_cpp.speedup("16 requests", 16 * 64 / median(speeds.back()));
    show_table({"at a time", "tokens per second", "times as many", "llama.cpp"}, rows);
    say("llama.cpp: its time for 16 sequences in one batch, divided by ours");
}

// Requests of different lengths that arrive at random, at 80 % of what can be served.
void benchmark_arrivals(const FastModel& model, Generator& generator, std::size_t count) {
    step("Random arrivals at 80 % of capacity: seconds to the first token");
    Arrivals arrivals;
    for (std::size_t i = 0; i < count; ++i)
        arrivals.requests.push_back(random_request(64 + generator.next_32_bits() % 193,
                                                   16 + generator.next_32_bits() % 113,
                                                   generator));
    const double capacity = double(count) / serve(model, engine_config(16), arrivals).seconds;
    double time = 0;
    for (std::size_t i = 0; i < count; ++i) {
        time -= std::log(1 - double(generator.next_uniform())) / (0.8 * capacity);
        arrivals.times.push_back(time);
    }
    std::vector<TableRow> rows;
    for (const bool continuous : {false, true}) {
        EngineConfig config = engine_config(16);
        config.scheduler.continuous = continuous;
        const Measured measured = serve(model, config, arrivals);
        rows.push_back({continuous ? "continuous" : "static",
                        fixed(measured.percentile(0.5), 3), fixed(measured.percentile(0.99), 3),
                        fixed(measured.tokens_per_second(), 0),
                        fixed(100 * measured.used_share, 1)});
    }
    show_table({"batching", "p50", "p99", "tokens per second", "slots in use, %"}, rows);
}

// 16 requests that begin with the same tokens, after one that has computed them.
void benchmark_prefix(const FastModel& model, Generator& generator) {
    step("16 requests with a common prefix of 512 tokens and 16 of their own");
    const GenerationRequest prefix = random_request(512, 1, generator);
    Arrivals arrivals{{prefix}, {0}};
    for (int i = 0; i < 16; ++i) {
        GenerationRequest request = random_request(16, 8, generator);
        request.prompt_ids.insert(request.prompt_ids.begin(), prefix.prompt_ids.begin(),
                                  prefix.prompt_ids.end());
        arrivals.requests.push_back(request);
        arrivals.times.push_back(2);
    }
    std::vector<TableRow> rows;
    double without = 0;
    for (const bool prefix_cache : {false, true}) {
        EngineConfig config = engine_config(16);
        config.num_pages = 1024;
        config.scheduler.prefix_cache = prefix_cache;
        const double seconds = serve(model, config, arrivals).percentile(0.5);
        if (!prefix_cache) without = seconds;
        rows.push_back(
            {prefix_cache ? "yes" : "no", fixed(seconds, 3), fixed(without / seconds, 1)});
    }
    show_table({"prefix cache", "p50 of the first token, s", "times as fast"}, rows);
}

// The seconds of a greedy text with each K, which must be equal to the expected one.
constexpr std::array<std::size_t, 3> speculative_counts = {2, 3, 4};
using MakeDraft = std::function<std::unique_ptr<Proposer>(TargetSequence&)>;
std::vector<double> seconds_with_draft(const FastModel& model, const std::vector<Id>& prompt,
                                       const std::vector<Id>& expected,  // with the prompt
                                       const MakeDraft& make_draft) {
    GenerationConfig config{.max_new_tokens = expected.size() - prompt.size()};
    config.sampling.temperature = 0;
    std::vector<double> seconds;
    for (const std::size_t K : speculative_counts) {
        const double begin = elapsed_seconds();
        TargetSequence target = make_target_sequence(model, expected.size());
        const std::unique_ptr<Proposer> draft = make_draft(target);
        Generator unused(0);
        const std::vector<Id> new_ids =
            generate_speculatively(target, *draft, K, prompt, config, unused).generated.ids;
        seconds.push_back(elapsed_seconds() - begin);
        require(std::ranges::equal(new_ids, std::span(expected).subspan(prompt.size())),
                "bench: a text differs with speculative decoding, K = {}", K);
    }
    return seconds;
}

// Greedy texts of the model of chapter 11, with and without drafts.
void benchmark_speculation(int repetitions) {
    step("Greedy texts of 200 tokens by draft, one at a time: times as fast");
    const Model model = models::load_model(asset("king_james"));
    const Tokenizer tokenizer =
        models::load_tokenizer_of_model(asset("king_james"), "", model.config.vocab_size);
    const FastModel fast = make_fast_model(model, DType::float32);
    const FastMtpModule mtp = make_fast_mtp_module(
        load_mtp_module(asset("king_james_mtp/model.safetensors"), model.config), fast);
    const std::vector<std::pair<std::string, MakeDraft>> drafts = {
        {"n-gram lookup",
         [&](TargetSequence&) {
             return std::make_unique<NgramProposer>(model.config.vocab_size);
         }},
        {"MTP, 1 layer",
         [&](TargetSequence& target) { return std::make_unique<MtpDraft>(mtp, target); }}};
    std::vector<TableRow> rows;
    for (const std::string prompt : {"And God said", "The LORD is my", "In the beginning"}) {
        const std::vector<Id> ids = tokenizer.encode(prompt);
        std::vector<double> plain;
        std::vector<std::array<std::vector<double>, 3>> speculative(drafts.size());  // by K
        for (int i = 0; i < repetitions; ++i) {
            const double start = elapsed_seconds();
            const std::vector<Id> expected = generate_greedily(fast, ids, 200, {});
            plain.push_back(elapsed_seconds() - start);
            for (std::size_t d = 0; d < drafts.size(); ++d) {
                const auto seconds = seconds_with_draft(fast, ids, expected, drafts[d].second);
                for (std::size_t k = 0; k < seconds.size(); ++k)
                    speculative[d][k].push_back(seconds[k]);
            }
        }
        for (std::size_t d = 0; d < drafts.size(); ++d) {
            rows.push_back({prompt, fixed(200 / median(plain), 0), drafts[d].first});
            for (const std::vector<double>& seconds : speculative[d])
                rows.back().push_back(fixed(median(plain) / median(seconds), 2));
        }
    }
    show_table({"prompt", "tokens per second", "draft", "K = 2", "K = 3", "K = 4"}, rows);
}

}  // namespace

void benchmark_serving(const Model& mini_llm, Generator& generator, int repetitions) {
    const FastModel model = quantize_model(mini_llm, DType::q8_0);
    // Its tokens do not matter here: those that are missing get a name.
    Rival llama_cpp = make_llama_cpp_rival(
        mini_llm, models::load_tokenizer(asset("king_james/tokenizer.json")), DType::q8_0,
        "batch");
    benchmark_concurrency(model, std::move(llama_cpp), generator, repetitions);
    benchmark_arrivals(model, generator, repetitions > 1 ? 100 : 10);
    benchmark_prefix(model, generator);
    benchmark_speculation(repetitions);
}

}  // namespace llm::bench
