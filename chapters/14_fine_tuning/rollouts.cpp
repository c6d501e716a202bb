#include "chapters/14_fine_tuning/rollouts.hpp"

#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

namespace llm {

namespace {

// Samples group_size answers to each prompt, in parallel.
std::vector<Completion> sample_completions(const Model& model,
                                           const std::vector<std::vector<Id>>& prompts,
                                           std::size_t group_size,
                                           const GenerationConfig& config,
                                           Generator& generator) {
    const std::size_t num_samples = prompts.size() * group_size;
    std::vector<std::uint32_t> seeds(num_samples);
    for (std::uint32_t& seed : seeds) seed = generator.next_32_bits();
    std::vector<Completion> completions(num_samples);
    parallel_for(num_samples, [&](std::size_t i) {
        InterruptHandler::throw_if_interrupted();
        Generator own_generator(seeds[i]);
        const std::vector<Id>& prompt_ids = prompts[i / group_size];
        completions[i] = {prompt_ids, generate(model, prompt_ids, config, own_generator)};
    });
    return completions;
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

    Rollouts rollouts{
        sample_completions(model, prompts, group_size, config, generator), {}, {}, {}};
    // generate() does not return the stop token. It ended those answers that could go on.
    for (auto& [prompt_ids, response_ids] : rollouts.completions) {
        const bool full =
            prompt_ids.size() + response_ids.size() >= model.config.max_position_embeddings;
        const bool stopped = response_ids.size() < max_new_tokens && !full;
        if (stopped) response_ids.push_back(stop_token_id);
        rollouts.finished.push_back(stopped);
    }
    rollouts.batch = make_response_batch(rollouts.completions, stop_token_id);
    rollouts.old_log_probs = batch_log_probs(model, rollouts.batch);
    return rollouts;
}

}  // namespace llm
