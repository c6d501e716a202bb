#include "common/output/plot.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <fmt/format.h>

#include "common/output/events.hpp"
#include "common/output/plot_script.hpp"
#include "common/output/terminal.hpp"

namespace llm {
namespace {

std::string file_prefix;             // the slug of the chapter
std::filesystem::path plots_folder;  // empty: figures are not drawn
std::vector<Figure> figures;

}  // namespace

Panel::Panel(const Heatmap& heatmap) : content(heatmap) {}
Panel::Panel(const LinePlot& line_plot) : content(line_plot) {}
Panel::Panel(const BarChart& bar_chart) : content(bar_chart) {}
Panel::Panel(const Panel& other) = default;
Panel::~Panel() = default;

void plot(const std::string& name, const std::vector<Panel>& panels) {
    if (print_options().json) return emit_figure(name, panels);
    if (!plots_folder.empty()) figures.push_back({name, panels});
}

void collect_plots(const std::string& chapter_slug, const std::filesystem::path& folder) {
    file_prefix = chapter_slug;
    plots_folder = folder;
}

namespace {

// Pipes the script into gnuplot. SIGPIPE is ignored, so that a gnuplot that ends early does not
// terminate the program.
bool run_gnuplot(const std::string& script) {
    std::cout << std::flush;
    const auto old_handler = std::signal(SIGPIPE, SIG_IGN);
    std::FILE* gnuplot = popen("gnuplot >/dev/null 2>&1", "w");
    bool drawn = gnuplot != nullptr;
    if (drawn) {
        drawn = std::fwrite(script.data(), 1, script.size(), gnuplot) == script.size();
        drawn = pclose(gnuplot) == 0 && drawn;
    }
    std::signal(SIGPIPE, old_handler);
    return drawn;
}

// Draws each figure as SVG and as PNG, into temporary files that are renamed when all are
// complete and removed otherwise.
bool draw(const std::vector<Figure>& wanted) {
    std::string script;
    std::vector<std::filesystem::path> files;
    for (const Figure& figure : wanted)
        for (const std::string terminal : {"svg", "pngcairo fontscale 0.75"}) {
            const std::string ending = terminal == "svg" ? "svg" : "png";
            files.push_back(plots_folder /
                            fmt::format("{}_{}.{}", file_prefix, figure.name, ending));
            script += figure_script(figure, files.back().string() + ".part", terminal);
        }
    const bool drawn = run_gnuplot(script);
    for (const std::filesystem::path& file : files) {
        std::error_code ignored;
        if (drawn) std::filesystem::rename(file.string() + ".part", file, ignored);
        std::filesystem::remove(file.string() + ".part", ignored);
    }
    return drawn;
}

}  // namespace

void plot_now(const std::string& name, const std::vector<Panel>& panels) {
    if (print_options().json) return emit_figure(name, panels);
    if (!plots_folder.empty()) draw({{name, panels}});
}

void draw_plots() {
    if (figures.empty()) return;
    if (std::system("command -v gnuplot >/dev/null 2>&1") != 0) {
        print("\nNo figures: gnuplot is not installed.\n");
    } else if (draw(figures)) {
        print(fmt::format("\nFigures: {}\n", plots_folder.string()));
    } else {
        print("\nNo figures: gnuplot failed.\n");
    }
}

}  // namespace llm
