// What ./learn chat does with a model, apart from reading and printing: it keeps the KV cache
// of the conversation, samples answers, and drops the oldest turns of a long conversation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "chapters/11_generation/generation.hpp"
#include "chapters/14_fine_tuning/chat_template.hpp"
#include "chapters/15_fast/inference.hpp"

namespace llm {

// The tokens whose keys and values a run state holds.
struct CachedSequence {
    RunState state;
    std::vector<Id> ids;  // state.seq_len of them
};

// The logits of the token after a sequence of at least one token. Keys and values of the
// longest common prefix of the sequence and the cached one are kept; only the tokens after it
// are computed. An earlier message that is rendered differently, or dropped, changes the tokens
// from there on. Throws Interrupted after Ctrl-C, with the tokens computed so far in the cache,
// and ShapeError as compute_logits.
Vector next_token_logits(const FastModel& model, const std::vector<Id>& ids,  // (T) -> (V)
                         CachedSequence& cache);

// Samples tokens after a prompt until one of eos_token_ids, until there are max_new_tokens,
// until the positions of the cache are full, or until Ctrl-C. Passes each token to on_token
// before it computes the next one.
enum class StopReason { eos_token, max_new_tokens, last_position, interrupted };
struct Answer {
    std::vector<Id> ids;  // without the EOS token
    StopReason reason = StopReason::eos_token;
};
Answer generate_answer(const FastModel& model, const std::vector<Id>& prompt_ids,
                       const GenerationConfig& config, Generator& generator,
                       CachedSequence& cache, const std::function<void(Id)>& on_token);

// Drops the oldest turns, each a message of the user and its answer, until the conversation
// fits. System messages and the last message of the user stay. Returns the number of messages
// that were dropped.
std::size_t drop_oldest_turns(std::vector<Message>& messages,
                              const std::function<bool(const std::vector<Message>&)>& fits);

// The tokens that a prompt may have, so that there is room for an answer: the positions without
// max_new_tokens, but at least half of them.
std::size_t max_prompt_tokens(std::size_t num_positions, std::size_t max_new_tokens);

}  // namespace llm
