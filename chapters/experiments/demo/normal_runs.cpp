// The losses of the runs of docs/is_my_run_normal.md: the lowest and highest of several seeds.
#include "chapters/experiments/experiments.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// A table of numbers with a name for each column. Fields may be empty.
using Rows = std::vector<std::vector<std::string>>;

Rows read_csv(const std::string& file) {
    Rows rows;
    for (const std::string& line : lines_of(read_text(file))) {
        std::vector<std::string>& row = rows.emplace_back(1);
        for (const char c : line)
            if (c == ',')
                row.emplace_back();
            else
                row.back() += c;
    }
    return rows;
}

// The outline of the band between two columns: along the lowest values, and back along the
// highest.
Line band_of(const Rows& rows, std::size_t low) {
    const std::string heading = rows.front().at(low);  // "training low"
    Line band{heading.substr(0, heading.rfind(' ')), {}, {}, LineStyle::area};
    const auto add = [&](const std::vector<std::string>& row, std::size_t column) {
        if (row.at(column).empty()) return;
        band.x.push_back(std::stod(row.front()));
        band.y.push_back(std::stod(row.at(column)));
    };
    for (std::size_t i = 1; i < rows.size(); ++i) add(rows[i], low);
    for (std::size_t i = rows.size() - 1; i > 0; --i) add(rows[i], low + 1);
    return band;
}

}  // namespace

void plot_normal_runs() {
    step("Losses of several seeds, in assets/is_my_run_normal");
    std::vector<TableRow> table;
    std::vector<Panel> panels;
    for (const std::string& file : files_in(asset("is_my_run_normal"))) {
        const std::string name = replaced(std::filesystem::path(file).stem(), "_", " ");
        const Rows rows = read_csv(file);
        LinePlot panel{name, "step", "", {}};
        for (std::size_t low = 1; low + 1 < rows.front().size(); low += 2)
            panel.lines.push_back(band_of(rows, low));
        panels.push_back(panel);
        table.push_back({name, to_text(rows.size() - 1), rows.back().front()});
    }
    show_table({"run", "rows", "last step"}, table);
    plot("normal_runs", panels);
}

}  // namespace llm
