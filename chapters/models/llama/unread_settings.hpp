// The settings of a config.json that its model type does not read. One that
// would change the result is an error; what changes none is left alone. The kinds:
//
// - settings without an effect: null, false, an empty text, list or object, the neutral value
//   of a setting (neutral_values), a second spelling of a setting that was read (spellings);
// - bookkeeping: a first underscore, the fields of transformers' base class, token ids, data
//   types, versions, training, generation (bookkeeping_settings);
// - names that no configuration class of transformers has: leftovers of trainers and other
//   libraries. They are noted on standard error. If the file brings modeling code of its own
//   (auto_map), this code may read them, and they are errors.
//
// All else is a setting of a model (published_settings), and an error.
#pragma once

#include <string>

#include "common/files/json_file.hpp"

namespace llm::models {

// What the command line says: --strict makes errors of noted settings, and --ignore lists
// settings, "KEY,KEY", which the file is read without.
struct SettingsPolicy {
    bool strict = false;
    std::string ignored = "";
};
SettingsPolicy& settings_policy();  // of this process

// Sorts the settings that none of json's functions was asked for. Throws FileError for one
// that is an error, and prints one line with those that are noted, once for each file.
void check_unread_settings(const JsonFile& json);

// Prints a line about a file on standard error, once: readers open a config.json several times.
void note_once(const JsonFile& json, const std::string& text);

}  // namespace llm::models
