// For tests of model folders of any family: what they compute, or why they are rejected.
#pragma once

#include <string>

#include "chapters/models/load.hpp"
#include "tests/support/published_models.hpp"
#include "tests/support/small_model.hpp"

namespace llm {

// The input ids of the fixtures of a chapter: "18_experts/mixtral".
inline IdMatrix ids_of(const std::string& name) {
    const std::string chapter = name.substr(0, name.find('/'));
    return chapter == "09_full_model" ? small_ids : fixture_ids(chapter + "/ids");
}

inline Tensor3 logits_of(const std::string& folder, const IdMatrix& ids) {
    return std::visit([&](const auto& model) { return model(ids); },
                      models::load_any_model(folder));
}

inline std::string rejection_of_folder(const std::string& folder) {
    try {
        models::load_any_model(folder);
    } catch (const FileError& error) {
        return error.what();
    }
    return "it was loaded";
}

}  // namespace llm
