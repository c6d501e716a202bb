// The standard output: its properties, which parts of a run are printed, and colored cells.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

// Whether it is a terminal. The ranks of mpirun write to a pseudo-terminal, whatever mpirun
// itself writes to. If that is a terminal, this environment variable has its width.
bool output_is_terminal();
constexpr const char* terminal_of_ranks = "LLM_TERMINAL_OF_RANKS";
bool colors_wanted();           // a terminal, and NO_COLOR is not set
std::size_t terminal_width();   // in characters; 120 when the output is not a terminal
std::size_t terminal_height();  // in lines; 24 when the output is not a terminal

// What a run prints. Called by Options.
struct PrintOptions {
    bool quiet = false;     // --quiet: only generated text
    bool stepwise = false;  // --step: wait after each screenful and before each step
    std::optional<std::size_t> only{};  // --only: only the step with this number
    bool json = false;                  // --json: lines of JSON instead of text (events.hpp)
};
void set_print_options(const PrintOptions& options);
const PrintOptions& print_options();

// Thrown by begin_step after the step of --only. Not an error: the run ends.
struct OnlyStepDone {};

// Counts the step, and prints its heading. In a terminal the heading includes the number.
void begin_step(std::string_view title);

// The titles of all steps so far.
const std::vector<std::string>& step_titles();

// Whether the current step is printed; false for all but one with --only.
bool step_is_printed();

void print(std::string_view text);                 // nothing with --quiet
void print_generated_text(std::string_view text);  // also with --quiet
bool printed_nothing();                            // since the program started

// The number of lines that a text of this width takes in a terminal of this width: at least 1.
std::size_t screen_lines(std::size_t text_width, std::size_t width);

// The number of characters that a terminal shows: code points without escape sequences.
std::size_t visible_width(std::string_view text);

// A linear color scale: dark purple for `low`, yellow for `high`, gray for -inf, red for NaN
// and +inf. If no value is finite, `low` is +inf and `high` is -inf.
struct ColorScale {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    bool has_minus_infinity = false, has_nan = false;

    // The text on the color of the value.
    std::string cell(double value, std::string_view text) const;

    // "colors: 0 (cells) 0.5, -inf (cell)"
    std::string legend() const;
};

}  // namespace llm
