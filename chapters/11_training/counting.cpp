#include "chapters/11_training/counting.hpp"

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

}  // namespace

std::vector<double> ngram_losses(const Corpus& corpus, std::size_t vocab_size,
                                 std::size_t order) {
    require(double(order) * std::log2(double(vocab_size)) < 63,
            "ngram_losses: {} tokens of {} do not fit into 64 bits", order, vocab_size);
    const ContextCounts counts = counts_of(corpus.training, vocab_size, order);
    const std::vector<Id>& tokens = corpus.validation;
    const auto share = 1 / static_cast<double>(tokens.size());
    std::vector<double> losses(order + 1);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
        double p = 1 / static_cast<double>(vocab_size);
        losses[0] -= std::log(p) * share;
        for (std::size_t length = 0; length < order; ++length) {
            if (length <= t) {
                const std::uint64_t context = as_number(tokens, t, length, vocab_size);
                const std::uint64_t longer = as_number(tokens, t + 1, length + 1, vocab_size);
                p = (count_in(counts.continued, longer) + p) /
                    (count_in(counts.followed, context) + 1);
            }
            losses[length + 1] -= std::log(p) * share;
        }
    }
    return losses;
}

}  // namespace llm
