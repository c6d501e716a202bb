// What ./learn chat does with a model, apart from reading, generating and printing: it drops
// the oldest turns of a long conversation.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "chapters/11_generation/generation.hpp"
#include "chapters/14_fine_tuning/chat_template.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/models/family_model.hpp"

namespace llm::chat {

// With the fast path of chapters 15 and 16, or of a family of chapters/models.
using InferenceModel = std::variant<FastModel, models::FamilyModel>;
const Config& config_of(const InferenceModel& model);

// An empty sequence of a model, which must outlive it. Throws ValueError for a cache of another
// type than float32 unless the model is a FastModel.
CachedSequence make_cached_sequence(const InferenceModel& model,
                                    std::size_t num_positions,  // P
                                    DType cache_dtype = DType::float32);

// Drops the oldest turns, each a message of the user and its answer, until the conversation
// fits. System messages and the last message of the user stay. Returns the number of messages
// that were dropped.
std::size_t drop_oldest_turns(std::vector<Message>& messages,
                              const std::function<bool(const std::vector<Message>&)>& fits);

// The tokens that a prompt may have, so that there is room for an answer: the positions without
// max_new_tokens, but at least half of them.
std::size_t longest_prompt(std::size_t num_positions, std::size_t max_new_tokens);

// The calls of the calculator in an answer and their results, as the messages that the model
// reads before it answers. None if nothing is called, or the tokens ended inside a call. Throws
// ValueError for what is no call, and for other tools.
struct CalculatorUse {
    std::vector<Message> messages;
    std::vector<std::string> calculations;  // to show: "345 + 218 = 563"
};
CalculatorUse run_calculator(const std::string& answer);

// The date as Llama 3.2 reads it: "26 Jul 2024".
std::string today();

}  // namespace llm::chat
