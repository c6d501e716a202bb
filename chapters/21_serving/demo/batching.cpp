#include "chapters/21_serving/demo/batching.hpp"

#include "chapters/21_serving/engine.hpp"
#include "chapters/21_serving/simulation/schedule.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The tokens that each step computes of each request; 0: it waits, or is finished.
struct Timeline {
    std::vector<std::vector<std::size_t>> counts;  // [request][step]
    std::vector<bool> preempted;                   // [step]
    std::size_t num_steps = 0;
};

Timeline timeline_of(const std::vector<SimulatedStep>& steps) {
    Timeline timeline{{}, {}, steps.size()};
    if (!steps.empty()) timeline.counts.resize(steps[0].requests.size());
    for (const SimulatedStep& step : steps) {
        bool preempts = false;
        for (std::vector<std::size_t>& counts : timeline.counts) counts.push_back(0);
        for (const RequestInStep& request : step.requests) {
            timeline.counts[request.request].back() = request.count;
            preempts = preempts || request.state == RequestState::preempted;
        }
        timeline.preempted.push_back(preempts);
    }
    return timeline;
}

Timeline run(const Scheduler& scheduler, const std::vector<SimulatedRequest>& requests) {
    return timeline_of(simulate(scheduler, requests));
}

// The steps from `first` on, as many as fit into 80 columns.
void show_timeline(const Timeline& timeline, std::size_t first = 0) {
    const std::size_t last = std::min(first + 16, timeline.num_steps);
    TableRow headings = {"step"};
    for (std::size_t n = first; n < last; ++n) headings.push_back(to_text(n + 1));
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < timeline.counts.size(); ++i) {
        rows.push_back({"request " + to_text(i)});
        for (std::size_t n = first; n < last; ++n) {
            const std::size_t count = timeline.counts[i][n];
            rows.back().push_back(count == 0 ? "." : to_text(count));
        }
    }
    show_table(headings, rows);
    if (last < timeline.num_steps) show_timeline(timeline, last);
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

// A page table, such as "0 3 4". A long one has ranges, such as "0-3 7 9-12".
std::string page_table(std::span<const PageId> pages) {
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < pages.size(); begin = end) {
        for (end = begin + 1; end < pages.size() && pages[end] == pages[end - 1] + 1;) ++end;
        const bool is_range = pages.size() > 6 && end - begin > 2;
        if (!is_range) end = begin + 1;
        text += (begin == 0 ? "" : " ") + to_text(pages[begin]);
        if (is_range) text += "-" + to_text(pages[end - 1]);
    }
    return text;
}

std::string name_of(std::size_t request) { return "Request " + to_text(request); }

std::string numbered(const std::string& noun, std::span<const PageId> numbers) {
    std::string text = noun + (numbers.size() == 1 ? "" : "s");
    for (const PageId number : numbers) text += " " + to_text(number);
    return text;
}

// Writes each event of a schedule as a sentence.
struct EventWriter {
    const std::vector<SimulatedRequest>& requests;

    std::string operator()(const RequestArrives& event) const {
        const SimulatedRequest& request = requests[event.request];
        return name_of(event.request) + " arrives: a prompt of " + to_text(request.prompt_len) +
               " tokens, and " + to_text(request.max_new_tokens) + " new ones.";
    }
    std::string operator()(const RequestJoins& event) const {
        if (event.num_cached == 0) return name_of(event.request) + " joins.";
        return name_of(event.request) + " joins: its first " + to_text(event.num_cached) +
               " tokens are in the prefix cache.";
    }
    std::string operator()(const RequestIsPreempted& event) const {
        return name_of(event.request) + " is preempted: it gives back " +
               numbered("page", event.pages) + " and waits again.";
    }
    std::string operator()(const RequestIsCanceled& event) const {
        return name_of(event.request) + " is canceled" +
               (event.pages.empty() ? "." : " and releases its pages.");
    }
    std::string operator()(const RequestIsFinished& event) const {
        return name_of(event.request) +
               " gets its last token; its pages are free after the step.";
    }
    std::string operator()(const PagesAreEvicted& event) const {
        return "Evicted from the prefix cache: " + numbered("page", event.pages) + ".";
    }
};

// The requests of a step: those that run, those that wait, and the others.
void show_requests(const SimulatedStep& planned,
                   const std::vector<SimulatedRequest>& requests) {
    std::vector<TableRow> rows;
    for (const RequestInStep& each : planned.requests) {
        const SimulatedRequest& request = requests[each.request];
        const bool runs = !each.pages.empty();
        rows.push_back({to_text(each.request), to_text(each.state), to_text(request.prompt_len),
                        to_text(each.num_new) + " of " + to_text(request.max_new_tokens),
                        runs ? to_text(each.num_cached) : "", runs ? to_text(each.count) : "",
                        page_table(each.pages)});
    }
    show_table({"request", "state", "prompt", "new", "cached", "computed", "pages"}, rows);
}

