// The script with which gnuplot draws a figure. Only plot.cpp includes it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/output/plot.hpp"

namespace llm {

struct Figure {
    std::string name;
    std::vector<Panel> panels;
};

// Draws all panels into one file, with this terminal of gnuplot.
std::string figure_script(const Figure& figure, const std::filesystem::path& file,
                          const std::string& terminal);

}  // namespace llm
