// The values of command-line options: parsed strictly, with their limits. Only options.cpp and
// run_program.hpp include it.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace llm {

// Thrown for an invalid command line. The message is the complete line that is printed.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// An option that stands for a field of the configuration.
struct ConfigOption {
    std::string help;
    std::int64_t low, high;
};
extern const std::map<std::string, ConfigOption> known_fields;

// Decimal numbers only. Throw UsageError, which names the option, the limits and the text.
std::int64_t parse_number(const std::string& name, const std::string& text, std::int64_t low,
                          std::int64_t high);
float parse_real(const std::string& name, const std::string& text, double low, double high);
std::string parse_text(const std::string& name, const std::string& text);               // UTF-8
std::vector<std::int64_t> parse_ids(const std::string& name, const std::string& text);  // 1,2,3
std::vector<std::vector<std::int64_t>> parse_id_lists(const std::string& name,
                                                      const std::string& text);  // 1,2,3;4,5

std::vector<std::string> split_list(const std::string& text, char separator = ',');

// One of the choices; of data types, also llama.cpp's name, such as f32.
std::string parse_choice(const std::string& name, const std::string& text,
                         const std::vector<std::string>& choices);

std::string alternatives(const std::vector<std::string>& choices);  // "a, b or c"

}  // namespace llm
