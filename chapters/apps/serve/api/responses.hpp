// Open Responses (/v1/responses): a conversation as items, an answer as events. It becomes a
// request of chats, and the parts of its answer become items. Nothing is stored. Sources:
// openresponses.org, 2026; OpenAI's API reference, "Responses".
#pragma once

#include <nlohmann/json.hpp>

#include "chapters/apps/serve/api/answer_format.hpp"
#include "chapters/apps/serve/api/openai_request.hpp"

namespace llm::serve {

// Throws ApiError 400, which names the field, as parse_chat_request; 404 for another model.
CompletionRequest parse_responses_request(std::string_view body, const ApiModel& model);

class ResponseItems : public AnswerFormat {
 public:
    ResponseItems(const ResponseHead& head, std::string_view body);
    std::string begin() override;
    std::string add(const Choice& part) override;
    std::string finish(const Usage& usage) override;
    std::string fail(const ApiError& error) override;
    std::string response_json() const override { return response_.dump(); }

 private:
    using json = nlohmann::ordered_json;
    json make_response(const char* status) const;
    std::string event(const char* type, const json& members);
    std::string item_event(const char* type, json members);  // of the last item
    std::string open(const char* kind, json item);
    std::string close(const char* status);
    std::string add_text(const std::string& text);
    std::string add_call(const ToolCallPart& call);

    ResponseHead head_;
    json request_, output_ = json::array();
    bool is_open_ = false;  // may the last item still grow?
    std::size_t num_events_ = 0;
    std::string finish_reason_{};
    json response_;  // made of the others
};

}  // namespace llm::serve
