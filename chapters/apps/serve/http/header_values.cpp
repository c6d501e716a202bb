#include "chapters/apps/serve/http/header_values.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <regex>

namespace llm::serve {
namespace {

constexpr const char* digits = "0123456789";

}  // namespace

std::string lower_case(std::string text) {
    for (char& c : text)
        if ('A' <= c && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
}

bool is_json_type(const std::string& content_type) {
    std::string type = content_type.substr(0, content_type.find(';'));
    type.erase(type.find_last_not_of(" \t") + 1);
    return lower_case(type) == "application/json";
}

std::string bearer_key(const std::string& authorization) {
    const std::size_t scheme_end = authorization.find(' ');
    const std::size_t key = authorization.find_first_not_of(' ', scheme_end);
    if (key == std::string::npos || lower_case(authorization.substr(0, scheme_end)) != "bearer")
        return {};
    return authorization.substr(key);
}

bool is_valid_key(const std::string& key) {
    return !key.empty() && std::all_of(key.begin(), key.end(),
                                       [](char c) { return '!' <= c && c <= '~' && c != '%'; });
}

bool equal_in_constant_time(const std::string& a, const std::string& b) {
    unsigned char difference = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = 0; i < a.size(); ++i)
        difference =
            static_cast<unsigned char>(difference | (a[i] ^ (i < b.size() ? b[i] : '\0')));
    return difference == 0;
}

std::string host_name(const std::string& host) {
    // The colons of an IPv6 address stand in brackets.
    const std::size_t colon = host.find(':', host.starts_with('[') ? host.find(']') : 0);
    if (colon != std::string::npos && host.find_first_not_of(digits, colon + 1) != host.npos)
        return {};
    std::string name = lower_case(host.substr(0, colon));
    if (name.ends_with('.')) name.pop_back();
    return name;
}

bool is_origin(const std::string& origin) {
    static const std::regex pattern(
        R"([a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?)");
    return origin.size() < 300 && std::regex_match(origin, pattern);
}

std::optional<std::uint64_t> parse_length(const std::string& text) {
    if (text.empty() || text.find_first_not_of(digits) != std::string::npos) return {};
    std::uint64_t length = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), length);
    return result.ec == std::errc() ? length : std::numeric_limits<std::uint64_t>::max();
}

}  // namespace llm::serve
