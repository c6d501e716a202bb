// Chapter 24, file 1 of 6 — How do many machines train one model? The ring: sums over ranks in
// which each rank sends only to the next one.
#pragma once

#include "common/parallel/communicator.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// All functions are called by all ranks, with N numbers each. Part i of the numbers is
// part_of(N, n, i), for n ranks. Source:
// Patarasuk and Yuan, 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", section 3.

// Afterwards rank r has the sums of part r; its other numbers are its own or partial sums. The
// numbers of part i are added in the order of the ranks i + 1, i + 2, ..., i, so the result is
// the same in each run.
void ring_reduce_scatter(Communicator& ranks, std::span<Real> values);  // (N)

// Rank r has part r; afterwards each rank has all parts.
void ring_all_gather(Communicator& ranks, std::span<Real> values);  // (N)

// The same for rows of `width` numbers, which are not cut: part i has the rows part_of(N /
// width, n, i).
void ring_reduce_scatter_rows(Communicator& ranks, std::span<Real> values, std::size_t width);
void ring_all_gather_rows(Communicator& ranks, std::span<Real> values, std::size_t width);

// The sums of all numbers, on each rank, with the same bits.
void ring_all_reduce(Communicator& ranks, std::span<Real> values);  // (N)

// How many numbers a rank sends in ring_all_reduce: 2 (n - 1)/n N, if n divides N. (Otherwise
// two parts can differ by one number.)
std::uint64_t ring_numbers_sent(std::size_t count, std::size_t num_ranks, std::size_t rank);

// The same sums by way of rank 0, which adds what the others send and sends them the sums. Rank
// 0 sends (n - 1) N numbers and receives as many, while the others wait.
void reduce_at_root(Communicator& ranks, std::span<Real> values);  // (N)

}  // namespace llm