// The pages of a step, 16 in a table.
void show_pages(const SimulatedStep& planned) {
    for (std::size_t first = 0; first < planned.pages.size(); first += 16) {
        TableRow headings = {"page"};
        std::vector<TableRow> rows = {{"used by"}, {"users"}, {"tokens"}};
        for (PageId id = first; id < std::min(first + 16, planned.pages.size()); ++id) {
            const PageInStep& page = planned.pages[id];
            std::string users;
            for (const std::size_t request : page.requests)
                users += (users.empty() ? "" : ",") + to_text(request);
            headings.push_back(to_text(id));
            rows[0].push_back(users.empty() ? "." : users);
            rows[1].push_back(to_text(page.num_users));
            rows[2].push_back(to_text(page.num_tokens));
        }
        show_table(headings, rows);
    }
}

}  // namespace

void static_and_continuous(std::size_t max_sequences) {
    step("Five requests, at most " + to_text(max_sequences) +
         " at a time: tokens of each step");
    const std::vector<SimulatedRequest> requests = {{3, 2}, {2, 6}, {4, 3}, {2, 2}, {3, 2}};
    SchedulerConfig config{max_sequences, 16};
    config.continuous = false;
    const Timeline waiting = run(make_scheduler(config, 32, 4), requests);
    say("Static batching: a batch begins when the last one has ended.");
    show_timeline(waiting);
    config.continuous = true;
    const Timeline joining = run(make_scheduler(config, 32, 4), requests);
    say("Continuous batching: the next request takes the place of a finished one.");
    show_timeline(joining);
    show("steps_static", waiting.num_steps);
    show("steps_continuous", joining.num_steps);
    plot("batching", {map_of("Static batching", waiting, waiting.num_steps),
                      map_of("Continuous batching", joining, waiting.num_steps)});
}

void long_prompt(std::size_t max_step_tokens) {
    step("A prompt of 40 tokens arrives while another request decodes");
    const std::vector<SimulatedRequest> requests = {{3, 8}, {40, 3, 2}};
    say("Steps of at most 64 tokens: the second step takes as long as its 41 tokens.");
    show_timeline(run(make_scheduler({4, 64}, 32, 4), requests));
    say("Steps of at most " + to_text(max_step_tokens) +
        " tokens: the prompt is computed in chunks.");
    show_timeline(run(make_scheduler({4, max_step_tokens}, 32, 4), requests));
}

void no_page_left(std::size_t num_pages) {
    step("Two requests of 7 + 9 tokens, and " + to_text(num_pages) + " pages of 4");
    SchedulerConfig config{2, 16};
    config.prefix_cache = false;
    const Timeline timeline = run(make_scheduler(config, num_pages, 4), {{7, 9}, {7, 9}});
    show_timeline(timeline);
    std::string steps;
    for (std::size_t n = 0; n < timeline.num_steps; ++n)
        if (timeline.preempted[n]) steps += (steps.empty() ? "" : " ") + to_text(n + 1);
    show("steps_with_preemption", steps.empty() ? "none" : steps);
}

void show_schedule(const Scheduler& scheduler, const std::vector<SimulatedRequest>& requests) {
    const std::vector<SimulatedStep> steps = simulate(scheduler, requests);
    for (const SimulatedStep& planned : steps) {
        step("The step computes " + to_text(planned.num_tokens()) + " of at most " +
             to_text(scheduler.config.max_step_tokens) + " tokens");
        for (const ScheduleEvent& event : planned.events)
            say(std::visit(EventWriter{requests}, event));
        show_requests(planned, requests);
        show_pages(planned);
    }
    step("All steps: tokens of each request");
    show_timeline(timeline_of(steps));
}

void many_texts(const FastModel& model, const Tokenizer& tokenizer, std::uint32_t seed) {
    step("The shipped model: four sampled texts at once");
    const std::vector<std::string> prompts = {"And God said", "The LORD is my",
                                              "In the beginning", "And the king answered"};
    Engine engine(model, {{4, 32}, 32, 16});
    std::vector<GenerationRequest> requests;
    for (const std::string& prompt : prompts) {
        requests.push_back({tokenizer.encode(prompt), {}, seed++});
        requests.back().config.max_new_tokens = 12;
        requests.back().config.sampling = {.temperature = Real(0.7), .top_k = 40};
    }
    const std::vector<GeneratedTokens> texts = generate_all(engine, requests);

    // Each text once more, without the others: it has a generator of its own.
    bool same = true;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        std::vector<Id> ids = requests[i].prompt_ids;
        Generator generator(requests[i].seed);
        same = same && generate(model, ids, requests[i].config, generator).ids == texts[i].ids;
        ids.insert(ids.end(), texts[i].ids.begin(), texts[i].ids.end());
        show("text_" + to_text(i), tokenizer.decode(ids));
    }
    show("same_as_each_alone", same);
}

}  // namespace llm
