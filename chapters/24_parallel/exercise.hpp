// Chapter 24, exercises. Write your answers into exercise.cpp; ./learn exercise 24 checks them.
#pragma once

#include "chapters/24_parallel/sharded_optimizer.hpp"

namespace exercise {

using namespace llm;

IdVector predicted_bytes();  // (3)
IdVector predicted_kept();   // (4)

// The L2 norm of a gradient. Of the parameters in `shard`, each rank has a part; those in
// `replicated` are whole on each rank, with equal gradients.
double norm_on_ranks(Communicator& ranks, const std::vector<Parameter>& shard,
                     const std::vector<Parameter>& replicated);

// The mean loss over the tokens of all ranks whose target is not -100. Each rank has the losses
// of its own tokens.
double mean_over_ranks(Communicator& ranks,
                       const Vector& losses,      // (N), of each token
                       const IdVector& targets);  // (N)

// All-reduce by halving and doubling, on n = 2, 4, 8 ... ranks, from an empty file, in three
// steps.
void halving_reduce_scatter(Communicator& ranks, std::span<Real> values);  // (N)
void doubling_all_gather(Communicator& ranks, std::span<Real> values);     // (N)
void halving_all_reduce(Communicator& ranks, std::span<Real> values);      // (N)

}  // namespace exercise
