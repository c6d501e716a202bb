#include "chapters/apps/fine_tune/encoder_data.hpp"

#include <set>

#include "common/files/json_lines.hpp"

namespace llm::fine_tune {
namespace {

// Keys that describe a line of published data sets, and change nothing.
const std::set<std::string> keys_of_descriptions = {"dataset",  "id",     "idx",   "language",
                                                    "metadata", "source", "split", "url"};

std::string text_in(const JsonFile& json, const std::string& key) {
    const std::string text = json.text(key);
    if (text.empty()) json.reject(key, "is empty");
    return text;
}

// Published files have names, or numbers of labels.
std::string label_in(const JsonFile& json) {
    if (json.is_text("label")) return text_in(json, "label");
    const std::int64_t* number =
        json.has("label") ? json.value("label").as<std::int64_t>() : nullptr;
    if (!number) json.reject("label", "is neither a string nor an integer");
    return to_text(*number);
}

template <class T>
void require_some(const std::vector<T>& examples, const std::string& file) {
    if (examples.empty()) throw FileError(file + ": it has no examples");
}

}  // namespace

std::vector<LabeledText> read_labeled_texts(const std::string& file) {
    std::vector<LabeledText> texts;
    for (const JsonFile& json : read_json_lines(file)) {
        texts.push_back({text_in(json, "text"), label_in(json), json.path().string()});
        json.reject_unread(keys_of_descriptions);
    }
    require_some(texts, file);
    return texts;
}

std::vector<QueryPassage> read_query_passages(const std::string& file) {
    std::vector<QueryPassage> pairs;
    for (const JsonFile& json : read_json_lines(file)) {
        pairs.push_back(
            {text_in(json, "query"), text_in(json, "passage"), json.path().string()});
        json.reject_unread(keys_of_descriptions);
    }
    require_some(pairs, file);
    return pairs;
}

std::vector<std::string> labels_of(const std::vector<LabeledText>& texts) {
    std::set<std::string> labels;
    for (const LabeledText& each : texts) labels.insert(each.label);
    return {labels.begin(), labels.end()};
}

}  // namespace llm::fine_tune
