// Chapter 21, constrained: answers that may call tools: free text, and calls of a grammar.
#pragma once

#include "chapters/21_serving/constrained/token_mask.hpp"
#include "chapters/21_serving/constrained/tool_calls.hpp"

namespace llm {

struct ToolUse {
    bool required = false;  // the answer begins with a call
    bool parallel = true;   // it may have several calls
};

// The grammar of an answer: any text up to <tool_call>, then one or more calls with a line feed
// between them. An answer without a call is any text, unless one is required. llama.cpp calls
// this a lazy grammar; here it is an ordinary one, because text without a tag is a regular
// language. Throws ValueError as tool_call_grammar.
Grammar tool_use_grammar(const std::vector<Tool>& tools, const ToolUse& use = {});

// This grammar as GenerationConfig::logits_processor, for one answer: all tokens of text are
// allowed until the tag is complete, wherever tokens begin and end. The trie's EOS tokens must
// be those that end an answer. Special tokens other than these are never sampled.
std::function<Vector(const Vector& logits, std::span<const Id> new_ids)> tool_use_logits(
    std::shared_ptr<const TokenTrie> trie, const std::vector<Tool>& tools,
    const ToolUse& use = {});

// Makes the tags of a call text if they are special tokens, which decode() and tries omit.
void show_tool_tags(Tokenizer& tokenizer);

}  // namespace llm
