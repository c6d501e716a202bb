#include "common/system/option_values.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <span>

#include <fmt/format.h>

#include "common/files/unicode.hpp"

namespace llm {

// The limits keep the tensors of a demo under 600 MB, except attention weights of (B, H, T, T).
const std::map<std::string, ConfigOption> known_fields = {
    {"--batch-size", {"sequences in a batch", 1, 16}},
    {"--seq-len", {"tokens in each sequence", 1, 1024}},
    {"--hidden-size", {"features per token", 1, 4096}},
    {"--num-attention-heads", {"query heads", 1, 64}},
    {"--num-key-value-heads",
     {"key and value heads; must divide the number of query heads", 1, 64}},
    {"--head-dim", {"features per head (if not given: hidden size / query heads)", 1, 128}},
    {"--num-hidden-layers", {"decoder blocks", 1, 128}},
    {"--intermediate-size",
     {"hidden features of the MLP (if not given: 8/3 hidden size, rounded up)", 1, 16384}},
    {"--max-position-embeddings", {"maximum sequence length", 1, 1 << 20}},
};

std::int64_t parse_number(const std::string& name, const std::string& text, std::int64_t low,
                          std::int64_t high) {
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || number < low || number > high)
        throw UsageError(
            fmt::format("{} takes an integer from {} to {}, not '{}'", name, low, high, text));
    return number;
}

float parse_real(const std::string& name, const std::string& text, double low, double high) {
    char* stop = nullptr;
    const bool is_decimal = text.find_first_not_of("0123456789.+-eE") == text.npos;
    const double number = is_decimal ? std::strtod(text.c_str(), &stop) : 0;
    if (!is_decimal || text.empty() || *stop != '\0' || !(number >= low && number <= high))
        throw UsageError(
            fmt::format("{} takes a number from {} to {}, not '{}'", name, low, high, text));
    return static_cast<float>(number);
}

std::string parse_text(const std::string& name, const std::string& text) try {
    if (text.size() > 16384)
        throw UsageError(
            fmt::format("{} takes at most 16384 bytes, not {}", name, text.size()));
    characters(text);
    return text;
} catch (const TextError& error) {
    throw UsageError(fmt::format("{}: {}", name, error.what()));
}

std::vector<std::int64_t> parse_ids(const std::string& name, const std::string& text) {
    std::vector<std::int64_t> ids;
    for (const std::string& id : split_list(text))
        ids.push_back(parse_number(name, id, 0, 0x7FFFFFFF));
    if (ids.size() > 4096) throw UsageError(fmt::format("{} takes at most 4096 ids", name));
    return ids;
}

std::vector<std::vector<std::int64_t>> parse_id_lists(const std::string& name,
                                                      const std::string& text) {
    std::vector<std::vector<std::int64_t>> lists;
    for (const std::string& list : split_list(text, ';'))
        lists.push_back(parse_ids(name, list));
    return lists;
}

std::vector<std::string> split_list(const std::string& text, char separator) {
    std::vector<std::string> list;
    for (std::size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
        end = std::min(text.find(separator, begin), text.size());
        list.push_back(text.substr(begin, end - begin));
    }
    return list;
}

std::string parse_choice(const std::string& name, const std::string& text,
                         const std::vector<std::string>& choices) {
    const std::map<std::string, std::string> names = {
        {"f32", "float32"}, {"f16", "float16"}, {"bf16", "bfloat16"}};
    const auto found = names.find(text);
    const std::string chosen = found == names.end() ? text : found->second;
    if (std::find(choices.begin(), choices.end(), chosen) == choices.end())
        throw UsageError(
            fmt::format("{} takes {}, not '{}'", name, alternatives(choices), text));
    return chosen;
}

std::string alternatives(const std::vector<std::string>& choices) {
    const std::span<const std::string> all_but_last(choices.data(), choices.size() - 1);
    return fmt::format("{} or {}", fmt::join(all_but_last, ", "), choices.back());
}

}  // namespace llm
