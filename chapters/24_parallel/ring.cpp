#include "chapters/24_parallel/ring.hpp"

#include <algorithm>
#include <vector>

namespace llm {
namespace {

// Part i of the values, where i counts around the ring: part n is part 0, and part -1 is part
// n - 1.
std::span<Real> ring_part(std::span<Real> values, std::size_t width, std::size_t num_ranks,
                          std::ptrdiff_t i) {
    const auto n = static_cast<std::ptrdiff_t>(num_ranks);
    const auto [begin, size] =
        part_of(values.size() / width, num_ranks, static_cast<std::size_t>((i % n + n) % n));
    return values.subspan(begin * width, size * width);
}

// A part is sent in pieces, so that what arrives is still in the cache when it is added.
constexpr std::size_t piece_size = 1 << 16;
template <class Number>
std::span<Number> piece(std::span<Number> part, std::size_t begin) {
    if (begin >= part.size()) return {};
    return part.subspan(begin, std::min(piece_size, part.size() - begin));
}

void add_to(std::span<Real> sums, std::span<const Real> values) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

// Sends a part to the next rank of the ring, and receives one from the previous rank.
void pass_on(Communicator& ranks, std::span<const Real> sent, std::span<Real> received) {
    const std::size_t n = ranks.size(), rank = ranks.rank();
    ranks.send_receive<Real>(sent, (rank + 1) % n, received, (rank + n - 1) % n);
}

}  // namespace

void ring_reduce_scatter_rows(Communicator& ranks, std::span<Real> values, std::size_t width) {
    const std::size_t n = ranks.size();
    const auto rank = static_cast<std::ptrdiff_t>(ranks.rank());
    const std::size_t longest = part_of(values.size() / width, n, 0).size * width;
    std::vector<Real> received(std::min(longest, piece_size));
    for (std::ptrdiff_t step = 0; step + 1 < static_cast<std::ptrdiff_t>(n); ++step) {
        // Send the part that arrived in the previous step. (Part i starts at rank i + 1.)
        const std::span<const Real> sent = ring_part(values, width, n, rank - 1 - step);
        const std::span<Real> own = ring_part(values, width, n, rank - 2 - step);
        for (std::size_t begin = 0; begin < longest; begin += piece_size) {
            const std::span<Real> sum = piece(own, begin);
            const std::span<Real> arrived = std::span(received).first(sum.size());
            pass_on(ranks, piece(sent, begin), arrived);
            add_to(sum, arrived);
        }
    }
}

void ring_all_gather_rows(Communicator& ranks, std::span<Real> values, std::size_t width) {
    const std::size_t n = ranks.size();
    const auto rank = static_cast<std::ptrdiff_t>(ranks.rank());
    for (std::ptrdiff_t step = 0; step + 1 < static_cast<std::ptrdiff_t>(n); ++step)
        pass_on(ranks, ring_part(values, width, n, rank - step),
                ring_part(values, width, n, rank - 1 - step));
}

void ring_reduce_scatter(Communicator& ranks, std::span<Real> values) {
    ring_reduce_scatter_rows(ranks, values, 1);
}
void ring_all_gather(Communicator& ranks, std::span<Real> values) {
    ring_all_gather_rows(ranks, values, 1);
}
void ring_all_reduce(Communicator& ranks, std::span<Real> values) {
    ring_reduce_scatter(ranks, values);
    ring_all_gather(ranks, values);
}

std::uint64_t ring_numbers_sent(std::size_t count, std::size_t num_ranks, std::size_t rank) {
    // The reduce-scatter sends all parts but the rank's own, the all-gather all but the next.
    const std::size_t next = (rank + 1) % num_ranks;
    return std::uint64_t(2) * count - part_of(count, num_ranks, rank).size -
           part_of(count, num_ranks, next).size;
}

void reduce_at_root(Communicator& ranks, std::span<Real> values) {
    if (ranks.rank() == 0) {
        std::vector<Real> received(values.size());
        for (std::size_t source = 1; source < ranks.size(); ++source) {
            ranks.receive<Real>(received, source);
            add_to(values, received);
        }
        for (std::size_t other = 1; other < ranks.size(); ++other)
            ranks.send<Real>(values, other);
    } else {
        ranks.send<Real>(values, 0);
        ranks.receive<Real>(values, 0);
    }
}

}  // namespace llm
