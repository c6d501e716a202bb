#include "chapters/models/anatomy.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/load.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

std::string in_lower_case(std::string text) {
    for (char& letter : text)
        if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    return text;
}

}  // namespace

std::vector<PublishedExample> published_examples() {
    std::vector<PublishedExample> examples;
    for (const JsonFile& model : JsonFile(asset("published_models.json")).objects("models"))
        examples.push_back(
            {model.text("name"), model.size("year"), read_any_config(model.object("config"))});
    return examples;
}

std::vector<Anatomy> published_anatomies() {
    std::vector<Anatomy> anatomies;
    for (const PublishedExample& example : published_examples())
        anatomies.push_back(anatomy_of(example));
    return anatomies;
}

PublishedExample find_example(const std::string& name_or_folder) {
    std::string names;
    for (const PublishedExample& example : published_examples()) {
        if (in_lower_case(example.name) == in_lower_case(name_or_folder)) return example;
        names += (names.empty() ? "" : ", ") + example.name;
    }
    const std::string file =
        is_file(name_or_folder) ? name_or_folder : name_or_folder + "/config.json";
    require(is_file(file), "{} is neither a config.json or its folder nor one of {}",
            name_or_folder, names);
    return {name_or_folder, 0, read_any_config(open_config(file))};
}

}  // namespace llm::models
