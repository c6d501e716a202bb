#include <algorithm>

#include "chapters/21_serving/exercise.hpp"
#include "common/numbers/ceil_div.hpp"

namespace exercise {

// Exercise 21.1 — page 5 begins at slot 80; position 16 is the first one of the second page;
// 40 = 2 · 16 + 8 is in page 9.
IdVector predicted_slots() { return {80, 95, 0, 152}; }

// Exercise 21.2 — static: each batch of two takes the 4 steps of its longer request.
// Continuous: the short ones fill the other place, and the last request runs from step 6 to
// step 9.
IdVector predicted_steps() { return {12, 9}; }

// Exercise 21.3 — a page without users whose content was found again must leave the
// unused ones. Otherwise it is taken again while the new sequence reads it: with few users, the
// unused pages last long enough.
PageId take_page(Pages& pages) {
    const PageId page = pages.unused.front();
    pages.unused.erase(pages.unused.begin());
    pages.num_users[page] = 1;
    return page;
}

void share_pages(Pages& pages, const std::vector<PageId>& found) {
    for (const PageId page : found)
        if (pages.num_users[page]++ == 0) std::erase(pages.unused, page);
}

void release_pages(Pages& pages, const std::vector<PageId>& released) {
    for (const PageId page : released)
        if (--pages.num_users[page] == 0) pages.unused.push_back(page);
}

// Exercise 21.4 — the tokens of those that decode are set aside first; then the shortest prompt
// comes first, so that the longer ones share what it does not need.
std::vector<std::size_t> tokens_of_step(const State& state) {
    const auto num_left = [&](std::size_t i) {
        return state.running[i].length - state.running[i].num_cached;
    };
    std::vector<std::size_t> counts(state.running.size(), 1), prompts;
    for (std::size_t i = 0; i < counts.size(); ++i)
        if (num_left(i) > 1) prompts.push_back(i);
    std::ranges::stable_sort(prompts, {}, num_left);

    std::size_t budget = state.max_step_tokens - (counts.size() - prompts.size());
    for (std::size_t k = 0; k < prompts.size(); ++k) {
        counts[prompts[k]] = std::min(num_left(prompts[k]), budget / (prompts.size() - k));
        budget -= counts[prompts[k]];
    }
    return counts;
}

bool make_room(State& state, std::size_t i, std::size_t count) {
    while (i < state.running.size()) {
        Job& job = state.running[i];
        const std::size_t num_needed = ceil_div(job.num_cached + count, state.page_size);
        if (job.num_pages >= num_needed) return true;
        if (state.num_unused > 0) {
            --state.num_unused;
            ++job.num_pages;
            continue;
        }
        Job last = state.running.back();
        state.running.pop_back();
        state.num_unused += last.num_pages;
        last.num_cached = last.num_pages = 0;
        state.waiting.push_front(last);
    }
    return false;
}

std::vector<Planned> plan(State& state) {
    const auto num_lacking = [&](const Job& job) {
        return ceil_div(job.length + 1, state.page_size) - job.num_pages;
    };
    std::size_t num_promised = 0;
    for (const Job& job : state.running) num_promised += num_lacking(job);
    while (!state.waiting.empty() && state.running.size() < state.max_running) {
        num_promised += num_lacking(state.waiting.front());
        if (num_promised > state.num_unused) break;
        state.running.push_back(state.waiting.front());
        state.waiting.pop_front();
    }

    const std::vector<std::size_t> counts = tokens_of_step(state);
    std::vector<Planned> planned;
    for (std::size_t i = 0; i < state.running.size(); ++i)
        if (make_room(state, i, counts[i]))
            planned.push_back({state.running[i].number, counts[i]});
    return planned;
}

}  // namespace exercise
