// Chapter 25: search with words, with vectors, and with both.
#pragma once

#include "chapters/25_encoders/demo/names.hpp"

namespace llm {

void bm25_by_hand();
// The names that are most similar to a query, by letter trigrams and by vectors.
void most_similar_names(const ModernBertModel& encoder, const Names& names,
                        const std::string& query);
// How often the right name is among the first, for misspelled ones.
void recall_of_names(const ModernBertModel& encoder, const ModernBertModel& before,
                     const Names& names, std::uint32_t seed);

}  // namespace llm
