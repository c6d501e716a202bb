#include "chapters/14_fine_tuning/rollouts.hpp"

#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

namespace llm {

namespace {

// Samples group_size answers to each prompt, in parallel.
std::vector<GeneratedTokens> sample_answers(const Model& model,
                                            const std::vector<std::vector<Id>>& prompts,
                                            std::size_t group_size,
                                            const GenerationConfig& config,
                                            Generator& generator) {
    const std::size_t num_samples = prompts.size() * group_size;
    std::vector<std::uint32_t> seeds(num_samples);
    for (std::uint32_t& seed : seeds) seed = generator.next_32_bits();
    std::vector<GeneratedTokens> answers(num_samples);
    parallel_for(num_samples, [&](std::size_t i) {
        InterruptHandler::throw_if_interrupted();
        Generator own_generator(seeds[i]);
        answers[i] = generate(model, prompts[i / group_size], config, own_generator);
    });
    return answers;
}

}  // namespace

Rollouts sample_rollouts(const Model& model, const std::vector<std::vector<Id>>& prompts,
                         std::size_t group_size, std::size_t max_new_tokens, Id stop_token_id,
                         Generator& generator) {
    require(!prompts.empty() && group_size > 0 && max_new_tokens > 0,
            "sample_rollouts: {} prompts, groups of {}, {} new tokens; none may be 0",
            prompts.size(), group_size, max_new_tokens);
    GenerationConfig config;
    config.max_new_tokens = max_new_tokens;
    config.eos_token_ids = {stop_token_id};

    Rollouts rollouts;
    for (const auto& [ids, reason] :
         sample_answers(model, prompts, group_size, config, generator)) {
        const std::size_t prompt = rollouts.completions.size() / group_size;
        Completion completion{prompts[prompt], ids};
        const bool finished = reason == StopReason::eos_token;
        if (finished) completion.response_ids.push_back(stop_token_id);
        rollouts.completions.push_back(std::move(completion));
        rollouts.finished.push_back(finished);
    }
    rollouts.batch = make_response_batch(rollouts.completions, stop_token_id);
    rollouts.old_log_probs = batch_log_probs(model, rollouts.batch);
    return rollouts;
}

}  // namespace llm
