// The names of settings of config.json that unread_settings.hpp sorts.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/files/json.hpp"

namespace llm::models {

extern const std::set<std::string> bookkeeping_settings, published_settings;
extern const std::map<std::string, Json> neutral_values;
extern const std::vector<std::set<std::string>> spellings;  // of one setting each

}  // namespace llm::models
