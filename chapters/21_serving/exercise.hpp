// Chapter 21, exercises. Write your answers into exercise.cpp; ./learn exercise 21 checks them.
#pragma once

#include <deque>

#include "chapters/21_serving/page_pool.hpp"

namespace exercise {

using namespace llm;

IdVector predicted_slots();  // (4)
IdVector predicted_steps();  // (2)

// Pages with their users. A page without users keeps its content until it is taken.
struct Pages {
    std::vector<std::size_t> num_users;
    std::vector<PageId> unused;  // the next one to be taken first
};
PageId take_page(Pages& pages);
void share_pages(Pages& pages, const std::vector<PageId>& found);
void release_pages(Pages& pages, const std::vector<PageId>& released);

// A scheduler from an empty file, in three steps. It counts pages, and does not share them.
struct Job {
    std::size_t number = 0;
    std::size_t length = 0;      // tokens so far
    std::size_t num_cached = 0;  // those of them whose keys and values are in pages
    std::size_t num_pages = 0;
};
struct State {
    std::size_t page_size = 0, max_running = 0, max_step_tokens = 0;
    std::size_t num_unused = 0;  // pages
    std::deque<Job> waiting;     // in the order of arrival
    std::vector<Job> running;    // in the order of arrival
};

// How many tokens of each running job a step computes: 1 if it has one token left. The others
// share what remains of max_step_tokens: in ascending order of the tokens that they have left,
// and the older first if these are equal, each gets what remains divided by the number of jobs
// that have not got theirs yet, rounded down, or as many tokens as it has left, if these are
// fewer.
std::vector<std::size_t> tokens_of_step(const State& state);

// Gives running[i] the pages that `count` more tokens need. While none is unused, the last job
// that is running gives back its pages and waits again, first of all, with nothing cached.
// Returns false if this was job i itself.
bool make_room(State& state, std::size_t i, std::size_t count);

// A step: the jobs whose tokens are computed, with their numbers of tokens, in the order of
// arrival. First those that wait join: while fewer than max_running jobs run, and the unused
// pages are enough for all tokens of the next one, and of one more, besides those that the
// running ones still lack for all of theirs, and one more each. Then the tokens are divided,
// and each job in turn makes room for its own.
struct Planned {
    std::size_t number, count;
};
std::vector<Planned> plan(State& state);

}  // namespace exercise
