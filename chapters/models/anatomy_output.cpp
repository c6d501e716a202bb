#include <algorithm>
#include <cmath>
#include <functional>

#include "chapters/models/anatomy.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// The columns of each table.
struct TableOfChoices {
    std::string title;
    std::vector<std::string> names;
};
const std::vector<TableOfChoices> tables = {
    {"Positions", {"positions", "theta", "rotated", "scaling"}},
    {"Attention", {"window", "QK norm", "output gate"}},
    {"Heads", {"heads", "KV heads", "head_dim", "H · D / C"}},
    {"Norms and biases", {"norm", "placement", "biases"}},
    {"MLP", {"MLP", "F / C", "experts"}},
    {"Sizes", {"layers", "C", "C / L", "vocabulary", "context", "tied"}},
    {"Multipliers and parameters", {"multipliers", "parameters", "active"}}};

const Choice& choice_named(const Anatomy& anatomy, const std::string& name) {
    return *std::find_if(anatomy.choices.begin(), anatomy.choices.end(),
                         [&](const Choice& choice) { return choice.name == name; });
}

// How many percent of the models of a year hold.
double percentage(const std::vector<Anatomy>& anatomies, std::size_t year,
                  const std::function<bool(const Anatomy&)>& holds) {
    std::size_t models = 0, with = 0;
    for (const Anatomy& anatomy : anatomies)
        if (anatomy.year == year) {
            ++models;
            if (holds(anatomy)) ++with;
        }
    return 100 * double(with) / double(models);
}

void plot_years(const std::vector<Anatomy>& anatomies) {
    const auto text_is = [](const std::string& name, const std::string& text, bool equal) {
        return [=](const Anatomy& anatomy) {
            return (choice_named(anatomy, name).text == text) == equal;
        };
    };
    const std::vector<std::pair<std::string, std::function<bool(const Anatomy&)>>> choices = {
        {"RoPE", text_is("positions", "learned", false)},
        {"gated MLP", text_is("MLP", "GELU", false)},
        {"RMSNorm",
         [](const Anatomy& anatomy) {
             return choice_named(anatomy, "norm").text.starts_with("RMSNorm");
         }},
        {"GQA, MQA, MLA",
         [](const Anatomy& anatomy) {
             return choice_named(anatomy, "heads").text !=
                    choice_named(anatomy, "KV heads").text;
         }},
        {"windows, linear", text_is("window", "-", false)},
        {"QK norm", text_is("QK norm", "-", false)},
        {"experts", text_is("experts", "-", false)},
        {"NoPE layers",
         [](const Anatomy& anatomy) {
             return choice_named(anatomy, "positions").text.starts_with("RoPE,");
         }},
        {"tied head", text_is("tied", "yes", true)}};
    std::vector<std::size_t> years;
    for (const Anatomy& anatomy : anatomies)
        if (years.empty() || years.back() != anatomy.year) years.push_back(anatomy.year);
    Heatmap heatmap{"Models of a year with this choice, %", "", "",
                    Matrix(std::array{choices.size(), years.size()})};
    for (const std::size_t year : years) heatmap.x_names.push_back(to_text(year));
    for (std::size_t row = 0; row < choices.size(); ++row) {
        heatmap.y_names.push_back(choices[row].first);
        for (std::size_t column = 0; column < years.size(); ++column)
            heatmap.values(row, column) =
                std::round(Real(percentage(anatomies, years[column], choices[row].second)));
    }
    plot("years", {heatmap});
}

}  // namespace

void show_families(const std::vector<Anatomy>& anatomies) {
    for (const TableOfChoices& table : tables) {
        step(table.title);
        TableRow headings = {"model"};
        for (const std::string& name : table.names) headings.push_back(name);
        std::vector<TableRow> rows;
        for (const Anatomy& anatomy : anatomies) {
            rows.push_back({anatomy.name});
            for (const std::string& name : table.names)
                rows.back().push_back(choice_named(anatomy, name).text);
        }
        show_table(headings, rows);
    }
    plot_years(anatomies);
}

void write_families_in_markdown(const std::vector<Anatomy>& anatomies) {
    for (const TableOfChoices& table : tables) {
        std::string head = "| model | year |", rule = "|---|---|";
        for (const std::string& name : table.names) {
            head += " " + name + " |";
            rule += "---|";
        }
        std::string lines = "### " + table.title + "\n\n" + head + "\n" + rule + "\n";
        for (const Anatomy& anatomy : anatomies) {
            lines += "| " + anatomy.name + " | " + to_text(anatomy.year) + " |";
            for (const std::string& name : table.names) {
                const Choice& choice = choice_named(anatomy, name);
                lines += choice.link.empty() ? " " + choice.text + " |"
                                             : " [" + choice.text + "](" + choice.link + ") |";
            }
            lines += "\n";
        }
        write_text(lines + "\n");
    }
}

void show_difference(const Anatomy& first, const Anatomy& second) {
    step(first.name + " and " + second.name);
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < first.choices.size(); ++n) {
        const Choice &one = first.choices[n], &other = second.choices[n];
        if (one.text == other.text) continue;
        const std::string link = other.link.empty() ? one.link : other.link;
        rows.push_back({one.name, one.text, other.text, link.substr(0, link.find(".md"))});
    }
    if (rows.empty()) return say("They do not differ.");
    show_table({"choice", first.name, second.name, "page"}, rows);
}

}  // namespace llm::models
