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

// Exercise 21.4 — after a rejection, the rest of the procedure must produce the residual
// distribution: it is the target of the next candidate.
Id accept_one_of(const std::vector<Id>& candidates, const Vector& p, const Vector& q,
                 Generator& generator) {
    Vector target = p;  // (V)
    for (const Id candidate : candidates) {
        if (accept_token(candidate, target, q, generator)) return candidate;
        const Vector rest = residual_distribution(target, q);
        target = rest;
    }
    return sample_from(target, generator);
}

// Exercise 21.5 — the probability of a first token, times that of its allowed continuations.
Vector conditioned(const Vector& first, const Matrix& second,
                   const std::vector<std::vector<bool>>& allowed) {
    Vector result = first;  // (V)
    Real sum = 0;
    for (std::size_t a = 0; a < first.size(); ++a) {
        Real allowed_after = 0;
        for (std::size_t b = 0; b < first.size(); ++b)
            if (allowed[a][b]) allowed_after += second(a, b);
        result(a) *= allowed_after;
        sum += result(a);
    }
    for (Real& probability : result) probability /= sum;
    return result;
}

// Exercise 21.6 — the tokens of those that decode are set aside first.
std::vector<std::size_t> tokens_of_step(const State& state) {
    const auto decodes = [](const Job& job) { return job.length - job.num_cached == 1; };
    std::size_t left =
        state.max_step_tokens - std::size_t(std::ranges::count_if(state.running, decodes));
    std::vector<std::size_t> counts;
    for (const Job& job : state.running) {
        if (decodes(job)) {
            counts.push_back(1);
            continue;
        }
        counts.push_back(std::min(job.length - job.num_cached, left));
        left -= counts.back();
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
    const std::vector<std::size_t> counts = tokens_of_step(state);
    std::vector<Planned> planned;
    std::size_t left = state.max_step_tokens;
    for (std::size_t i = 0; i < state.running.size(); ++i) {
        left -= counts[i];
        if (counts[i] > 0 && make_room(state, i, counts[i]))
            planned.push_back({state.running[i].number, counts[i]});
    }

    if (state.running.size() < counts.size()) return planned;  // pages are short
    while (!state.waiting.empty() && left > 0 && state.running.size() < state.max_running) {
        Job next = state.waiting.front();
        const std::size_t num_needed = (next.length + state.page_size) / state.page_size;
        if (num_needed > state.num_unused) break;
        state.waiting.pop_front();
        state.running.push_back(next);
        const std::size_t count = std::min(next.length, left);
        make_room(state, state.running.size() - 1, count);
        left -= count;
        planned.push_back({next.number, count});
    }
    return planned;
}

}  // namespace exercise
