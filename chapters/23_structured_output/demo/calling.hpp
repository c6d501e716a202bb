// Chapter 23: a model that was trained to call a tool.
#pragma once

namespace llm {

void calls_of_the_chat_model();

}  // namespace llm
