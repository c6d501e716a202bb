#include "common/plot.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace llm {
namespace {

struct Figure {
    std::string name;
    std::vector<Panel> panels;
};

std::string slug;
std::filesystem::path plots_folder;  // empty: figures are not drawn
std::vector<Figure> figures;

constexpr std::size_t panel_width = 440;
constexpr std::size_t panel_height = 400;

// One look for every figure: viridis, grey for what is masked, thin grey axes.
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
set border lc rgb '#888888'
set tics nomirror tc rgb '#333333'
set datafile missing '?'
)";

// gnuplot's quotes for text that is to be printed as it is.
std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
    return result + "' noenhanced";
}

std::string axis_settings(const std::string& title, const std::string& x_label,
                          const std::string& y_label) {
    return fmt::format("set title {}\nset xlabel {}\nset ylabel {}\n", quoted(title),
                       quoted(x_label), quoted(y_label));
}

// A cell's number in at most four characters.
std::string cell_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
    return value == std::round(value) ? fmt::format("{:.0f}", value)
                                      : fmt::format("{:.2f}", value);
}

std::string panel_script(const Heatmap& heatmap) {
    const auto [rows, columns] = dims(heatmap.values);
    double low = infinity, high = -infinity;
    std::string cells, masked;  // one line a cell: column, row, value, text
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t column = 0; column < columns; ++column) {
            const double value = heatmap.values(row, column);
            const bool finite = std::isfinite(value);
            if (finite) low = std::min(low, value), high = std::max(high, value);
            (finite ? cells : masked) +=
                fmt::format("{} {} {} {}\n", column, row, finite ? value : 0, cell_text(value));
        }
    const bool one_value = !(low < high);
    if (one_value) low -= 1, high = low + 2;
    const std::size_t longest = std::max(rows, columns);
    const bool small = longest <= 16;

    std::string script = axis_settings(heatmap.title, heatmap.x_label, heatmap.y_label);
    const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
    script += fmt::format(
        "set xrange [-0.5:{}]\nset yrange [{}:-0.5]\nset cbrange [{}:{}]\nset cbtics {}\n{} "
        "colorbox\n"
        "set size ratio {}\nset tics scale 0\nset xtics {}\nset ytics {}\n"
        "set style fill solid 1 {}\n",
        columns - 0.5, rows - 0.5, low, high, (high - low) / 4,
        one_value || small ? "unset" : "set", std::clamp(ratio, 0.3, 2.0),
        std::max<std::size_t>(1, columns / 8),
        std::max<std::size_t>(1, ratio < 0.5 ? rows / 4 : rows / 8),
        longest <= 40 ? "border lc rgb 'white'" : "noborder");

    // Cells first, then their numbers: white on dark cells, black on light ones.
    std::vector<std::string> layers;
    const auto labels = [&](std::string_view data, const std::string& text,
                            std::string_view color) {
        layers.push_back(fmt::format("{} using 1:2:({}) with labels font ',{}' tc rgb '{}'",
                                     data, text,
                                     longest <= 6    ? 14
                                     : longest <= 10 ? 10
                                                     : 8,
                                     color));
    };
    const std::string boxes = "using 1:2:(0.5):(0.5){} with boxxyerror fc {}";
    if (!masked.empty()) {
        script += "$masked << END\n" + masked + "END\n";
        layers.push_back("$masked " + fmt::format(fmt::runtime(boxes), "", "rgb '#d5d5d5'"));
        if (small) labels("$masked", "stringcolumn(4)", "#777777");
    }
    if (!cells.empty()) {
        script += "$cells << END\n" + cells + "END\n";
        layers.push_back("$cells " + fmt::format(fmt::runtime(boxes), ":3", "palette"));
        const double middle = low + 0.6 * (high - low);
        if (small)
            labels("$cells", fmt::format("$3 > {} ? stringcolumn(4) : ''", middle), "black");
        if (small)
            labels("$cells", fmt::format("$3 > {} ? '' : stringcolumn(4)", middle), "white");
    }
    script += "set key off\n";
    return script + fmt::format("plot {}\n", fmt::join(layers, ", \\\n    "));
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
        plots += fmt::format("{}$line{} with lines lt {} title {}", i == 0 ? "" : ", ", i,
                             i + 1, quoted(line.label));
    }
    return script +
           "set grid lt 1 lc rgb '#e8e8e8' lw 0.7\nset key bmargin center horizontal\nplot " +
           plots + "\n";
}

