// A table and lines of losses by part of the context, for the demo and for the experiment with
// longer contexts.
#pragma once

#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {

struct LossByPart {
    std::vector<TableRow> rows;
    std::vector<Line> lines;

    void add(const std::string& name, const std::vector<double>& losses) {
        TableRow row = {name};
        Line line{name, {}, losses};
        for (std::size_t part = 0; part < losses.size(); ++part) {
            row.push_back(fixed(losses[part], 2));
            line.x.push_back(double(part + 1));
        }
        rows.push_back(row);
        lines.push_back(line);
    }
    void show(std::size_t part_len) const {
        TableRow headings = {"positions up to"};
        for (std::size_t part = 1; part < rows[0].size(); ++part)
            headings.push_back(to_text(part * part_len - 1));
        show_table(headings, rows);
    }
};

}  // namespace llm
