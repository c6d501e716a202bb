// Figures as data. plot() collects them; draw_plots() hands them to gnuplot, which writes
// each as SLUG_NAME.svg and SLUG_NAME.png.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace llm {

// A matrix as coloured cells, row 0 on top. Cells of -inf and NaN are grey. Small matrices
// get their numbers written into the cells. Rows and columns may have
// names.
struct Heatmap {
    std::string title, x_label, y_label;
    Matrix values;
    std::vector<std::string> x_names{}, y_names{};
};

struct Line {
    std::string label;
    std::vector<double> x, y;
};

struct LinePlot {
    std::string title, x_label, y_label;
    std::vector<Line> lines;
    bool log_y = false, log_x = false;  // powers of 10 upwards, of 2 to the right
};

// How often which value occurs, as one outline per series; all series share their bins.
struct Series {
    std::string label;
    std::vector<double> values;
};

struct Histogram {
    std::string title, x_label;
    std::vector<Series> series;
};

// Bars, one group for each name, in which every series has one.
struct BarChart {
    std::string title, y_label;
    std::vector<std::string> names;
    std::vector<Series> series;
    double highest = 0;  // end of the axis; 0: what the bars need
};

// Any of the four. (Its members are defined in plot.cpp, so that programs compile quickly.)
struct Panel {
    std::variant<Heatmap, LinePlot, Histogram, BarChart> content;

    Panel(const Heatmap& heatmap);
    Panel(const LinePlot& line_plot);
    Panel(const Histogram& histogram);
    Panel(const BarChart& bar_chart);
    Panel(const Panel& other);
    ~Panel();
};

// Takes a figure of one or more panels, side by side, in rows of at most three.
void plot(const std::string& name, const std::vector<Panel>& panels);

// Draws a figure at once, to be looked at while the program runs. If gnuplot is missing or
// fails, nothing happens: plot() will say so.
void plot_now(const std::string& name, const std::vector<Panel>& panels);

// All numbers of a tensor, for lines and histograms.
template <std::size_t N>
std::vector<double> numbers_of(const xt::xtensor<Real, N>& tensor) {
    return {tensor.begin(), tensor.end()};
}

// Settings that the option --plots makes, and the drawing itself at the end of a run. Prints
// one line: where the figures are, or why there are none.
void collect_plots(const std::string& slug, const std::filesystem::path& folder);
void draw_plots();

}  // namespace llm
