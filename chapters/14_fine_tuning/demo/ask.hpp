// Chapter 14, steps of the program: a question to the shipped model.
#pragma once

#include <cstddef>
#include <string>

namespace llm {

// The answer to a question, token by token. Without a model, that of assets/.
struct AskArguments {
    std::string question, model, adapter;
    std::size_t max_new_tokens = 48;
};
void ask_demo(AskArguments arguments);

}  // namespace llm
