#include "common/output/plot_script.hpp"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/numbers/ceil_div.hpp"

namespace llm {
namespace {

constexpr std::size_t panel_width = 440;
constexpr std::size_t panel_height = 400;

// The theme of all figures: viridis, gray for masked cells, thin gray axes.
constexpr std::string_view theme = R"(
set encoding utf8
set palette defined (0 '#440154', 1 '#482878', 2 '#3e4989', 3 '#31688e', 4 '#26828e', \
    5 '#1f9e89', 6 '#35b779', 7 '#6ece58', 8 '#b5de2b', 9 '#fde725')
set linetype 1 lc rgb '#31688e' lw 2.5
set linetype 2 lc rgb '#e07b39' lw 2.5
set linetype 3 lc rgb '#35a16b' lw 2.5
set linetype 4 lc rgb '#9b59b6' lw 2.5
set linetype 5 lc rgb '#c0392b' lw 2.5
set linetype 6 lc rgb '#7f8c8d' lw 2.5
set linetype 7 lc rgb '#d4a017' lw 2.5
set linetype 8 lc rgb '#17a2b8' lw 2.5
set border lc rgb '#888888'
set tics nomirror tc rgb '#333333'
set format cb '%.2g'
)";

// In gnuplot's single quotes, inside which no character is special.
std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
    return result + "'";
}

std::string axis_settings(const std::string& title, const std::string& x_label,
                          const std::string& y_label) {
    return fmt::format(
        "set title {} noenhanced\nset xlabel {} noenhanced\nset ylabel {} noenhanced\n"
        "set bmargin\n",
        quoted(title), quoted(x_label), quoted(y_label));
}

// The legend entry of a line; none if it has no label.
std::string key_entry(const std::string& label) {
    return label.empty() ? "notitle" : "title " + quoted(label) + " noenhanced";
}

// Names instead of numbers along an axis, "x" or "y"; an empty string if there are none.
std::string named_tics(const std::string& axis, const std::vector<std::string>& names) {
    if (names.empty()) return "";
    std::string tics;
    for (std::size_t i = 0; i < names.size(); ++i)
        tics += fmt::format("{}{} {}", i == 0 ? "" : ", ", quoted(names[i]), i);
    return fmt::format("set {}tics ({}) noenhanced {} font ',10'\n", axis, tics,
                       axis == "x" ? "rotate by 60 right" : "");
}

// A cell's value in at most four characters, with as many digits as in the other cells.
std::string cell_text(double value, bool one_digit) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
    if (value == std::round(value)) return fmt::format("{:.0f}", value);
    if (!one_digit) return fmt::format("{:.2f}", value);
    return fmt::format("{:.1f}", std::round(value * 10) / 10 + 0.0);  // 0.0, not -0.0
}

// The cells of a heatmap as lines of column, row, value, text; masked cells are kept separate.
struct Cells {
    std::string colored, masked;
    double low = infinity, high = -infinity;
};

// The stride with which rows and columns of a large matrix are shown, so that no axis has more
// than 128 cells.
std::size_t stride_of(const Matrix& values) {
    const auto [rows, columns] = dims(values);
    return ceil_div(std::max(rows, columns), 128);
}

Cells cells_of(const Matrix& values) {
    const auto [rows, columns] = dims(values);
    const std::size_t stride = stride_of(values);
    const bool one_digit = std::any_of(values.begin(), values.end(), [](Real value) {
        return std::isfinite(value) && (value < 0 || value >= 10);
    });
    Cells cells;
    for (std::size_t row = 0; row < rows; row += stride)
        for (std::size_t column = 0; column < columns; column += stride) {
            const double value = values(row, column);
            const std::string position = fmt::format("{} {}", column, row);
            if (!std::isfinite(value)) {
                cells.masked += fmt::format("{} 0 {}\n", position, cell_text(value, one_digit));
                continue;
            }
            cells.colored +=
                fmt::format("{} {} {}\n", position, value, cell_text(value, one_digit));
            cells.low = std::min(cells.low, value);
            cells.high = std::max(cells.high, value);
        }
    if (!(cells.low < cells.high)) cells.low -= 1, cells.high = cells.low + 2;
    return cells;
}

