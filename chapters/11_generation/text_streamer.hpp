// Chapter 11, file 4 of 7: the text of tokens, printed while they are generated.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "common/output/show.hpp"

namespace llm {

// The bytes that each token adds to a text. The first space of a text may be left out, so the
// bytes of a token can depend on those before it: it is decoded with the tokens from the last
// one on that added any, not with all. Source: vLLM, detokenize_incrementally.
class IncrementalDecoder {
 public:
    // The first ids are those of a text that it continues.
    explicit IncrementalDecoder(const Tokenizer& tokenizer, std::vector<Id> first_ids = {})
        : tokenizer_(tokenizer),
          recent_(std::move(first_ids)),
          num_bytes_(tokenizer.decode_bytes(recent_).size()) {}

    std::string put(Id id) {
        recent_.push_back(id);
        const std::string added = tokenizer_.decode_bytes(recent_).substr(num_bytes_);
        if (!added.empty()) {
            recent_ = {id};
            num_bytes_ = tokenizer_.decode_bytes(recent_).size();
        }
        return added;
    }

 private:
    const Tokenizer& tokenizer_;
    std::vector<Id> recent_;
    std::size_t num_bytes_;  // of the recent ids
};

// Prints the text of each token as it arrives. Source: Hugging Face, TextStreamer.
class TextStreamer {
 public:
    // The first ids are those of a text that has been printed, or that is not to be.
    explicit TextStreamer(const Tokenizer& tokenizer, std::vector<Id> first_ids = {})
        : decoder_(tokenizer, std::move(first_ids)) {}

    void put(Id id) { write_text(decoder_.put(id)); }

 private:
    IncrementalDecoder decoder_;
};

}  // namespace llm
