// Chapter 21, file 3 of 3: a model that answers many requests at once.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "chapters/15_fast/inference.hpp"
#include "chapters/21_serving/scheduler.hpp"

namespace llm {

struct EngineConfig {
    SchedulerConfig scheduler{};
    std::size_t num_pages = 128, page_size = 16;
    DType cache_dtype = DType::float32;
};

// A prompt and how to continue it. Each new token is passed to on_token, with the logits (V)
// that it was sampled from. A request has a generator of its own, so its text does not depend
// on the other requests. Several threads sample, each for other requests: a logits processor
// must not change what another request uses.
struct GenerationRequest {
    std::vector<Id> prompt_ids;
    GenerationConfig config{};
    std::uint32_t seed = 0;
    std::optional<std::size_t> group{};  // the scheduler treats groups alike; none: its own
    std::function<void(Id, std::span<const Real> logits)> on_token{};
};

struct FinishedRequest {
    std::size_t number = 0;
    GeneratedTokens generated{};
    std::string error{};  // why it could not go on, if it could not
};

// Serves requests with one model, one step at a time. The model must outlive it.
class Engine {
 public:
    Engine(const FastModel& model, const EngineConfig& config);

    // Returns the number of the request. Throws ValueError if the prompt is empty or too long,
    // has a token that is not in the vocabulary, or needs more pages than there are, and if the
    // context is to be shifted: pages are shared, so their tokens keep their positions.
    std::size_t submit(GenerationRequest request);
    bool cancel(std::size_t number);  // false: it is not (or no longer) here

    // Plans a step, computes it, and samples the new tokens. Returns the requests that it
    // finished.
    std::vector<FinishedRequest> step();
    bool idle() const { return scheduler_.idle(); }
    const Scheduler& scheduler() const { return scheduler_; }

 private:
    struct Running {
        GenerationRequest request;
        Generator generator;
        std::string error{};
    };
    ConstMatrixView compute(std::span<const PlannedTokens> plan);
    std::vector<NewToken> sample_all(std::span<const PlannedTokens> plan,
                                     ConstMatrixView logits);  // a row for each new token
    NewToken sample(const ScheduledSequence& sequence, std::span<const Real> logits);  // (V)

    const FastModel& model_;
    Scheduler scheduler_;
    KVMemory memory_;
    Workspace workspace_;
    std::map<std::size_t, Running> requests_;  // by number
};

// Serves all requests, and returns the generated tokens of each.
std::vector<GeneratedTokens> generate_all(Engine& engine,
                                          const std::vector<GenerationRequest>& requests);

}  // namespace llm
