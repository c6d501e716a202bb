#include "chapters/24_parallel/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 24.1 — predict: a model has 1,000 parameters in float32, and 5 ranks train it. How
// many bytes does each rank send in a step: with data parallelism; with a sharded optimizer
// (reduce-scatter of the gradient, all-gather of the parameters); and with sharded parameters,
// which are gathered in the forward and once more in the backward pass? (All in rings.)
IdVector predicted_bytes() {
    TODO("predicted_bytes");
    // return {?, ?, ?};
}

// Exercise 24.2 — predict: a model has 1,000,000 parameters. How many bytes does each of 4
// ranks keep for parameters, gradients and AdamW's moving averages, all in float32, in stages
// 0, 1, 2 and 3?
IdVector predicted_kept() {
    TODO("predicted_kept");
    // return {?, ?, ?, ?};
}

// Exercise 24.3 — find the bug. On one rank, the norm is right. On 8 ranks it is larger, though
// the loss is the same; with more ranks, it grows. Training is slower, because everything is
// clipped.
double norm_on_ranks(Communicator& ranks, const std::vector<Parameter>& shard,
                     const std::vector<Parameter>& replicated) {
    double sum_of_squares = 0;
    for (const std::vector<Parameter>* list : {&shard, &replicated})
        for (const Parameter& gradient : *list)
            for (const Real g : gradient.values) sum_of_squares += double(g) * double(g);
    return std::sqrt(sum_over_ranks(ranks, sum_of_squares));
}

// Exercise 24.4 — write mean_over_ranks. In fine tuning, only the tokens of answers have a
// target; the others have -100. So each rank has a different number of them.
double mean_over_ranks([[maybe_unused]] Communicator& ranks,
                       [[maybe_unused]] const Vector& losses,
                       [[maybe_unused]] const IdVector& targets) {
    TODO("mean_over_ranks");
}

// Exercise 24.5 — write an all-reduce by halving and doubling. First the reduce-scatter: in
// each step, two ranks divide what they both have; each sends the other's half and adds what it
// receives to its own. The distance of the two is n/2 in the first step, then n/4, ..., 1. At
// the end, rank r has the sums of part_of(N, n, r).
void halving_reduce_scatter([[maybe_unused]] Communicator& ranks,
                            [[maybe_unused]] std::span<Real> values) {
    TODO("halving_reduce_scatter");
}

// Then the all-gather: the same steps in reverse order, in which two ranks exchange what they
// have.
void doubling_all_gather([[maybe_unused]] Communicator& ranks,
                         [[maybe_unused]] std::span<Real> values) {
    TODO("doubling_all_gather");
}

// Both, for a number of ranks that is a power of two. Throws ValueError for another number.
void halving_all_reduce([[maybe_unused]] Communicator& ranks,
                        [[maybe_unused]] std::span<Real> values) {
    TODO("halving_all_reduce");
}

}  // namespace exercise
