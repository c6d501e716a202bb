// How an endpoint writes an answer: at once, or as server-sent events while it is generated.
#pragma once

#include <string>

#include "chapters/apps/serve/api/openai_response.hpp"

namespace llm::serve {

class AnswerFormat {
 public:
    virtual ~AnswerFormat() = default;

    // The events, which only a stream has: before its first part, of a part, and after the last
    // one, or of an error in between, which cannot have a status any more.
    virtual std::string begin() = 0;
    virtual std::string add(const Choice& part) = 0;
    virtual std::string finish(const Usage& usage) = 0;
    virtual std::string fail(const ApiError& error) = 0;

    // The whole answer, after finish(), if it is no stream.
    virtual std::string response_json() const = 0;
};

// Of /v1/chat/completions and /v1/completions.
class ChoicesFormat : public AnswerFormat {
 public:
    ChoicesFormat(const ResponseHead& head, std::size_t num_choices, bool is_stream);
    std::string begin() override;
    std::string add(const Choice& part) override;
    std::string finish(const Usage& usage) override;
    std::string fail(const ApiError& error) override;
    std::string response_json() const override;

 private:
    ResponseHead head_;
    bool is_stream_;
    std::vector<Choice> choices_;
    Usage usage_{};
};

}  // namespace llm::serve
