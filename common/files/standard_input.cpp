#include "common/files/standard_input.hpp"

#include <array>
#include <iostream>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "common/files/unicode.hpp"
#include "common/system/interrupt.hpp"

namespace llm {

std::string read_stream(std::istream& input) try {
    constexpr std::size_t max_bytes = 16384;
    std::string text(max_bytes + 2, '\0');  // a line feed, and one byte that is too many
    input.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(input.gcount()));
    input.clear();  // a terminal can be read again, by --step
    if (text.ends_with('\n')) text.pop_back();
    if (text.size() > max_bytes)
        throw TextError("the text has more than " + std::to_string(max_bytes) + " bytes");
    if (const std::size_t at = text.find('\0'); at != text.npos)
        throw TextError("the text has a zero byte at byte " + std::to_string(at));
    check_utf8(text);
    return text;
} catch (const TextError& error) {
    throw TextError(std::string("standard input: ") + error.what());
}

std::string read_standard_input() { return read_stream(std::cin); }

bool is_interactive() { return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO); }

std::optional<std::string> read_line(const std::string& prompt) {
    static std::string buffer;  // what was read after the last line
    if (is_interactive()) std::cout << prompt;
    std::cout << std::flush;
    while (true) {
        if (const std::size_t end = buffer.find('\n'); end != buffer.npos) {
            std::string line = buffer.substr(0, end);
            buffer.erase(0, end + 1);
            if (line.ends_with('\r')) line.pop_back();
            return line;
        }

        // A signal that arrives just before poll does not end it, so it has a time limit.
        InterruptHandler::throw_if_interrupted();
        pollfd input{STDIN_FILENO, POLLIN, 0};
        if (poll(&input, 1, 100) <= 0) continue;
        std::array<char, 4096> bytes;
        const ssize_t count = read(STDIN_FILENO, bytes.data(), bytes.size());
        if (count > 0) {
            buffer.append(bytes.data(), static_cast<std::size_t>(count));
        } else if (count == 0) {
            if (buffer.empty()) return {};
            return std::exchange(buffer, {});
        }
    }
}

}  // namespace llm
