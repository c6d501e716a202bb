#include "chapters/13_training/ngram.hpp"

#include <cmath>
#include <unordered_map>

#include "common/system/parallel.hpp"

namespace llm {
namespace {

// Encodes the tokens from end - length to end - 1 as one integer, with the digits in base
// vocab_size. A leading digit 1 makes the keys of n-grams of different lengths different.
std::uint64_t ngram_key(const std::vector<Id>& tokens, std::size_t end, std::size_t length,
                        std::size_t vocab_size) {
    std::uint64_t key = 1;
    for (std::size_t i = end - length; i < end; ++i)
        key = key * vocab_size + static_cast<std::uint64_t>(tokens[i]);
    return key;
}

// How often each n-gram of one length occurs.
struct NgramCounts {
    std::unordered_map<std::uint64_t, double> counts;
    std::uint64_t last = 0;  // the n-gram at the end of the text, which no token follows

    double count(std::uint64_t key) const {
        const auto found = counts.find(key);
        return found == counts.end() ? 0 : found->second;
    }
    // How often the n-gram is followed by a token.
    double count_as_context(std::uint64_t key) const { return count(key) - (key == last); }
};

// Returns the counts of the n-grams of 0 to `order` tokens.
std::vector<NgramCounts> count_ngrams(const std::vector<Id>& tokens, std::size_t vocab_size,
                                      std::size_t order) {
    std::vector<NgramCounts> ngrams(order + 1);
    parallel_for(order + 1, [&](std::size_t i) {
        const std::size_t length =
            order - i;  // the longest, which have the most entries, first
        NgramCounts& table = ngrams[length];
        for (std::size_t end = length; end <= tokens.size(); ++end)
            ++table.counts[table.last = ngram_key(tokens, end, length, vocab_size)];
    });
    return ngrams;
}

// Counts for the token at one position: of each context before it, from the empty one on, and
// of the n-grams that consist of the context and the token.
struct PositionCounts {
    std::vector<double> contexts, ngrams;
};

PositionCounts counts_at(const std::vector<NgramCounts>& ngrams, const std::vector<Id>& tokens,
                         std::size_t t, std::size_t vocab_size) {
    PositionCounts counts;
    for (std::size_t length = 0; length + 1 < ngrams.size() && length <= t; ++length) {
        const std::uint64_t context = ngram_key(tokens, t, length, vocab_size);
        const std::uint64_t ngram = ngram_key(tokens, t + 1, length + 1, vocab_size);
        counts.contexts.push_back(ngrams[length].count_as_context(context));
        counts.ngrams.push_back(ngrams[length + 1].count(ngram));
    }
    return counts;
}

// The mean of -ln p, for each pseudo-count and each order from 0 on.
std::vector<std::vector<double>> smoothed_losses(const std::vector<NgramCounts>& ngrams,
                                                 const std::vector<Id>& tokens,
                                                 std::size_t vocab_size,
                                                 const std::vector<double>& pseudo_counts) {
    const std::size_t order = ngrams.size() - 1;
    const std::vector<double> zeros(order + 1);
    std::vector<std::vector<double>> losses(pseudo_counts.size(), zeros);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        const auto [contexts, ngrams_here] = counts_at(ngrams, tokens, t, vocab_size);
        for (std::size_t i = 0; i < pseudo_counts.size(); ++i) {
            double p = 1 / static_cast<double>(vocab_size);
            for (std::size_t n = 0; n < order; ++n) {
                if (n < contexts.size())
                    p = (ngrams_here[n] + pseudo_counts[i] * p) /
                        (contexts[n] + pseudo_counts[i]);
                losses[i][n + 1] -= std::log(p) / static_cast<double>(tokens.size());
            }
        }
    }
    return losses;
}

}  // namespace

std::vector<double> ngram_losses(const Dataset& dataset, std::size_t vocab_size,
                                 std::size_t order, const std::vector<double>& pseudo_counts) {
    require(double(order) * std::log2(double(vocab_size)) < 63,
            "ngram_losses: {} tokens of {} do not fit into 64 bits", order, vocab_size);
    const std::vector<NgramCounts> ngrams = count_ngrams(dataset.train, vocab_size, order);
    const std::vector<std::vector<double>> losses =
        smoothed_losses(ngrams, dataset.validation, vocab_size, pseudo_counts);
    std::vector<double> best(order + 1, std::log(double(vocab_size)));
    for (std::size_t i = 0; i < pseudo_counts.size(); ++i)
        for (std::size_t n = 1; n <= order; ++n)
            best[n] = i == 0 ? losses[i][n] : std::min(best[n], losses[i][n]);
    return best;
}

}  // namespace llm
