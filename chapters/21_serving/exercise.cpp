#include "chapters/21_serving/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 21.1 — predict: pages have 16 slots, and the page table of a sequence is 5, 0, 9. In
// which slots are its positions 0, 15, 16 and 40?
IdVector predicted_slots() {
    TODO("predicted_slots");
    // return {?, ?, ?, ?};
}

// Exercise 21.2 — predict: six requests have prompts of one token and want 1, 4, 1, 4, 1 and 4
// new tokens; two of them may run at a time. How many steps does static batching take for all
// of them, and how many continuous batching?
IdVector predicted_steps() {
    TODO("predicted_steps");
    // return {?, ?};
}

// Exercise 21.3 — find the bug. A server with few users answers right. Under load, some answers
// that begin like an earlier one change their subject in the middle of a sentence, and go on
// with somebody else's.
PageId take_page(Pages& pages) {
    const PageId page = pages.unused.front();
    pages.unused.erase(pages.unused.begin());
    pages.num_users[page] = 1;
    return page;
}

// `found` are the pages that hold the beginning of a new sequence.
void share_pages(Pages& pages, const std::vector<PageId>& found) {
    for (const PageId page : found) ++pages.num_users[page];
}

void release_pages(Pages& pages, const std::vector<PageId>& released) {
    for (const PageId page : released)
        if (--pages.num_users[page] == 0) pages.unused.push_back(page);
}

// Exercise 21.4 — write a scheduler. First how many tokens of each running job are computed.
std::vector<std::size_t> tokens_of_step([[maybe_unused]] const State& state) {
    TODO("tokens_of_step");
}

// Then pages for one of them, with preemption.
bool make_room([[maybe_unused]] State& state, [[maybe_unused]] std::size_t i,
               [[maybe_unused]] std::size_t count) {
    TODO("make_room");
}

// Last, the whole step.
std::vector<Planned> plan([[maybe_unused]] State& state) { TODO("plan"); }

}  // namespace exercise
