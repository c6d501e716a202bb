// The options of every program that loads a model. (In a header, since only programs have
// options: tests are built without them.)
#pragma once

#include "chapters/models/llama/unread_settings.hpp"
#include "common/system/options.hpp"

namespace llm::models {

// --model, and how strictly the settings of its config.json are read.
inline void add_model_path(Options& options, std::string& path, const std::string& help) {
    options.path("--model", path, help);
    options.text("--ignore", settings_policy().ignored,
                 "settings of config.json to leave out: KEY,KEY");
    options.flag("--strict", settings_policy().strict,
                 "unknown settings of config.json are errors, not notes");
}

}  // namespace llm::models
