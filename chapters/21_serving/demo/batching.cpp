#include "chapters/21_serving/demo/batching.hpp"

#include "chapters/21_serving/engine.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// A prompt and new tokens of this many tokens, submitted before this step.
struct Arrival {
    std::size_t step, prompt_len, max_new_tokens;
};

// The tokens that each step computes of each request; 0: it waits, or is finished.
struct Timeline {
    std::vector<std::vector<std::size_t>> counts;  // [request][step]
    std::vector<bool> preempted;                   // [step]
    std::size_t num_steps = 0;
};

Timeline run(Scheduler scheduler, const std::vector<Arrival>& arrivals) {
    Timeline timeline{std::vector<std::vector<std::size_t>>(arrivals.size()), {}, 0};
    std::size_t next = 0;
    for (std::size_t n = 0; next < arrivals.size() || !scheduler.idle(); ++n) {
        for (; next < arrivals.size() && arrivals[next].step <= n; ++next) {
            std::vector<Id> ids(arrivals[next].prompt_len);
            for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = Id(100 * next + t);
            submit(scheduler, ids, arrivals[next].max_new_tokens);
        }
        const std::size_t num_preemptions = scheduler.num_preemptions;
        const std::vector<PlannedTokens> plan = plan_step(scheduler);
        for (std::vector<std::size_t>& counts : timeline.counts) counts.push_back(0);
        for (const auto& [i, count, gives_token] : plan)
            timeline.counts[scheduler.running[i].number].back() = count;
        timeline.preempted.push_back(scheduler.num_preemptions > num_preemptions);
        record_step(scheduler, plan, std::vector<NewToken>(plan.size(), {7}));
        timeline.num_steps = n + 1;
    }
    return timeline;
}

void show_timeline(const Timeline& timeline) {
    TableRow headings = {"step"};
    for (std::size_t n = 0; n < timeline.num_steps; ++n) headings.push_back(to_text(n + 1));
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < timeline.counts.size(); ++i) {
        rows.push_back({"request " + to_text(i)});
        for (const std::size_t count : timeline.counts[i])
            rows.back().push_back(count == 0 ? "." : to_text(count));
    }
    show_table(headings, rows);
}

Heatmap map_of(const std::string& title, const Timeline& timeline, std::size_t num_steps) {
    Matrix counts = xt::zeros<Real>({timeline.counts.size(), num_steps});
    std::vector<std::string> steps;
    for (std::size_t n = 0; n < num_steps; ++n) steps.push_back(to_text(n + 1));
    for (std::size_t i = 0; i < timeline.counts.size(); ++i)
        for (std::size_t n = 0; n < timeline.num_steps; ++n)
            counts(i, n) = Real(timeline.counts[i][n]);
    return {title, "step", "request", counts, steps};
}

}  // namespace

void static_and_continuous(std::size_t max_sequences) {
    step("Five requests, at most " + to_text(max_sequences) +
         " at a time: tokens of each step");
    const std::vector<Arrival> arrivals = {
        {0, 3, 2}, {0, 2, 6}, {0, 4, 3}, {0, 2, 2}, {0, 3, 2}};
    SchedulerConfig config{max_sequences, 16};
    config.continuous = false;
    const Timeline waiting = run(make_scheduler(config, 32, 4), arrivals);
    say("Static batching: a batch begins when the last one has ended.");
    show_timeline(waiting);
    config.continuous = true;
    const Timeline joining = run(make_scheduler(config, 32, 4), arrivals);
    say("Continuous batching: the next request takes the place of a finished one.");
    show_timeline(joining);
    show("steps_static", waiting.num_steps);
    show("steps_continuous", joining.num_steps);
    plot("batching", {map_of("Static batching", waiting, waiting.num_steps),
                      map_of("Continuous batching", joining, waiting.num_steps)});
}

void long_prompt(std::size_t max_step_tokens) {
    step("A prompt of 40 tokens arrives while another request decodes");
    const std::vector<Arrival> arrivals = {{0, 3, 8}, {1, 40, 3}};
    say("Steps of at most 64 tokens: the second step takes as long as its 41 tokens.");
    show_timeline(run(make_scheduler({4, 64}, 32, 4), arrivals));
    say("Steps of at most " + to_text(max_step_tokens) +
        " tokens: the prompt is computed in chunks.");
    show_timeline(run(make_scheduler({4, max_step_tokens}, 32, 4), arrivals));
}

void no_page_left(std::size_t num_pages) {
    step("Two requests of 7 + 9 tokens, and " + to_text(num_pages) + " pages of 4");
    SchedulerConfig config{2, 16};
    config.prefix_cache = false;
    const Timeline timeline = run(make_scheduler(config, num_pages, 4), {{0, 7, 9}, {0, 7, 9}});
    show_timeline(timeline);
    std::string steps;
    for (std::size_t n = 0; n < timeline.num_steps; ++n)
        if (timeline.preempted[n]) steps += (steps.empty() ? "" : " ") + to_text(n + 1);
    show("steps_with_preemption", steps.empty() ? "none" : steps);
}

void many_texts(const FastModel& model, const Tokenizer& tokenizer) {
    step("The shipped model: four texts at once");
    const std::vector<std::string> prompts = {"And God said", "The LORD is my",
                                              "In the beginning", "And the king answered"};
    Engine engine(model, {{4, 32}, 32, 16});
    std::vector<GenerationRequest> requests;
    for (const std::string& prompt : prompts) {
        requests.push_back({tokenizer.encode(prompt)});
        requests.back().config.max_new_tokens = 12;
        requests.back().config.sampling.temperature = 0;
    }
    const std::vector<GeneratedTokens> texts = generate_all(engine, requests);
    bool same = true;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        std::vector<Id> ids = requests[i].prompt_ids;
        same = same && texts[i].ids == [&] {
            std::vector<Id> alone = generate_greedily(model, ids, 12, {});
            alone.erase(alone.begin(), alone.begin() + std::ptrdiff_t(ids.size()));
            return alone;
        }();
        ids.insert(ids.end(), texts[i].ids.begin(), texts[i].ids.end());
        show("text_" + to_text(i), tokenizer.decode(ids));
    }
    show("same_as_each_alone", same);
}

}  // namespace llm
