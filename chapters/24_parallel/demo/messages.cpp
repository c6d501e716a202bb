#include "chapters/24_parallel/demo/messages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "chapters/24_parallel/ring.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

std::vector<std::string> rank_names(std::size_t num_ranks) {
    std::vector<std::string> names;
    for (std::size_t rank = 0; rank < num_ranks; ++rank)
        names.push_back("rank " + to_text(rank));
    return names;
}

// Runs change(ranks, values) on one rank for each row, and shows the values of each.
template <class Change>
Matrix after(const Matrix& values, const Change& change) {
    Matrix result = values;  // (n, N)
    const std::size_t count = values.shape(1);
    run_ranks(values.shape(0), [&](Communicator& ranks) {
        const std::size_t begin = ranks.rank() * count;
        std::vector<Real> own(values.data() + begin, values.data() + begin + count);
        change(ranks, std::span(own));
        std::copy(own.begin(), own.end(), result.data() + begin);
    });
    return result;
}

}  // namespace

void two_ranks() {
    step("Two ranks, four tokens: the mean, and a mean of means");
    const std::vector<Vector> gradients = {{1, 2, 3}, {10}};  // of each token of a rank
    show("gradients_of_rank_0", gradients[0]);
    show("gradients_of_rank_1", gradients[1]);
    Real sum = 0, mean_of_means = 0;
    run_ranks(2, [&](Communicator& ranks) {
        const Vector& own = gradients[ranks.rank()];
        const Real own_sum = std::accumulate(own.begin(), own.end(), Real(0));
        std::vector<Real> message = {own_sum, own_sum / Real(own.size()) / 2};
        ring_all_reduce(ranks, message);
        if (ranks.rank() != 0) return;
        sum = message[0];
        mean_of_means = message[1];
    });
    show("sum_over_tokens_by_all_tokens", double(sum) / 4);
    show("mean_of_means", double(mean_of_means));
}

void around_the_ring(std::size_t num_ranks) {
    step("The ring: the part that each rank sends, and what each has then");
    // In step s, the reduce-scatter sends part r - 1 - s of rank r, the all-gather part r - s.
    std::vector<TableRow> rows;
    for (const std::size_t first : {num_ranks - 1, num_ranks})
        for (std::size_t number = 0; number + 1 < num_ranks; ++number) {
            TableRow row = {
                (first == num_ranks ? "all-gather, step " : "reduce-scatter, step ") +
                to_text(number + 1)};
            for (std::size_t rank = 0; rank < num_ranks; ++rank)
                row.push_back(to_text((rank + first + num_ranks - number) % num_ranks));
            rows.push_back(row);
        }
    TableRow headings = rank_names(num_ranks);
    headings.insert(headings.begin(), "part sent by");
    show_table(headings, rows);

    Matrix before = xt::zeros<Real>({num_ranks, num_ranks});
    std::vector<std::string> columns;
    for (std::size_t part = 0; part < num_ranks; ++part) {
        for (std::size_t rank = 0; rank < num_ranks; ++rank)
            before(rank, part) = std::pow(Real(10), Real(rank)) * Real(part + 1);
        columns.push_back("part " + to_text(part));
    }
    show("before", before, rank_names(num_ranks), columns);
    const Matrix scattered = after(before, ring_reduce_scatter);
    show("after_reduce_scatter", scattered, rank_names(num_ranks), columns);
    show("after_all_gather", after(scattered, ring_all_gather), rank_names(num_ranks), columns);
}

void bytes_sent() {
    step("What the busiest rank sends, to add one million numbers");
    std::vector<TableRow> rows;
    constexpr std::size_t count = 1'000'000;
    for (const std::size_t num_ranks : {2, 3, 4, 8, 16}) {
        std::vector<std::uint64_t> at_root(num_ranks), ring(num_ranks);
        run_ranks(num_ranks, [&](Communicator& ranks) {
            std::vector<Real> values(count);
            reduce_at_root(ranks, values);
            at_root[ranks.rank()] = ranks.num_bytes_sent();
            ring_all_reduce(ranks, values);
            ring[ranks.rank()] = ranks.num_bytes_sent() - at_root[ranks.rank()];
        });
        const auto megabytes = [](const std::vector<std::uint64_t>& bytes) {
            return fixed(double(*std::max_element(bytes.begin(), bytes.end())) / 1e6, 2);
        };
        const double formula = 2.0 * double(num_ranks - 1) / double(num_ranks) * count * 4e-6;
        rows.push_back(
            {to_text(num_ranks), megabytes(at_root), megabytes(ring), fixed(formula, 2)});
    }
    show_table({"ranks", "MB by way of rank 0", "MB in a ring", "by formula"}, rows);
}

void order_of_additions() {
    step("The order of additions: the same bits on all ranks, and in each run");
    // 1e8 + 1 is 1e8 in float32, so the order decides what is left.
    Matrix values = {{1e8, 1e8, 1e8}, {1, 1, 1}, {-1e8, -1e8, -1e8}};
    show("sums_of_a_ring", after(values, ring_all_reduce), rank_names(3),
         {"part 0", "part 1", "part 2"});
    show("sums_of_the_library",
         after(values, [](Communicator& ranks, std::span<Real> own) { ranks.all_reduce(own); }),
         rank_names(3), {"part 0", "part 1", "part 2"});
}

void rank_that_leaves_early(std::size_t num_ranks) {
    step("Wrong: a rank without a last batch leaves early");
    try {
        run_ranks(num_ranks, [](Communicator& ranks) {
            const std::size_t num_batches = ranks.rank() == 0 ? 1 : 2;
            std::vector<Real> gradient = {1, 2, 3};
            for (std::size_t batch = 0; batch < num_batches; ++batch)
                ranks.all_reduce(std::span(gradient));
        });
    } catch (const std::runtime_error& error) {
        say(error.what());
    }
}

void maximum_of_nan() {
    step("Wrong: an overflow looked for with a maximum");
    // Rank 1 has the NaN. std::max(a, b) is a < b ? b : a, and a comparison with NaN is false.
    std::vector<double> maxima(2), sums(2);
    run_ranks(2, [&](Communicator& ranks) {
        const double own = ranks.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1;
        double other = 0;
        ranks.send_receive<double>({&own, 1}, 1 - ranks.rank(), {&other, 1}, 1 - ranks.rank());
        maxima[ranks.rank()] = std::max(own, other);
        double sum = own;
        ranks.all_reduce(std::span(&sum, 1));
        sums[ranks.rank()] = sum;
    });
    const auto row = [](const std::string& name, const std::vector<double>& found) {
        const auto text = [](double x) {
            return std::isnan(x) ? std::string("NaN") : brief(x);
        };
        return TableRow{name, text(found[0]), text(found[1])};
    };
    show_table({"", "rank 0 sees", "rank 1 sees"}, {row("maximum", maxima), row("sum", sums)});
}

}  // namespace llm
