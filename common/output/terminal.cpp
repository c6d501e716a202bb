#include "common/output/terminal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/numbers/ceil_div.hpp"
#include "common/output/events.hpp"

namespace llm {
namespace {

PrintOptions chosen;
std::vector<std::string> titles_of_steps;
bool nothing_printed = true;

// With --step: the lines that the current page has completed, and the width of the line after
// them.
std::size_t page_lines = 0, line_width = 0;

bool pausing() { return chosen.stepwise && isatty(STDIN_FILENO); }

// Waits for Enter, then starts a new page. In a terminal the prompt is erased.
void wait_for_enter() {
    if (line_width > 0) std::cout << '\n';
    std::cout << "[Enter] " << std::flush;
    std::string ignored;
    std::getline(std::cin, ignored);
    if (output_is_terminal()) std::cout << "\x1b[A\r\x1b[2K";
    page_lines = line_width = 0;
}

// Prints a part of one line. Waits first if it would not fit on the page, whose last line is
// for the prompt.
void print_on_page(std::string_view part) {
    const bool ends_line = part.ends_with('\n');
    const std::size_t width = visible_width(part) - (ends_line ? 1 : 0);
    const std::size_t page_height = std::max<std::size_t>(terminal_height(), 3) - 1;
    if (page_lines + screen_lines(line_width + width, terminal_width()) > page_height)
        wait_for_enter();
    std::cout << part;
    line_width += width;
    if (!ends_line) return;
    page_lines += screen_lines(line_width, terminal_width());
    line_width = 0;
}

void print_unconditionally(std::string_view text) {
    nothing_printed = nothing_printed && text.empty();
    if (!pausing()) {
        std::cout << text;
        return;
    }
    while (!text.empty()) {
        const std::size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
        print_on_page(text.substr(0, length));
        text.remove_prefix(length);
    }
}

// The closest that 256-color terminals have to the palette of the figures.
constexpr std::array palette = {53, 54, 60, 30, 36, 72, 77, 148, 220};
constexpr int gray = 238, red = 160;

// White text on the dark colors, black text on the others, whichever has the greater contrast.
std::string on_color(int color, std::string_view text) {
    const bool dark =
        color == 53 || color == 54 || color == 60 || color == gray || color == red;
    return fmt::format("\x1b[38;5;{};48;5;{}m{}\x1b[0m", dark ? 231 : 16, color, text);
}

winsize window_size() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size : winsize{};
}

}  // namespace

bool output_is_terminal() {
    const bool is_rank = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
    return isatty(STDOUT_FILENO) && (!is_rank || std::getenv(terminal_of_ranks) != nullptr);
}

bool colors_wanted() {
    const char* no_color = std::getenv("NO_COLOR");
    const bool rejected = no_color != nullptr && *no_color != '\0';
    return output_is_terminal() && !rejected;
}

std::size_t terminal_width() {
    const char* of_ranks = std::getenv(terminal_of_ranks);
    const std::size_t columns =
        of_ranks ? std::strtoul(of_ranks, nullptr, 10) : window_size().ws_col;
    return columns > 0 ? columns : 120;
}

std::size_t terminal_height() {
    const std::size_t rows = window_size().ws_row;
    return rows > 0 ? rows : 24;
}

void set_print_options(const PrintOptions& options) {
    chosen = options;
    titles_of_steps.clear();
    nothing_printed = true;
    page_lines = line_width = 0;
}

const PrintOptions& print_options() { return chosen; }

const std::vector<std::string>& step_titles() { return titles_of_steps; }

bool step_is_printed() {
    return !chosen.only || (!titles_of_steps.empty() && chosen.only == titles_of_steps.size());
}

void begin_step(std::string_view title) {
    if (chosen.only && step_is_printed()) throw OnlyStepDone{};
    const bool follows_output = !nothing_printed;
    titles_of_steps.emplace_back(title);
    if (chosen.json)
        return emit("step",
                    {{"number", titles_of_steps.size()}, {"title", titles_of_steps.back()}});
    if (pausing() && follows_output && step_is_printed() && !chosen.quiet) wait_for_enter();
    const std::string heading = fmt::format("── {}. {} ──", titles_of_steps.size(), title);
    print("\n");
    if (pausing()) page_lines = 0;  // the empty line may leave the screen
    print(colors_wanted() ? fmt::format("\x1b[1;36m{}\x1b[0m", heading) : heading);
    print("\n");
    std::cout << std::flush;
}

void print(std::string_view text) {
    if (step_is_printed() && !chosen.quiet) print_unconditionally(text);
}

void print_generated_text(std::string_view text) {
    if (step_is_printed()) print_unconditionally(text);
}

bool printed_nothing() { return nothing_printed; }

std::size_t screen_lines(std::size_t text_width, std::size_t width) {
    return std::max<std::size_t>(1, ceil_div(text_width, width));
}

std::size_t visible_width(std::string_view text) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\x1b')
            i = std::min(text.find('m', i), text.size());
        else if ((text[i] & 0xc0) != 0x80)
            ++count;
    }
    return count;
}

std::string ColorScale::cell(double value, std::string_view text) const {
    if (std::isnan(value) || value == std::numeric_limits<double>::infinity())
        return on_color(red, text);
    if (std::isinf(value)) return on_color(gray, text);
    const double scaled = high > low ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0.5;
    return on_color(
        palette[static_cast<std::size_t>(std::lround(scaled * (palette.size() - 1)))], text);
}

std::string ColorScale::legend() const {
    std::string text;
    if (low <= high) text = fmt::format(" {:.3g} ", low);
    if (low == high) text += cell(low, " ");
    if (low < high) {
        for (const int color : palette) text += on_color(color, " ");
        text += fmt::format(" {:.3g}", high);
    }
    if (has_minus_infinity) text += (text.empty() ? " -inf " : ", -inf ") + on_color(gray, " ");
    if (has_nan) text += (text.empty() ? " nan " : ", nan ") + on_color(red, " ");
    return "colors:" + text;
}

}  // namespace llm
