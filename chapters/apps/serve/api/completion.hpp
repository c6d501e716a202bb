// From a validated request to the parts of its answers.
#pragma once

#include "chapters/apps/serve/api/openai_request.hpp"
#include "chapters/apps/serve/api/openai_response.hpp"
#include "chapters/apps/serve/loop/engine_loop.hpp"
#include "chapters/apps/serve/text/answer_text.hpp"
#include "chapters/apps/serve/text/tool_call_text.hpp"

namespace llm::serve {

// The answers of one request while they are generated. All of them are canceled if it is
// destroyed before they have ended. The model and the loop must outlive it.
class Completion {
 public:
    // Submits the sequences. Throws ApiError 429 if too many wait, 503 if the server stops.
    Completion(const ApiModel& model, const CompletionRequest& request, EngineLoop& loop,
               Clock::time_point deadline);

    // The next part of an answer, with text, with tokens or with a finish_reason; none if there
    // is none until then. At the deadline all answers end with the reason "length". Throws
    // ApiError 408 if there is no token yet at the deadline, 500 if a sequence fails, and 503
    // if the server stops.
    std::optional<Choice> next_part(Clock::time_point until);
    bool has_ended() const { return num_open_ == 0; }
    Usage usage() const { return usage_; }

 private:
    struct Answer {
        AnswerText text;
        ToolCallText calls{};
        std::vector<TokenDetails> tokens{};  // not yet returned
        std::size_t num_characters = 0;      // of the texts of its tokens
        bool has_ended = false;
    };

    std::optional<Choice> expire();
    std::optional<Choice> part_of(const SequenceEvent& event);
    Choice end(std::size_t index, const std::string& text, const std::string& reason);
    enum class TextEnd { none, complete, cut };  // after this text
    Choice part_with(std::size_t index, const std::string& text, TextEnd end);
    TokenDetails details(Answer& answer, const SampledToken& token) const;

    const ApiModel& model_;
    bool log_probs_, has_tools_;
    Clock::time_point deadline_;
    Usage usage_{};
    std::vector<Answer> answers_{};
    std::size_t num_open_ = 0;
    std::optional<OpenRequest> open_{};
};

}  // namespace llm::serve
