// The text of an answer while its tokens arrive.
#pragma once

#include <string>
#include <vector>

#include "chapters/11_generation/text_streamer.hpp"
#include "chapters/models/chat/bad_words.hpp"

namespace llm::serve {

// Returns only text that is final. It holds back the bytes of an incomplete UTF-8 character,
// what may be the beginning of a stop string, and, if there are bad words, the last word: it
// may still become one.
class AnswerText {
 public:
    // The first ids are those of a text that the answer continues. Stop strings are looked for
    // up to the first `no_stop_after`, if it is not empty. The tokenizer and the words must
    // outlive it.
    AnswerText(const Tokenizer& tokenizer, std::vector<Id> first_ids,
               std::vector<std::string> stop, const models::BadWords& bad_words,
               std::string no_stop_after = {});

    std::string put(Id id);
    std::string finish();  // no token follows: the text that was held back

    // Why the text ends here, in OpenAI's words: "stop" if a stop string appeared, which is not
    // returned, "content_filter" if a bad word did. Empty: it goes on.
    const std::string& finish_reason() const { return finish_reason_; }

 private:
    std::string take(bool at_end);
    std::size_t stop_position(bool at_end);
    std::size_t num_held_back() const;

    IncrementalDecoder decoder_;
    std::vector<std::string> stop_;
    std::string no_stop_after_;
    const models::BadWords& bad_words_;
    std::string pending_{};  // decoded, and not returned
    std::string finish_reason_{};
};

}  // namespace llm::serve
