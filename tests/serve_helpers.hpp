// What the tests of ./learn serve share: a tokenizer of bytes and a model with its vocabulary.
#pragma once

#include "chapters/apps/serve/completion.hpp"
#include "tests/fast_helpers.hpp"

namespace llm {

// Token b + 3 is the byte b; 2 ends a text.
inline Id byte_id(char byte) { return Id(static_cast<unsigned char>(byte)) + 3; }

inline ServedModel byte_model() {
    ServedModel model{"bytes", byte_tokenizer()};
    model.tokenizer.prefix_tokens.clear();  // no <s> before a text
    model.eos_token_ids = model.tokenizer.eos_token_ids = {2};
    model.trie = std::make_shared<TokenTrie>(make_token_trie(model.tokenizer));
    model.context_length = 200;
    model.max_prompt_tokens = 150;
    return model;
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
