#include "tests/support/chi_square.hpp"
#include "tests/support/mtp_helpers.hpp"
#include "tests/support/speculative_helpers.hpp"

using namespace llm;

namespace {

constexpr std::size_t num_ids = 7, num_new = 3;
#ifdef LLM_SANITIZE  // for memory errors, a tenth of the samples is enough
constexpr std::size_t num_samples = 600;
#else
constexpr std::size_t num_samples = 6000;
#endif
const IdList sampled_prompt = {1, 5, 2};
constexpr Id eos = 4;

// The probability of each continuation of 3 tokens, (num_ids * num_ids * num_ids), computed one
// after another. After an EOS token, all further ones are EOS tokens.
std::vector<double> continuations(const FastModel& model, const GenerationConfig& config) {
    std::vector<double> result;
    CachedSequence cached = make_cached_sequence(model, 40);
    const auto distribution = [&](const IdList& ids) {
        const bool ended = ids.size() > sampled_prompt.size() && ids.back() == eos;
        return ended
                   ? one_hot(eos, num_ids)
                   : token_probabilities(next_token_logits(ids, cached), ids, config.sampling);
    };
    const Vector first = distribution(sampled_prompt);
    for (Id a = 0; a < Id(num_ids); ++a) {
        IdList ids = sampled_prompt;
        ids.push_back(a);
        const Vector second = distribution(ids);
        for (Id b = 0; b < Id(num_ids); ++b) {
            ids.push_back(b);
            const Vector third = distribution(ids);
            for (std::size_t c = 0; c < num_ids; ++c)
                result.push_back(double(first(std::size_t(a))) *
                                 double(second(std::size_t(b))) * double(third(c)));
            ids.pop_back();
        }
    }
    return result;
}

// Samples continuations, and compares their frequencies. Returns the rate of acceptance.
double check_continuations(TargetSequence& target, Proposer& proposer, std::size_t K,
                           const SamplingConfig& sampling) {
    CAPTURE(K);
    const FastModel& model = target.model;
    const GenerationConfig config{
        .sampling = sampling, .max_new_tokens = num_new, .eos_token_ids = {eos}};
    Generator generator(21);
    std::vector<std::size_t> counts(num_ids * num_ids * num_ids);
    std::size_t accepted = 0, proposed = 0;
    for (std::size_t i = 0; i < num_samples; ++i) {
        const auto [generated, statistics] =
            generate_speculatively(target, proposer, K, sampled_prompt, config, generator);
        IdList ids = generated.ids;
        CHECK((ids.size() == num_new) == (generated.reason == StopReason::max_new_tokens));
        ids.resize(num_new, eos);
        ++counts[std::size_t((ids[0] * Id(num_ids) + ids[1]) * Id(num_ids) + ids[2])];
        accepted += statistics.accepted;
        proposed += statistics.proposed;
    }
    check_frequencies(counts, continuations(model, config));
    return double(accepted) / double(proposed);
}
double check_continuations(Proposer& proposer, std::size_t K, const SamplingConfig& sampling) {
    TargetSequence target = make_target_sequence(tiny(1), 40);
    return check_continuations(target, proposer, K, sampling);
}

}  // namespace

TEST_CASE("sampled continuations have the target's distribution, with good and bad drafts") {
    Garbage garbage(num_ids, {3, 0, 6, 2}, true), uniform(num_ids, {}, false);
    NgramProposer ngram(num_ids);
    DraftModel other(tiny(2), 40), itself(tiny(1), 40);
    const FastMtpModule module = make_fast_mtp_module(tiny_mtp_module(3), tiny(1));
    const SamplingConfig plain{.temperature = 1};
    const SamplingConfig all{
        .temperature = 0.8f, .top_k = 6, .top_p = 0.95f, .repetition_penalty = 1.6f};
    for (const SamplingConfig& sampling : {plain, all}) {
        CAPTURE(sampling.top_k);
        check_continuations(garbage, 2, sampling);
        check_continuations(uniform, 2, sampling);
        check_continuations(uniform, 1, sampling);
        check_continuations(ngram, 2, sampling);
        check_continuations(other, 2, sampling);
        CHECK(check_continuations(itself, 2, sampling) > 0.999);
        TargetSequence target = make_target_sequence(tiny(1), 40);
        MtpDraft mtp(module, target);
        check_continuations(target, mtp, 2, sampling);
    }
}

TEST_CASE("the first proposal is accepted with the probability of the sum of min p and q") {
    const SamplingConfig sampling{.temperature = 0.9f, .top_p = 0.95f};
    const GenerationConfig config{.sampling = sampling, .max_new_tokens = 2};
    const auto distribution = [&](const FastModel& model) {
        CachedSequence cached = make_cached_sequence(model, 40);
        return token_probabilities(next_token_logits(sampled_prompt, cached), sampled_prompt,
                                   sampling);
    };
    const double alpha = acceptance_probability(distribution(tiny(1)), distribution(tiny(2)));
    TargetSequence target = make_target_sequence(tiny(1), 40);
    DraftModel draft(tiny(2), 40);
    Generator generator(5);
    std::size_t accepted = 0;
    for (std::size_t i = 0; i < num_samples; ++i)
        accepted += generate_speculatively(target, draft, 1, sampled_prompt, config, generator)
                        .statistics.steps == 1;
    const double deviation = std::sqrt(alpha * (1 - alpha) / num_samples);
    CHECK(std::abs(double(accepted) / num_samples - alpha) < 4 * deviation);
    CHECK(alpha > 0.2);
    CHECK(alpha < 0.9);
}
