// The design choices of published models side by side: ./learn model --families and --diff.
#pragma once

#include <string>
#include <vector>

#include "chapters/models/family.hpp"

namespace llm::models {

// A choice of a model, as the cell of a table, and the page that explains it.
struct Choice {
    std::string name;  // of all models: "positions"
    std::string text;  // of this one: "RoPE"
    std::string link;  // from docs/: "04_rope.md"
};

// A published model: its name, the year in which its weights were published, its choices.
struct Anatomy {
    std::string name;
    std::size_t year = 0;
    std::vector<Choice> choices;  // the same names in the same order for all models
};

// A model and its configuration. One of chapter 09's types has no family of its own, but one
// that changes nothing.
struct PublishedExample {
    std::string name;
    std::size_t year = 0;
    FamilyConfig config;
};

// The models of assets/published_models.json, by year. Throws FileError.
std::vector<PublishedExample> published_examples();
std::vector<Anatomy> published_anatomies();

// One of them, by name, or that of a folder with a config.json. Throws FileError for the
// latter, and ValueError, which lists the names, if there is neither.
PublishedExample find_example(const std::string& name_or_folder);
Anatomy anatomy_of(const PublishedExample& example);

// Prints tables of all models and plots how the choices have changed; or prints the same tables
// in Markdown, with links, as in docs/anatomy.md; or prints the choices in which two models
// differ.
void show_families(const std::vector<Anatomy>& anatomies);
void write_families_in_markdown(const std::vector<Anatomy>& anatomies);
void show_difference(const Anatomy& first, const Anatomy& second);

}  // namespace llm::models
