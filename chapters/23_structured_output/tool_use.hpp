// Chapter 23, file 7 of 7: answers that may call tools: free text, and calls of a grammar.
#pragma once

#include "chapters/23_structured_output/token_mask.hpp"
#include "chapters/23_structured_output/tool_calls.hpp"

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
// allowed until the tag is complete, wherever tokens begin and end. Special tokens other than
// the trie's EOS tokens are never sampled.
std::function<Vector(const Vector& logits, std::span<const Id> new_ids)> tool_use_logits(
    std::shared_ptr<const TokenTrie> trie, const std::vector<Tool>& tools,
    const ToolUse& use = {});

// The trie for answers that may call tools and end with one of these tokens. Special tokens
// that are tags of a call become text, in the tokenizer too: decode() would omit them.
std::shared_ptr<const TokenTrie> make_tool_trie(Tokenizer& tokenizer,
                                                const std::vector<Id>& eos_token_ids);

}  // namespace llm
