// ./learn bench: one head of softmax attention and of linear attention, by length.
#include "chapters/05_gqa/attention.hpp"
#include "chapters/20_linear_attention/chunked.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "common/system/timer.hpp"

namespace llm::bench {
namespace {

constexpr std::size_t head_dim = 64, block = 64;

HeadInputs random_head(std::size_t seq_len, Generator& generator) {
    return {randn({seq_len, head_dim}, generator),
            randn({seq_len, head_dim}, generator) / Real(8),
            randn({seq_len, head_dim}, generator), uniform({seq_len}, Real(-0.1), 0, generator),
            uniform({seq_len}, 0, 1, generator)};
}

// Causal softmax attention, for blocks of queries, so that the scores fit into the cache.
void softmax_attention(const HeadInputs& inputs) {
    const std::size_t seq_len = inputs.keys.shape(0);
    for (std::size_t first = 0; first < seq_len; first += block) {
        const std::size_t end = std::min(first + block, seq_len);
        const auto tokens = [&](const Matrix& states, std::size_t begin) -> Matrix {
            return xt::view(states, xt::range(begin, end), xt::all());
        };
        Matrix mask = xt::zeros<Real>({end - first, end});
        for (std::size_t t = first; t < end; ++t)
            for (std::size_t s = t + 1; s < end; ++s) mask(t - first, s) = -infinity;
        attention(tokens(inputs.queries, first), tokens(inputs.keys, 0),
                  tokens(inputs.values, 0), mask);
    }
}

// The fewest seconds of a few calls, as text.
std::string seconds_of(int repetitions, const std::function<void()>& function) {
    double fewest = 1e9;
    for (int i = 0; i < repetitions; ++i) {
        const double start = elapsed_seconds();
        function();
        fewest = std::min(fewest, elapsed_seconds() - start);
    }
    return fixed(fewest, 4);
}

}  // namespace

void benchmark_linear_attention(Generator& generator, int repetitions) {
    step("One head of 64 features, by length: seconds");
    const Matrix zero = xt::zeros<Real>({head_dim, head_dim});
    std::vector<TableRow> rows;
    const std::vector<std::size_t> lengths =
        repetitions > 1 ? std::vector<std::size_t>{256, 1024, 4096, 16384}
                        : std::vector<std::size_t>{256};
    for (const std::size_t seq_len : lengths) {
        show_progress(to_text(seq_len) + " tokens");
        const HeadInputs inputs = random_head(seq_len, generator);
        const auto chunked = [&](std::size_t chunk_size) {
            return seconds_of(repetitions, [&] {
                chunked_form(inputs, UpdateRule::delta, zero, chunk_size);
            });
        };
        rows.push_back(
            {with_commas(seq_len), seconds_of(repetitions, [&] { softmax_attention(inputs); }),
             seconds_of(repetitions, [&] { recurrent_form(inputs, UpdateRule::delta, zero); }),
             chunked(block), seq_len <= 4096 ? chunked(seq_len) : "-"});
    }
    show_progress("");
    show_table({"tokens", "softmax", "recurrent", "chunks of 64", "parallel"}, rows);
}

}  // namespace llm::bench
