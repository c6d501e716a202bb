// The data of the methods of encoders, in JSON Lines.
#pragma once

#include <string>
#include <vector>

#include "common/numbers/random.hpp"
#include "common/tensors/tensor.hpp"

namespace llm::fine_tune {

// {"text": "...", "label": "..."}; a label may be an integer.
struct LabeledText {
    std::string text, label;
    std::string source = "";  // the file and the line
};
// {"query": "...", "passage": "..."}: the passage answers the query.
struct QueryPassage {
    std::string query, passage;
    std::string source = "";
};
// Throw FileError, with the number of the line, if one has another form, a text is empty, or a
// key is not known. Keys that only describe a line (id, source, ...) may be there.
std::vector<LabeledText> read_labeled_texts(const std::string& file);
std::vector<QueryPassage> read_query_passages(const std::string& file);

// The labels, sorted, each once.
std::vector<std::string> labels_of(const std::vector<LabeledText>& texts);

}  // namespace llm::fine_tune