std::string heatmap_settings(const Heatmap& heatmap, const Cells& cells, bool with_numbers) {
    const auto [rows, columns] = dims(heatmap.values);
    const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
    const auto tics = [](std::size_t count, std::size_t wanted) {
        return std::max<std::size_t>(1, count / wanted);
    };
    std::string script = axis_settings(heatmap.title, heatmap.x_label, heatmap.y_label);
    script += fmt::format("set xrange [-0.5:{}]\nset yrange [{}:-0.5]\nset size ratio {}\n",
                          columns - 0.5, rows - 0.5,
                          std::clamp(ratio, 0.3, heatmap.y_names.empty() ? 2.0 : 1.0));
    script += fmt::format("set tics scale 0\nset xtics {}\nset ytics {}\n",
                          columns > 16 ? tics(columns, 4) : 1,
                          rows > 16 ? tics(rows, ratio < 0.5 ? 2 : 4) : 1);
    script += named_tics("x", heatmap.x_names) + named_tics("y", heatmap.y_names);
    script += fmt::format("set cbrange [{}:{}]\nset cbtics {}\n", cells.low, cells.high,
                          (cells.high - cells.low) / 4);
    script += with_numbers ? "unset colorbox\n" : "set lmargin 7\nset rmargin 9\n";
    script += std::max(rows, columns) <= 40 ? "set style fill solid 1 border lc rgb 'white'\n"
                                            : "set style fill solid 1 noborder\n";
    return script + "set key off\n";
}

std::string panel_script(const Heatmap& heatmap) {
    const auto [rows, columns] = dims(heatmap.values);
    const std::size_t longest = std::max(rows, columns);
    const bool with_numbers = longest <= 16;
    Cells cells = cells_of(heatmap.values);
    if (heatmap.low < heatmap.high) cells.low = heatmap.low, cells.high = heatmap.high;
    std::string script = heatmap_settings(heatmap, cells, with_numbers);

    // Draw the cells first, then their values: white on dark cells, black on light ones. From
    // 0.438 of the palette on, black has the greater contrast. Small cells overlap slightly, so
    // that no gaps are visible.
    const double half_cell =
        (longest <= 40 ? 0.5 : 0.6) * static_cast<double>(stride_of(heatmap.values));
    const int font_size = longest <= 6 ? 14 : longest <= 10 ? 10 : 8;
    std::vector<std::string> layers;
    const auto boxes = [&](const std::string& data, const std::string& value,
                           const std::string& color) {
        layers.push_back(fmt::format("{} using 1:2:({}):({}){} with boxxyerror fc {}", data,
                                     half_cell, half_cell, value, color));
    };
    const auto labels = [&](const std::string& data, const std::string& text,
                            const std::string& color) {
        layers.push_back(fmt::format("{} using 1:2:({}) with labels font ',{}' tc rgb '{}'",
                                     data, text, font_size, color));
    };
    if (!cells.masked.empty()) {
        script += "$masked << END\n" + cells.masked + "END\n";
        boxes("$masked", "", "rgb '#d5d5d5'");
        if (with_numbers) labels("$masked", "stringcolumn(4)", "#595959");
    }
    if (!cells.colored.empty()) {
        script += "$cells << END\n" + cells.colored + "END\n";
        boxes("$cells", ":3", "palette");
        const double light = cells.low + 0.438 * (cells.high - cells.low);
        if (with_numbers) {
            labels("$cells", fmt::format("$3 > {} ? stringcolumn(4) : ''", light), "black");
            labels("$cells", fmt::format("$3 > {} ? '' : stringcolumn(4)", light), "white");
        }
    }
    return script + fmt::format("plot {}\n", fmt::join(layers, ", \\\n    "));
}

// The height below the x axis in lines of text: tick labels, axis label, and the legend in as
// many columns as fit.
double bottom_margin(const LinePlot& line_plot) {
    std::size_t entries = 0, longest = 0;
    for (const Line& line : line_plot.lines) {
        entries += line.label.empty() ? 0 : 1;
        longest = std::max(longest, line.label.size());
    }
    const std::size_t columns = std::max<std::size_t>(1, 51 / (longest + 8));
    const std::size_t rows = ceil_div(entries, columns);
    return (line_plot.x_label.empty() ? 2.2 : 4) + 1.2 * static_cast<double>(rows);
}

// Whether all x values are integers from 0 to 10; then the axis needs no ticks between
// integers.
bool has_few_integer_x(const LinePlot& line_plot) {
    double highest = 0;
    for (const Line& line : line_plot.lines)
        for (const double x : line.x) {
            if (x != std::round(x) || x < 0) return false;
            highest = std::max(highest, x);
        }
    return highest <= 10;
}

// A drawing: circles are round, the ticks are integers, and the lines do not touch the border.
std::string same_scale_settings(const LinePlot& line_plot) {
    const bool with_y_axis = !line_plot.y_label.empty();
    return fmt::format(
        "set size ratio -1\nset autoscale noextend\nset xtics 1\nset offsets 0.3, 0.3, 0.3, "
        "0.3\nset {}\n",
        with_y_axis ? "ytics 1" : "border 1\nunset ytics");
}

