// What the tests of ./learn serve share: a tokenizer of bytes and a model with its vocabulary.
#pragma once

#include "chapters/apps/serve/api/api_error.hpp"
#include "chapters/apps/serve/api/completion.hpp"
#include "tests/support/fast_helpers.hpp"

namespace llm {

// Token b + 3 is the byte b; 2 ends a text.
inline Id byte_id(char byte) { return Id(static_cast<unsigned char>(byte)) + 3; }

inline serve::ApiModel byte_model() {
    serve::ApiModel model{"bytes", byte_tokenizer()};
    model.tokenizer.prefix_tokens.clear();  // no <s> before a text
    model.eos_token_ids = model.tokenizer.eos_token_ids = {2};
    model.trie = std::make_shared<TokenTrie>(make_token_trie(model.tokenizer));
    model.context_length = 200;
    model.max_prompt_tokens = 150;
    return model;
}

// The names that a chat template needs: the byte tokenizer has no special tokens.
inline serve::ApiModel chat_model() {
    serve::ApiModel model = byte_model();
    model.chat_template = ChatTemplate{};
    model.tokenizer.added_tokens.push_back({"<|im_start|>", 0});
    model.tokenizer.added_tokens.push_back({"<|im_end|>", 1});
    model.tokenizer.vocab["<|im_start|>"] = 0;
    model.tokenizer.vocab["<|im_end|>"] = 1;
    return model;
}

// "400 param code: message" of the error, or "accepted".
inline std::string error_of(const std::string& body, bool chat, const serve::ApiModel& model) {
    try {
        chat ? parse_chat_request(body, model) : parse_completion_request(body, model);
        return "accepted";
    } catch (const serve::ApiError& error) {
        return std::to_string(error.status) + " " + error.param + " " + error.code + ": " +
               error.what();
    }
}

// A random model of 259 tokens.
inline const FastModel& random_model() {
    static const FastModel model = [] {
        Config config = odd_config();
        config.vocab_size = 259;
        Generator generator(3);
        return make_fast_model(make_test_model(config, generator), DType::float32);
    }();
    return model;
}

}  // namespace llm
