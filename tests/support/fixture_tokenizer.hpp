// The tokenizers of tests/fixtures/10_tokenizer.
#pragma once

#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "tests/support/check.hpp"

namespace llm {

inline Tokenizer fixture_tokenizer(const std::string& kind) {
    return models::load_tokenizer(fixture_path("10_tokenizer/" + kind + "/tokenizer.json"));
}

}  // namespace llm