// The color of line i, counted from 0, and how it is drawn.
std::string style_of(const Line& line, std::size_t i) {
    switch (line.style) {
        case LineStyle::points:
            return fmt::format("with points pt 7 ps 0.9 lt {}", i + 1);
        case LineStyle::reference:
            return "with lines lc rgb '#777777' lw 1.2 dt 2";
        case LineStyle::area:
            return fmt::format("with filledcurves closed fs transparent solid 0.5 lt {}",
                               i + 1);
        case LineStyle::line:
            break;
    }
    return fmt::format("with lines lt {}", i + 1);
}

std::string panel_script(const LinePlot& line_plot) {
    std::string script = axis_settings(line_plot.title, line_plot.x_label, line_plot.y_label);
    std::string plots;
    for (std::size_t i = 0; i < line_plot.lines.size(); ++i) {
        const Line& line = line_plot.lines[i];
        script += fmt::format("$line{} << END\n", i);
        for (std::size_t j = 0; j < std::min(line.x.size(), line.y.size()); ++j)
            script += fmt::format("{} {}\n", line.x[j], line.y[j]);
        script += "END\n";
        plots += fmt::format("{}$line{} {} {}", i == 0 ? "" : ", ", i, style_of(line, i),
                             key_entry(line.label));
    }
    script += has_few_integer_x(line_plot) ? "set xtics 1\n" : "set xtics autofreq\n";
    if (line_plot.log_x) script += "set logscale x 2\n";
    if (line_plot.log_y) script += "set logscale y\nset format y '10^{%L}'\n";
    if (line_plot.same_scale) script += same_scale_settings(line_plot);
    if (line_plot.low < line_plot.high)
        script += fmt::format("set yrange [{}:{}]\n", line_plot.low, line_plot.high);
    return script + fmt::format(
                        "set grid lt 1 lc rgb '#e8e8e8' lw 0.7\nset bmargin {}\n"
                        "set key bmargin center horizontal\nplot {}\n",
                        bottom_margin(line_plot), plots);
}

std::string panel_script(const BarChart& chart) {
    std::string script = axis_settings(chart.title, "", chart.y_label), plots;
    const auto series_count = static_cast<double>(chart.series.size());
    const double width = 0.8 / series_count;
    for (std::size_t i = 0; i < chart.series.size(); ++i) {
        const double shift = (static_cast<double>(i) - (series_count - 1) / 2) * width;
        script += fmt::format("$bars{} << END\n", i);
        for (std::size_t j = 0; j < chart.series[i].values.size(); ++j)
            script += fmt::format("{} {}\n", static_cast<double>(j) + shift,
                                  chart.series[i].values[j]);
        script += "END\n";
        plots += fmt::format("{}$bars{} using 1:2:({}) with boxes lc rgb '{}' {}",
                             i == 0 ? "" : ", ", i, width,
                             i + 1 == chart.series.size() ? "#31688e"
                             : i == 1                     ? "#e0a15a"
                                                          : "#b8c4cc",
                             key_entry(chart.series[i].label));
    }
    script += named_tics("x", chart.names);
    return script + fmt::format(
                        "set style fill solid 1 noborder\nset xrange [-0.6:{}]\n"
                        "set yrange [0:{}]\nset key top right\nset grid y lt 1 lc rgb "
                        "'#e8e8e8' lw 0.7\nset boxwidth {}\nplot {}\n",
                        static_cast<double>(chart.names.size()) - 0.4,
                        chart.highest > 0 ? fmt::format("{}", chart.highest) : "*", width,
                        plots);
}

}  // namespace

std::string figure_script(const Figure& figure, const std::filesystem::path& file,
                          const std::string& terminal) {
    const std::size_t columns = std::min<std::size_t>(3, figure.panels.size());
    const std::size_t rows = ceil_div(figure.panels.size(), columns);
    std::string script = fmt::format(
        "reset\n{}\nset terminal {} size {},{} font 'DejaVu Sans,12' background rgb 'white'\n"
        "set output {}\nset multiplot layout {},{}\n",
        theme, terminal, columns * panel_width, rows * panel_height, "'" + file.string() + "'",
        rows, columns);
    for (const Panel& panel : figure.panels) {
        script += fmt::format("reset\n{}", theme);
        script += std::visit([](const auto& content) { return panel_script(content); },
                             panel.content);
    }
    return script + "unset multiplot\nunset output\n";
}

}  // namespace llm
