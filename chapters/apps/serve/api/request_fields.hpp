// The fields of a JSON object that a client sent: each is read with its type and its limits, or
// rejected by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/json.hpp"

namespace llm::serve {

// The accessors throw ApiError 400, which names the field, if it has another type or is not
// within the limits. null counts as absent, as in OpenAI's API. The object must outlive this.
class RequestFields {
 public:
    // `inside` is the name of a nested object, such as "messages[0]". Throws ApiError if the
    // value is no object.
    explicit RequestFields(const Json& object, std::string inside = {});

    const Json* find(const std::string& name);  // nullptr: absent
    std::string text(const std::string& name);  // required
    bool flag_or(const std::string& name, bool otherwise);
    double number_or(const std::string& name, double low, double high, double otherwise);
    std::optional<std::int64_t> integer(const std::string& name, std::int64_t low,
                                        std::int64_t high);
    std::vector<std::string> texts(const std::string& name);  // a string, or an array of them

    // A field whose effect is not implemented: only values that ask for no effect.
    void allow_only(const std::string& name, std::initializer_list<Json> neutral);
    // A string that changes no answer: it tells who asks.
    void allow_label(const std::string& name);

    // Throws ApiError, which names a field that none of these functions was asked for.
    void reject_unread() const;

    // "stop", or "messages[0].stop".
    std::string full_name(const std::string& name) const;

 private:
    const JsonObject* object_;
    std::string inside_;
    std::set<std::string> read_{};
};

}  // namespace llm::serve
