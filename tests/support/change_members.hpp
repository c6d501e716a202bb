// For tests of settings: a config.json in which some are changed.
#pragma once

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tests/support/files.hpp"

namespace llm {

// A config.json with these members instead of its own; "rope_parameters.factor" is a member of
// an object inside.
inline void change_members(const fs::path& file, const nlohmann::json& changes) {
    nlohmann::json config = nlohmann::json::parse(content(file));
    for (const auto& [key, value] : changes.items()) {
        std::string pointer = "/" + key;
        std::replace(pointer.begin(), pointer.end(), '.', '/');
        config[nlohmann::json::json_pointer(pointer)] = value;
    }
    overwrite(file, config.dump());
}

}  // namespace llm
