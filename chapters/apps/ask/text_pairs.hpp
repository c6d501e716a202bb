// Pairs of texts that say the same, to train an embedding model on.
#pragma once

#include <string>
#include <vector>

#include "chapters/apps/ask/passages.hpp"

namespace llm::ask {

struct TextPair {
    std::string query, passage;
};
// Pairs of one kind. A batch has one kind alone, so that a wrong passage cannot be told by its
// form.
using TextPairs = std::vector<TextPair>;

// The headings of each passage with its text, and each sentence with the rest of its passage,
// from which it was taken. Source: the inverse cloze task, "Latent Retrieval for Weakly
// Supervised Open Domain Question Answering" (Lee et al., 2019).
std::vector<TextPairs> book_pairs(const std::vector<Passage>& passages);

// Sentences, without the heads of tables and other texts of fewer than three words.
std::vector<std::string> sentences_of(const std::string& text);

// Of WordNet's files data.noun, data.verb, data.adj and data.adv in a folder: words with their
// definition, examples with the definition of the word that they show, and words with words of
// the same or of a related meaning. Meanings of which no passage has a word are left out, as
// are texts with a word that chapter 14's models must not say. Throws FileError, which names
// the line. Source: WordNet 3.0, wndb(5WN).
std::vector<TextPairs> wordnet_pairs(const std::string& folder,
                                     const std::vector<Passage>& passages);

}  // namespace llm::ask
