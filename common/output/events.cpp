#include "common/output/events.hpp"

#include <cstdlib>
#include <iostream>

#include <fmt/format.h>

#include "common/output/terminal.hpp"

namespace llm {
namespace {

double shortest_decimal(Real value) {
    return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

JsonMembers members_of(const Heatmap& heatmap) {
    const auto [rows, columns] = dims(heatmap.values);
    return {{"kind", "heatmap"},
            {"title", heatmap.title},
            {"x_label", heatmap.x_label},
            {"y_label", heatmap.y_label},
            {"num_rows", rows},
            {"num_columns", columns},
            {"values", shortest_decimals({heatmap.values.data(), heatmap.values.size()})},
            {"x_names", heatmap.x_names},
            {"y_names", heatmap.y_names},
            {"low", heatmap.low},
            {"high", heatmap.high}};
}

JsonMembers members_of(const LinePlot& line_plot) {
    const std::vector<std::string> names = {"line", "points", "reference", "area"};
    std::vector<std::string> labels, styles;
    std::vector<std::vector<double>> x, y;
    for (const Line& line : line_plot.lines) {
        labels.push_back(line.label);
        styles.push_back(names[static_cast<std::size_t>(line.style)]);
        x.push_back(line.x);
        y.push_back(line.y);
    }
    return {{"kind", "lines"},
            {"title", line_plot.title},
            {"x_label", line_plot.x_label},
            {"y_label", line_plot.y_label},
            {"labels", labels},
            {"styles", styles},
            {"x", x},
            {"y", y},
            {"log_x", line_plot.log_x},
            {"log_y", line_plot.log_y},
            {"same_scale", line_plot.same_scale},
            {"low", line_plot.low},
            {"high", line_plot.high}};
}

JsonMembers members_of(const BarChart& chart) {
    std::vector<std::string> labels;
    std::vector<std::vector<double>> values;
    for (const Series& series : chart.series) {
        labels.push_back(series.label);
        values.push_back(series.values);
    }
    return {{"kind", "bars"},          {"title", chart.title}, {"y_label", chart.y_label},
            {"names", chart.names},    {"labels", labels},     {"values", values},
            {"highest", chart.highest}};
}

}  // namespace

void emit(const std::string& type, JsonMembers members) {
    members.insert(members.begin(), {"type", type});
    const std::string line = json_line(members);
    if (type == "generated")
        print_generated_text(line);
    else
        print(line);
    std::cout << std::flush;
}

std::vector<double> shortest_decimals(std::span<const Real> values) {
    std::vector<double> decimals(values.size());
    std::transform(values.begin(), values.end(), decimals.begin(), shortest_decimal);
    return decimals;
}

void emit_figure(const std::string& name, const std::vector<Panel>& panels) {
    for (std::size_t i = 0; i < panels.size(); ++i) {
        JsonMembers members{{"name", name}, {"panel", i}, {"panels", panels.size()}};
        const JsonMembers content =
            std::visit([](const auto& panel) { return members_of(panel); }, panels[i].content);
        members.insert(members.end(), content.begin(), content.end());
        emit("figure", members);
    }
}

}  // namespace llm
