#include "common/files/json_lines.hpp"

#include "common/files/unicode.hpp"

namespace llm {

std::vector<JsonFile> read_json_lines(const std::string& file) {
    std::vector<JsonFile> objects;
    std::size_t number = 0;
    for (const std::string& line : lines_of(read_text(file))) {
        ++number;
        if (line.find_first_not_of(" \t\r") != line.npos)
            objects.emplace_back(file + ", line " + to_text(number), line);
    }
    return objects;
}

}  // namespace llm
