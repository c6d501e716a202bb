#include "chapters/22_speculation/speculative_decoding.hpp"

namespace llm {
namespace {

void crop(CachedSequence& cached, std::size_t count) {
    cached.cache->crop(count);
    cached.ids.resize(count);
}

// The logits after the last token of the context and after each proposed token.
ConstMatrixView logits_of_all(TargetSequence& target, Id last,  // (K + 1, V)
                              const std::vector<Id>& proposed) {
    std::vector<Id> new_ids = {last};
    new_ids.insert(new_ids.end(), proposed.begin(), proposed.end());
    const ConstMatrixView logits = target.sequence.compute(new_ids, LogitsToKeep::all);
    std::vector<Id>& cached_ids = target.cached.ids;
    cached_ids.insert(cached_ids.end(), new_ids.begin(), new_ids.end());
    return logits;
}

// The tokens so far and the first `count` proposed ones.
std::vector<Id> with_proposed(std::vector<Id> ids, const Proposal& proposal,
                              std::size_t count) {
    const auto first = proposal.ids.begin();
    ids.insert(ids.end(), first, first + std::ptrdiff_t(count));
    return ids;
}

}  // namespace

TargetSequence make_target_sequence(const FastModel& model, std::size_t num_positions,
                                    DType cache_dtype) {
    CachedSequence cached = make_cached_sequence(model, num_positions, cache_dtype);
    FastSequence& sequence = static_cast<FastSequence&>(*cached.cache);
    sequence.keep_hidden_states();
    return {model, std::move(cached), sequence};
}

void fill_cache(TargetSequence& target, const std::vector<Id>& context) {
    CachedSequence& cached = target.cached;
    const std::vector<Id> prefix(context.begin(), context.end() - 1);
    if (cached.ids == prefix) return;
    if (prefix.empty()) return crop(cached, 0);
    next_token_logits(prefix, cached);
}

std::vector<Id> verify_proposal(TargetSequence& target, const Proposal& proposal,
                                const std::vector<Id>& ids, const std::vector<Id>& context,
                                const GenerationConfig& config, Generator& generator,
                                SpeculativeStatistics& statistics) {
    // Compute the K + 1 rows of logits in one forward pass.
    InterruptHandler::throw_if_interrupted();
    fill_cache(target, context);
    const ConstMatrixView logits =  // (K + 1, V)
        logits_of_all(target, context.back(), proposal.ids);

    // Accept proposals. Each position has its own prefix: the repetition penalty depends on it.
    const auto distribution = [&](std::size_t k) {  // -> (V)
        return token_probabilities(to_vector(logits[k]), with_proposed(ids, proposal, k),
                                   config.sampling);
    };
    std::vector<Id> tokens = accept_proposal(proposal, distribution, generator);
    ++statistics.steps;
    statistics.proposed += proposal.size();
    statistics.accepted += tokens.size() - 1;

    // Drop what follows an EOS token, and crop rejected tokens from the cache. The last of the
    // new tokens does not belong into it: either it was sampled from the logits, and has not
    // been computed yet, or it is an EOS token, which generate does not return.
    const std::vector<Id>& ends = config.eos_token_ids;
    const auto eos = std::find_first_of(tokens.begin(), tokens.end(), ends.begin(), ends.end());
    if (eos != tokens.end()) tokens.erase(eos + 1, tokens.end());
    crop(target.cached, context.size() + tokens.size() - 1);
    return tokens;
}

namespace {

void check_arguments(const TargetSequence& target, const Proposer& proposer,
                     const std::vector<Id>& prompt_ids, const GenerationConfig& config) {
    const std::size_t vocab_size = target.model.config.vocab_size;
    require(!prompt_ids.empty(), "generate: the prompt must have at least one token");
    require(proposer.vocab_size() == vocab_size,
            "speculative decoding: the draft has a vocabulary of {} tokens, the target of {}",
            proposer.vocab_size(), vocab_size);
    require(!config.logits_processor,
            "speculative decoding: a logits processor is not supported");
}

}  // namespace

SpeculativeTokens generate_speculatively(TargetSequence& target, Proposer& proposer,
                                         std::size_t num_speculative_tokens,
                                         const std::vector<Id>& prompt_ids,
                                         const GenerationConfig& config, Generator& generator,
                                         const std::function<void(Id)>& on_token) {
    check_arguments(target, proposer, prompt_ids, config);
    SpeculativeTokens result;
    const NextTokens propose_and_verify = [&](const std::vector<Id>& ids,
                                              const std::vector<Id>& context,
                                              std::size_t max_tokens) {
        // Leave room for the token that follows the accepted ones.
        const std::size_t max_proposed = std::min(num_speculative_tokens, max_tokens - 1);
        const Proposal proposal =
            proposer.propose(context, max_proposed, config.sampling, generator);
        require(proposal.size() <= max_proposed,
                "speculative decoding: the draft proposes {} tokens instead of at most {}",
                proposal.size(), max_proposed);
        return verify_proposal(target, proposal, ids, context, config, generator,
                               result.statistics);
    };
    result.generated =
        generate(target.cached, prompt_ids, config, propose_and_verify, on_token);
    return result;
}

}  // namespace llm
