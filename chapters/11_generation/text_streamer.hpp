// Chapter 11, file 5 of 8: the text of tokens, printed while they are generated.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "common/output/show.hpp"

namespace llm {

// Prints the text of each token as it arrives. The text of a token can depend on the tokens
// before it, so all of them are decoded again. Source: Hugging Face, TextStreamer.
class TextStreamer {
 public:
    // The first ids are those of a text that has been printed, or that is not to be.
    explicit TextStreamer(const Tokenizer& tokenizer, std::vector<Id> first_ids = {})
        : tokenizer_(tokenizer),
          ids_(std::move(first_ids)),
          printed_(tokenizer.decode_bytes(ids_)) {}

    void put(Id id) {
        ids_.push_back(id);
        const std::string text = tokenizer_.decode_bytes(ids_);
        write_text(text.substr(printed_.size()));
        printed_ = text;
    }

 private:
    const Tokenizer& tokenizer_;
    std::vector<Id> ids_;
    std::string printed_;
};

}  // namespace llm
