// Figures, described as data. plot() collects them; draw_plots() renders them with gnuplot as
// SLUG_NAME.svg and SLUG_NAME.png.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// A matrix as colored cells, with row 0 at the top. Cells of -inf and NaN are gray. In small
// matrices, each cell shows its value. Rows and columns may have names.
struct Heatmap {
    std::string title, x_label, y_label;
    Matrix values;
    std::vector<std::string> x_names{}, y_names{};
    double low = 0, high = 0;  // the ends of the color scale; equal: the extremes of the values
};

// A reference is a thin dashed line; the points of an area are its outline.
enum class LineStyle { line, points, reference, area };
struct Line {
    std::string label;
    std::vector<double> x, y;
    LineStyle style = LineStyle::line;
};

struct LinePlot {
    std::string title, x_label, y_label;
    std::vector<Line> lines;
    bool log_y = false, log_x = false;  // logarithmic axes: base 10 for y, base 2 for x
    bool same_scale = false;            // units of equal length; no y axis if y_label is empty
    double low = 0, high = 0;           // the ends of the y axis; equal: automatic
};

// Values with a label: one set of bars.
struct Series {
    std::string label;
    std::vector<double> values;
};

// Grouped bars: one group per name, with one bar per series.
struct BarChart {
    std::string title, y_label;
    std::vector<std::string> names;
    std::vector<Series> series;
    double highest = 0;  // upper end of the y axis; 0: automatic
};

// One plot of any of these three kinds. (The constructors are defined in plot.cpp, so that
// programs compile quickly.)
struct Panel {
    std::variant<Heatmap, LinePlot, BarChart> content;

    Panel(const Heatmap& heatmap);
    Panel(const LinePlot& line_plot);
    Panel(const BarChart& bar_chart);
    Panel(const Panel& other);
    ~Panel();
};

// Adds a figure of one or more panels, side by side, in rows of at most three.
void plot(const std::string& name, const std::vector<Panel>& panels);

// Draws a figure immediately, so that it can be viewed while the program runs. Does nothing if
// gnuplot is missing or fails: draw_plots() reports it.
void plot_now(const std::string& name, const std::vector<Panel>& panels);

// The elements of a tensor in row-major order, for lines.
template <std::size_t N>
std::vector<double> numbers_of(const xt::xtensor<Real, N>& tensor) {
    return {tensor.begin(), tensor.end()};
}

// Called by Options: collect_plots() for --plots, draw_plots() when the program ends. It prints
// one line that says where the figures are, or why there are none.
void collect_plots(const std::string& slug, const std::filesystem::path& folder);
void draw_plots();

}  // namespace llm
