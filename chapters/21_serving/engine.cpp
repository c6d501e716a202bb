#include "chapters/21_serving/engine.hpp"

#include "common/system/parallel.hpp"

namespace llm {

Engine::Engine(const FastModel& model, const EngineConfig& config)
    : model_(model),
      scheduler_(make_scheduler(config.scheduler, config.num_pages, config.page_size)),
      memory_(make_kv_memory(model.config, config.num_pages * config.page_size,
                             config.cache_dtype)),
      workspace_(make_workspace(model.config, model.config.max_position_embeddings)) {}

std::size_t Engine::submit(GenerationRequest request) {
    require(!request.config.context_shift, "serving: the context cannot be shifted");
    const std::size_t num_positions =
        num_cached_positions(model_.config, request.prompt_ids, request.config);
    const std::size_t number =
        llm::submit(scheduler_, request.prompt_ids, num_positions - request.prompt_ids.size(),
                    request.group);
    const std::uint32_t seed = request.seed;
    requests_.emplace(number, Running{std::move(request), Generator(seed)});
    return number;
}

bool Engine::cancel(std::size_t number) {
    requests_.erase(number);
    return llm::cancel(scheduler_, number);
}

std::vector<FinishedRequest> Engine::step() {
    const std::vector<PlannedTokens> plan = plan_step(scheduler_).tokens;
    if (plan.empty()) return {};
    const ConstMatrixView logits = compute(plan);  // (number of new tokens, V)
    const std::vector<NewToken> new_tokens = sample_all(plan, logits);

    std::vector<FinishedRequest> finished;
    for (ScheduledSequence& sequence : record_step(scheduler_, plan, new_tokens)) {
        Running& running = requests_.at(sequence.number);
        const auto first = sequence.ids.begin() + std::ptrdiff_t(sequence.prompt_len);
        GeneratedTokens generated{{first, sequence.ids.end()}};
        if (generated.ids.size() == running.request.config.max_new_tokens)
            generated.reason = StopReason::max_new_tokens;
        else if (sequence.ids.size() == model_.config.max_position_embeddings)
            generated.reason = StopReason::last_position;
        finished.push_back({sequence.number, std::move(generated), std::move(running.error)});
        requests_.erase(sequence.number);
    }
    return finished;
}

ConstMatrixView Engine::compute(std::span<const PlannedTokens> plan) {
    std::vector<SequenceTokens> batch;
    for (const auto& [i, count, gives_token] : plan) {
        const ScheduledSequence& sequence = scheduler_.running[i];
        batch.push_back({std::span(sequence.ids).subspan(sequence.num_cached, count),
                         sequence.num_cached,
                         {sequence.pages, scheduler_.pool.page_size()},
                         gives_token ? std::optional(LogitsToKeep::last) : std::nullopt});
    }
    return compute_logits(model_, batch, memory_, workspace_);
}

std::vector<NewToken> Engine::sample_all(std::span<const PlannedTokens> plan,
                                         ConstMatrixView logits) {
    // Each sequence has a generator of its own, so any thread can sample.
    std::vector<const ScheduledSequence*> sequences;
    for (const PlannedTokens& planned : plan)
        if (planned.gives_token) sequences.push_back(&scheduler_.running[planned.sequence]);
    std::vector<NewToken> new_tokens(sequences.size());
    parallel_for(sequences.size(),
                 [&](std::size_t i) { new_tokens[i] = sample(*sequences[i], logits[i]); });

    for (std::size_t i = 0; i < sequences.size(); ++i) {
        const auto& on_token = requests_.at(sequences[i]->number).request.on_token;
        if (on_token && !new_tokens[i].ends_sequence) on_token(new_tokens[i].id, logits[i]);
    }
    return new_tokens;
}

NewToken Engine::sample(const ScheduledSequence& sequence, std::span<const Real> row) try {
    auto& [request, generator, error] = requests_.at(sequence.number);
    Vector logits = to_vector(row);
    const std::span<const Id> new_ids = std::span(sequence.ids).subspan(sequence.prompt_len);
    if (request.config.logits_processor)
        logits = request.config.logits_processor(logits, new_ids);
    const Id id = sample_next_token(logits, sequence.ids, request.config.sampling, generator);
    const std::vector<Id>& eos = request.config.eos_token_ids;
    return {id, std::ranges::find(eos, id) != eos.end()};
} catch (const ValueError& failure) {
    // Logits that are not finite end this request, and no other one.
    requests_.at(sequence.number).error = failure.what();
    return {0, true};
}

std::vector<GeneratedTokens> generate_all(Engine& engine,
                                          const std::vector<GenerationRequest>& requests) {
    std::map<std::size_t, std::size_t> index_of;
    for (std::size_t i = 0; i < requests.size(); ++i) index_of[engine.submit(requests[i])] = i;
    std::vector<GeneratedTokens> generated(requests.size());
    while (!engine.idle())
        for (FinishedRequest& finished : engine.step()) {
            if (!finished.error.empty()) throw ValueError(finished.error);
            generated[index_of.at(finished.number)] = std::move(finished.generated);
        }
    return generated;
}

}  // namespace llm
