// The messages of a request.
#pragma once

#include "chapters/14_fine_tuning/chat_template.hpp"
#include "chapters/apps/serve/api/request_fields.hpp"

namespace llm::serve {

// Reads the field "messages". Each result of a tool must belong to a call of the last answer,
// and each call must have one. Throws ApiError 400, which names the message and the field.
std::vector<Message> read_messages(RequestFields& fields, const ChatTemplate& chat_template);

}  // namespace llm::serve
