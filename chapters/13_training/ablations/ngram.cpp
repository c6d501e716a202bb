#include "chapters/13_training/ablations/ngram.hpp"

#include <cmath>
#include <unordered_map>

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

// Counts of the contexts (each followed by some token), and of the n-grams.
using Counts = std::unordered_map<std::uint64_t, double>;
struct NgramCounts {
    Counts contexts, ngrams;
};

NgramCounts count_ngrams(const std::vector<Id>& tokens, std::size_t vocab_size,
                         std::size_t order) {
    NgramCounts counts;
    for (std::size_t length = 0; length < order; ++length)
        for (std::size_t t = length; t < tokens.size(); ++t) {
            ++counts.contexts[ngram_key(tokens, t, length, vocab_size)];
            ++counts.ngrams[ngram_key(tokens, t + 1, length + 1, vocab_size)];
        }
    return counts;
}

double count_of(const Counts& counts, std::uint64_t key) {
    const auto found = counts.find(key);
    return found == counts.end() ? 0 : found->second;
}

// The mean of -ln p, for each order from 0 on.
std::vector<double> smoothed_losses(const NgramCounts& counts, const std::vector<Id>& tokens,
                                    std::size_t vocab_size, std::size_t order,
                                    double pseudo_count) {
    std::vector<double> losses(order + 1);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        double p = 1 / static_cast<double>(vocab_size);
        for (std::size_t length = 0; length < order; ++length) {
            if (length <= t) {
                const std::uint64_t context = ngram_key(tokens, t, length, vocab_size);
                const std::uint64_t ngram = ngram_key(tokens, t + 1, length + 1, vocab_size);
                p = (count_of(counts.ngrams, ngram) + pseudo_count * p) /
                    (count_of(counts.contexts, context) + pseudo_count);
            }
            losses[length + 1] -= std::log(p) / static_cast<double>(tokens.size());
        }
    }
    return losses;
}

}  // namespace

std::vector<double> ngram_losses(const Dataset& dataset, std::size_t vocab_size,
                                 std::size_t order, const std::vector<double>& pseudo_counts) {
    require(double(order) * std::log2(double(vocab_size)) < 63,
            "ngram_losses: {} tokens of {} do not fit into 64 bits", order, vocab_size);
    const NgramCounts counts = count_ngrams(dataset.train, vocab_size, order);
    std::vector<double> best(order + 1, std::log(double(vocab_size)));
    for (std::size_t i = 0; i < pseudo_counts.size(); ++i) {
        const std::vector<double> losses =
            smoothed_losses(counts, dataset.validation, vocab_size, order, pseudo_counts[i]);
        for (std::size_t n = 1; n <= order; ++n)
            best[n] = i == 0 ? losses[n] : std::min(best[n], losses[n]);
    }
    return best;
}

}  // namespace llm
