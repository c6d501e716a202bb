#include <array>
#include <cmath>

#include <fmt/format.h>

#include "common/output/show.hpp"

namespace llm {

std::string sparkline(std::span<const Real> values, std::size_t width) {
    static constexpr std::array bars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const std::size_t count = std::min(width, values.size());
    std::vector<double> means(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t begin = i * values.size() / count;
        const std::size_t end = (i + 1) * values.size() / count;
        for (std::size_t n = begin; n < end; ++n)
            means[i] += static_cast<double>(values[n]) / static_cast<double>(end - begin);
    }
    double low = infinity, high = -infinity;
    for (const double mean : means) {
        if (!std::isfinite(mean)) continue;
        low = std::min(low, mean);
        high = std::max(high, mean);
    }
    std::string line;
    for (const double mean : means) {
        const double scaled = high > low ? (mean - low) / (high - low) : 0;
        line += std::isfinite(mean)
                    ? bars[static_cast<std::size_t>(std::lround(scaled * (bars.size() - 1)))]
                    : " ";
    }
    return line;
}

std::string with_commas(std::uint64_t number) {
    std::string text = std::to_string(number);
    for (std::size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
    return text;
}

std::string fixed(double number, int decimals) {
    return fmt::format("{:.{}f}", number, decimals);
}

std::string brief(double number) { return fmt::format("{:g}", number); }
std::string round_trip(float number) { return fmt::format("{}", number); }
std::string round_trip(double number) { return fmt::format("{}", number); }

}  // namespace llm
