#include "chapters/apps/ask/text_pairs.hpp"

#include <regex>

#include "common/files/unicode.hpp"

namespace llm::ask {
namespace {

constexpr std::size_t min_sentence_words = 3, min_rest_words = 8;

}  // namespace

std::vector<std::string> sentences_of(const std::string& text) {
    // A sentence ends before a space and a capital, a digit or an opening sign.
    static const std::regex end(R"(([.?!:]) +(?=[A-Z0-9"(]))");
    std::vector<std::string> sentences;
    for (const std::string& line : lines_of(std::regex_replace(text, end, "$1\n")))
        if (split_at_spaces(line).size() >= min_sentence_words) sentences.push_back(line);
    return sentences;
}

std::vector<TextPairs> book_pairs(const std::vector<Passage>& passages) {
    TextPairs headings, inverse_cloze;
    for (const Passage& passage : passages) {
        headings.push_back({passage.headings, passage.text});
        const std::vector<std::string> sentences = sentences_of(passage.text);
        for (std::size_t n = 0; n < sentences.size(); ++n) {
            std::string rest;
            for (std::size_t other = 0; other < sentences.size(); ++other)
                if (other != n) rest += (rest.empty() ? "" : " ") + sentences[other];
            if (split_at_spaces(rest).size() >= min_rest_words)
                inverse_cloze.push_back({sentences[n], passage.headings + " " + rest});
        }
    }
    return {headings, inverse_cloze};
}

}  // namespace llm::ask
