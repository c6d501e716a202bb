// The pages of docs/ as passages to search.
#pragma once

#include <string>
#include <vector>

namespace llm::ask {

// A few paragraphs of one section: prose, lists and tables, without code, figures and markup.
struct Passage {
    std::string page;      // "05_gqa.md"
    std::string anchor;    // of the heading, as GitHub makes it: "a-worked-example"
    std::string headings;  // "05 · Attention › Formula"
    std::string text;
};

// The passages of one page, in order. A passage is as many paragraphs of a section as have at
// most max_words words together, and at least one.
std::vector<Passage> passages_of(const std::string& page, const std::string& markdown,
                                 std::size_t max_words = 400);

// Those of all pages of a folder that answer questions: no exercises, no list of changes, no
// directions for authors. Throws FileError.
std::vector<Passage> read_passages(const std::string& folder);

// The part of a link that names a heading: lower case, without punctuation, "-" for a space.
std::string anchor_of(const std::string& heading);

// A line of Markdown without links, images, emphasis and code marks.
std::string without_markup(const std::string& line);

// The first words of a list, which has at least so many, with spaces between them.
std::string first_words(const std::vector<std::string>& words, std::size_t count);

// The first paragraph of a passage, of those that are no formula if there is one, cut after 14
// words.
std::string beginning_of(const Passage& passage);

}  // namespace llm::ask
