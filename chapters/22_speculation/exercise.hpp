// Chapter 22, exercises. Write your answers into exercise.cpp; ./learn exercise 22 checks them.
#pragma once

#include "chapters/22_speculation/speculative_sampling.hpp"

namespace exercise {

using namespace llm;

Vector predicted_acceptance();  // (2)
Vector predicted_speed();       // (2)

// The K from 0 to max_proposals with which a text is fastest, and the smallest of several. Each
// proposal is accepted with probability alpha (0 <= alpha < 1), independently of the others; a
// step of the draft costs draft_cost steps of the target, and a verification costs one.
std::size_t best_num_proposals(double alpha, double draft_cost, std::size_t max_proposals);

// The tokens that one step keeps. Row k of target_logits stands after the first k proposals;
// proposal k was sampled from the softmax of row k of draft_logits, divided by the temperature.
std::vector<Id> verify(const std::vector<Id>& proposed,  // K
                       const Matrix& target_logits,      // (K + 1, V)
                       const Matrix& draft_logits,       // (K, V)
                       Real temperature,                 // above 0
                       Generator& generator);

// One token, distributed as the target's p, from any number of candidates, which were sampled
// independently from the draft's q. Takes a candidate if it can.
Id accept_one_of(const std::vector<Id>& candidates, const Vector& p,  // (V)
                 const Vector& q,                                     // (V)
                 Generator& generator);

}  // namespace exercise
