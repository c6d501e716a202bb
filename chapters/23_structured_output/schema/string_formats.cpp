#include "chapters/23_structured_output/schema/string_formats.hpp"

#include <map>

namespace llm {
namespace {

std::map<std::string, std::string> make_patterns() {
    const std::string day_of_long_month = "(0[1-9]|[12][0-9]|3[01])",
                      day_of_short_month = "(0[1-9]|[12][0-9]|30)",
                      leap_year =
                          "([0-9]{2}(0[48]|[2468][048]|[13579][26])|"
                          "([02468][048]|[13579][26])00)";
    const std::string date = "([0-9]{4}-((0[13578]|1[02])-" + day_of_long_month +
                             "|(0[469]|11)-" + day_of_short_month +
                             "|02-(0[1-9]|1[0-9]|2[0-8]))|" + leap_year + "-02-29)";
    const std::string time =
        "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
        "(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])";
    const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?";
    const std::string hostname = label + "(\\." + label + "){0,5}";
    const std::string any_label = "[A-Za-z0-9]+(-[A-Za-z0-9]+)*";  // of any length
    const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    const std::string group = "[0-9a-f]{1,4}";
    const std::string name = "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*";
    const std::string uri = "[a-z][a-z0-9+.-]*://" + any_label + "(\\." + any_label +
                            ")*"
                            "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~-]+)*/?"
                            "(\\?[A-Za-z0-9=&._~-]*)?(#[A-Za-z0-9._~-]*)?";
    return {{"date", date},
            {"time", time},
            {"date-time", date + "T" + time},
            {"duration",
             "P([0-9]{1,4}W|[0-9]{1,4}D(T[0-9]{1,4}H([0-9]{1,4}M)?)?|"
             "T[0-9]{1,4}(H|M|S))"},
            {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"},
            {"email", name + "@(" + any_label + "\\.)+[A-Za-z]{2,20}"},
            {"hostname", hostname},
            {"ipv4", "(" + byte + "\\.){3}" + byte},
            {"ipv6", "(" + group + ":){7}" + group},
            {"uri", uri},
            {"url", uri},
            {"uri-reference", "(/[A-Za-z0-9._~-]+)+|" + uri},
            {"json-pointer", "(/[A-Za-z0-9._-]*)*"}};
}

}  // namespace

std::optional<std::string> pattern_of_format(const std::string& format) {
    static const std::map<std::string, std::string> patterns = make_patterns();
    const auto found = patterns.find(format);
    if (found == patterns.end()) return {};
    return "^(" + found->second + ")$";
}

}  // namespace llm
