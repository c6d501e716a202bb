#include "chapters/13_training/ablations/ngram.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace llm {
namespace {

// So many tokens before a place as one number: as digits behind a 1.
std::uint64_t as_number(const std::vector<Id>& tokens, std::size_t end, std::size_t length,
                        std::size_t vocab_size) {
    std::uint64_t number = 1;
    for (std::size_t i = end - length; i < end; ++i)
        number = number * vocab_size + static_cast<std::uint64_t>(tokens[i]);
    return number;
}

// How often a text has a context with a token behind it, and both together.
using Counts = std::unordered_map<std::uint64_t, double>;
struct ContextCounts {
    Counts followed, continued;
};

ContextCounts counts_of(const std::vector<Id>& tokens, std::size_t vocab_size,
                        std::size_t order) {
    ContextCounts counts;
    for (std::size_t length = 0; length < order; ++length)
        for (std::size_t t = length; t < tokens.size(); ++t) {
            ++counts.followed[as_number(tokens, t, length, vocab_size)];
            ++counts.continued[as_number(tokens, t + 1, length + 1, vocab_size)];
        }
    return counts;
}

double count_in(const Counts& counts, std::uint64_t number) {
    const auto found = counts.find(number);
    return found == counts.end() ? 0 : found->second;
}

// The mean of -ln p, for each number of tokens before.
std::vector<double> losses_with(const ContextCounts& counts, const std::vector<Id>& tokens,
                                std::size_t vocab_size, std::size_t order, double weight) {
    std::vector<double> losses(order + 1);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        double p = 1 / static_cast<double>(vocab_size);
        for (std::size_t length = 0; length < order; ++length) {
            if (length <= t) {
                const std::uint64_t context = as_number(tokens, t, length, vocab_size);
                const std::uint64_t longer = as_number(tokens, t + 1, length + 1, vocab_size);
                p = (count_in(counts.continued, longer) + weight * p) /
                    (count_in(counts.followed, context) + weight);
            }
            losses[length + 1] -= std::log(p) / static_cast<double>(tokens.size());
        }
    }
    return losses;
}

}  // namespace

std::vector<double> ngram_losses(const Corpus& corpus, std::size_t vocab_size,
                                 std::size_t order, const std::vector<double>& weights) {
    require(double(order) * std::log2(double(vocab_size)) < 63,
            "ngram_losses: {} tokens of {} do not fit into 64 bits", order, vocab_size);
    const ContextCounts counts = counts_of(corpus.training, vocab_size, order);
    std::vector<double> best(order + 1, std::log(double(vocab_size)));
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const std::vector<double> losses =
            losses_with(counts, corpus.validation, vocab_size, order, weights[i]);
        for (std::size_t n = 1; n <= order; ++n)
            best[n] = i == 0 ? losses[n] : std::min(best[n], losses[n]);
    }
    return best;
}

}  // namespace llm
