#include "chapters/apps/serve/api/answer_format.hpp"

namespace llm::serve {

ChoicesFormat::ChoicesFormat(const ResponseHead& head, std::size_t num_choices, bool is_stream)
    : head_(head), is_stream_(is_stream), choices_(num_choices) {
    for (std::size_t i = 0; i < num_choices; ++i) choices_[i].index = i;
}

std::string ChoicesFormat::begin() {
    std::string events;
    for (std::size_t i = 0; head_.chat && i < choices_.size(); ++i)
        events += sse_event(role_chunk_json(head_, i));
    return events;
}

std::string ChoicesFormat::add(const Choice& part) {
    if (!is_stream_) {
        append(choices_[part.index], part);
        return {};
    }
    std::string events;
    for (const std::string& chunk : chunks_json(head_, part)) events += sse_event(chunk);
    return events;
}

std::string ChoicesFormat::finish(const Usage& usage) {
    usage_ = usage;
    return (head_.include_usage ? sse_event(usage_chunk_json(head_, usage)) : "") + sse_done;
}

std::string ChoicesFormat::fail(const ApiError& error) { return sse_event(error_json(error)); }

std::string ChoicesFormat::response_json() const {
    return serve::response_json(head_, choices_, usage_);
}

}  // namespace llm::serve
