#include <bit>
#include <cmath>

#include "chapters/24_parallel/exercise.hpp"

namespace exercise {

// Exercise 24.1 — a reduce-scatter or an all-gather sends 4/5 of 4,000 bytes. An all-reduce is
// both; sharded parameters need two all-gathers and a reduce-scatter.
IdVector predicted_bytes() { return {6400, 6400, 9600}; }

// Exercise 24.2 — 4, 4 and 8 MB. Each stage divides one more of them by 4, the moving averages
// first.
IdVector predicted_kept() { return {16000000, 10000000, 7000000, 4000000}; }

// Exercise 24.3 — the sum over ranks counts what is whole on each rank n times. Add over ranks
// only what differs between them.
double norm_on_ranks(Communicator& ranks, const std::vector<Parameter>& shard,
                     const std::vector<Parameter>& replicated) {
    const double of_shard = grad_norm(shard), of_replicated = grad_norm(replicated);
    return std::sqrt(sum_over_ranks(ranks, of_shard * of_shard) +
                     of_replicated * of_replicated);
}

// Exercise 24.4 — the sum and the number of tokens over all ranks, then one division. The mean
// of a rank without such tokens would be 0/0.
double mean_over_ranks(Communicator& ranks, const Vector& losses, const IdVector& targets) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < losses.size(); ++i)
        if (targets(i) != -100) {
            sum += double(losses(i));
            ++count;
        }
    return sum_over_ranks(ranks, sum) / sum_over_ranks(ranks, count);
}

namespace {

// The values of parts `first` to first + count - 1.
std::span<Real> parts(std::span<Real> values, std::size_t num_ranks, std::size_t first,
                      std::size_t count) {
    const std::size_t begin = part_of(values.size(), num_ranks, first).begin;
    const Part last = part_of(values.size(), num_ranks, first + count - 1);
    return values.subspan(begin, last.begin + last.size - begin);
}

// The `distance` parts that a rank has after the step with this distance.
std::size_t first_part(std::size_t rank, std::size_t distance) {
    return rank / distance * distance;
}

}  // namespace

// Exercise 24.5 — the rank whose number differs in one bit is the partner. After the step with
// distance d, a rank has the sums of d parts, over n/d ranks.
void halving_reduce_scatter(Communicator& ranks, std::span<Real> values) {
    const std::size_t n = ranks.size(), rank = ranks.rank();
    for (std::size_t distance = n / 2; distance > 0; distance /= 2) {
        const std::size_t partner = rank ^ distance;
        const std::span<Real> own = parts(values, n, first_part(rank, distance), distance);
        const std::span<Real> other = parts(values, n, first_part(partner, distance), distance);
        std::vector<Real> received(own.size());
        ranks.send_receive<Real>(other, partner, received, partner);
        for (std::size_t i = 0; i < own.size(); ++i) own[i] += received[i];
    }
}

void doubling_all_gather(Communicator& ranks, std::span<Real> values) {
    const std::size_t n = ranks.size(), rank = ranks.rank();
    for (std::size_t distance = 1; distance < n; distance *= 2) {
        const std::size_t partner = rank ^ distance;
        const std::span<Real> own = parts(values, n, first_part(rank, distance), distance);
        const std::span<Real> other = parts(values, n, first_part(partner, distance), distance);
        ranks.send_receive<Real>(own, partner, other, partner);
    }
}

void halving_all_reduce(Communicator& ranks, std::span<Real> values) {
    require(std::has_single_bit(ranks.size()), "halving_all_reduce: {} ranks, no power of two",
            ranks.size());
    halving_reduce_scatter(ranks, values);
    doubling_all_gather(ranks, values);
}

}  // namespace exercise
