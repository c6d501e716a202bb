#include "chapters/14_fine_tuning/evaluation.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

namespace llm {

Interval wilson_interval(const Score& score) {
    const double n = double(score.num_questions), p = double(score.num_correct) / n;
    const double z = 1.959964;  // 95 % of a normal distribution are within ± z
    const double center = p + z * z / (2 * n);
    const double half = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    return {std::max(0.0, (center - half) / (1 + z * z / n)),
            std::min(1.0, (center + half) / (1 + z * z / n))};
}

double pass_at_k(std::size_t n, std::size_t num_correct, std::size_t k) {
    require(num_correct <= n && k >= 1 && k <= n,
            "pass_at_k: {} correct of {} samples, and k is {}", num_correct, n, k);
    // C(n - c, k) / C(n, k): the probability that all k are among the n - c wrong ones.
    double all_wrong = 1;
    for (std::size_t i = 0; i < k; ++i)
        all_wrong *= i < n - num_correct ? double(n - num_correct - i) / double(n - i) : 0;
    return 1 - all_wrong;
}

PairedDifference paired_bootstrap(const Vector& first, const Vector& second,
                                  Generator& generator, std::size_t num_resamples) {
    const std::size_t count = first.size();
    require(count > 0 && second.size() == count && num_resamples > 0,
            "paired_bootstrap: {} and {} scores are no pairs", count, second.size());
    const Vector differences = second - first;
    const auto mean_of = [&](auto next_index) {
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum += double(differences(next_index(i)));
        return sum / double(count);
    };
    std::vector<double> means(num_resamples);
    for (double& mean : means)
        mean = mean_of([&](std::size_t) { return generator.next_32_bits() % count; });
    std::sort(means.begin(), means.end());
    const auto quantile = [&](double q) {
        return means[static_cast<std::size_t>(q * double(num_resamples - 1))];
    };
    return {mean_of([](std::size_t i) { return i; }), {quantile(0.025), quantile(0.975)}};
}

std::size_t most_likely_choice(const Vector& log_probs, const std::vector<std::size_t>& lengths,
                               ChoiceScore choice_score) {
    require(log_probs.size() > 0 && lengths.size() == log_probs.size(),
            "most_likely_choice: {} log-probabilities and {} lengths", log_probs.size(),
            lengths.size());
    std::size_t best = 0;
    double highest = -std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < lengths.size(); ++k) {
        require(lengths[k] > 0, "most_likely_choice: choice {} has no tokens", k);
        const double divisor = choice_score == ChoiceScore::sum ? 1 : double(lengths[k]);
        if (double(log_probs(k)) / divisor <= highest) continue;
        highest = double(log_probs(k)) / divisor;
        best = k;
    }
    return best;
}

namespace {

// The words of a text in lower case, each between two spaces: " what is 47 + 54 ".
std::string words_of(const std::string& text) {
    constexpr std::string_view signs = ".,;:!?\"'()";
    std::string words = " ";
    for (const char c : text) {
        const bool is_space = std::isspace(static_cast<unsigned char>(c)) != 0;
        if (!is_space && signs.find(c) == signs.npos)
            words += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        else if (words.back() != ' ')
            words += ' ';
    }
    return words.back() == ' ' ? words : words + ' ';
}

}  // namespace

std::vector<bool> contaminated(const std::vector<std::string>& held_out,
                               const std::vector<std::string>& training) {
    std::string all = " ";
    for (const std::string& text : training) all += "\n" + words_of(text);
    std::vector<bool> result;
    for (const std::string& text : held_out)
        result.push_back(all.find(words_of(text)) != std::string::npos);
    return result;
}

}  // namespace llm