std::string panel_script(const Histogram& histogram) {
    constexpr std::size_t bin_count = 24;
    double low = infinity, high = -infinity;
    for (const Series& series : histogram.series)
        for (const double value : series.values)
            low = std::min(low, value), high = std::max(high, value);
    if (!(low < high)) low -= 0.5, high = low + 1;

    LinePlot outline{histogram.title, histogram.x_label, "share of the numbers", {}};
    for (const Series& series : histogram.series) {
        std::vector<double> shares(bin_count, 0.0);
        for (const double value : series.values) {
            const double place = (value - low) / (high - low) * bin_count;
            const auto bin = static_cast<std::size_t>(place);
            shares[std::min(bin, bin_count - 1)] +=
                1.0 / static_cast<double>(series.values.size());
        }
        // Walk around the bars: up at the left edge of each bin, along its top, and down last.
        Line line{series.label, {low}, {0}};
        for (std::size_t bin = 0; bin < bin_count; ++bin)
            for (const std::size_t edge : {bin, bin + 1}) {
                const double share = static_cast<double>(edge) / bin_count;
                line.x.push_back(low + (high - low) * share);
                line.y.push_back(shares[bin]);
            }
        line.x.push_back(high);
        line.y.push_back(0);
        outline.lines.push_back(line);
    }
    return panel_script(outline);
}

std::string figure_script(const Figure& figure, const std::filesystem::path& file,
                          const std::string& terminal) {
    const std::size_t columns = std::min<std::size_t>(3, figure.panels.size());
    const std::size_t rows = (figure.panels.size() + columns - 1) / columns;
    std::string script = fmt::format(
        "reset\n{}\nset terminal {} size {},{} font 'DejaVu Sans,12' background rgb 'white'\n"
        "set output {}\nset multiplot layout {},{}\n",
        theme, terminal, columns * panel_width, rows * panel_height, "'" + file.string() + "'",
        rows, columns);
    for (const Panel& panel : figure.panels)
        script += "reset\n" + std::string(theme) +
                  std::visit([](const auto& content) { return panel_script(content); }, panel);
    return script + "unset multiplot\nunset output\n";
}

}  // namespace

void plot(const std::string& name, std::vector<Panel> panels) {
    if (!plots_folder.empty()) figures.push_back({name, std::move(panels)});
}

void collect_plots(const std::string& chapter_slug, const std::filesystem::path& folder) {
    slug = chapter_slug;
    plots_folder = folder;
}

void draw_plots() {
    if (figures.empty()) return;
    if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) {
        std::cout << "\nNo figures: gnuplot is not installed.\n";
        return;
    }
    std::string script;
    std::vector<std::filesystem::path> files;
    for (const Figure& figure : figures)
        for (const std::string terminal : {"svg", "pngcairo"}) {
            const std::string ending = terminal == "svg" ? "svg" : "png";
            files.push_back(plots_folder / fmt::format("{}_{}.{}", slug, figure.name, ending));
            script += figure_script(figure, files.back().string() + ".part", terminal);
        }

    // gnuplot reads the script to its end, so all output of the chapter stands before it.
    std::cout << std::flush;
    std::FILE* gnuplot = popen("gnuplot 2>&1 >/dev/null | head -1 >&2", "w");
    if (gnuplot == nullptr) {
        std::cerr << slug << ": cannot start gnuplot\n";
        return;
    }
    std::fwrite(script.data(), 1, script.size(), gnuplot);
    pclose(gnuplot);
    std::vector<std::string> missing;
    for (const std::filesystem::path& file : files) {
        std::error_code failed;
        std::filesystem::rename(file.string() + ".part", file, failed);
        if (failed) missing.push_back(file.filename().string());
    }
    if (!missing.empty())
        std::cerr << fmt::format("{}: gnuplot did not draw {}\n", slug,
                                 fmt::join(missing, ", "));
    std::cout << fmt::format("\nFigures: {}\n", plots_folder.string());
}

}  // namespace llm
