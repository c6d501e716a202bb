// The page at /: a chat in the browser.
#pragma once

namespace llm::serve {

// HTML with its own style and script. It loads nothing else.
extern const char* const chat_page;

}  // namespace llm::serve
