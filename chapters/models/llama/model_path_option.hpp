// The options of every program that loads a model. (In a header, since only programs have
// options: tests are built without them.)
#pragma once

#include "chapters/models/llama/unread_settings.hpp"
#include "common/system/options.hpp"

namespace llm::models {

// --model, and what is done with settings of its config.json that are not read.
inline void add_model_path(Options& options, std::string& path, const std::string& help) {
    options.path("--model", path, help);
    options.text("--ignore", settings_policy().ignored,
                 "read config.json without these settings: KEY,KEY");
    options.flag("--strict", settings_policy().strict,
                 "settings of config.json that are only noted are errors");
}

}  // namespace llm::models
