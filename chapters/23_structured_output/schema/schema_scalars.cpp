#include <algorithm>
#include <cmath>
#include <numeric>

#include "chapters/23_structured_output/schema/schema_compiler.hpp"
#include "chapters/23_structured_output/schema/string_formats.hpp"

namespace llm {
namespace {

double number_in(const SchemaPart& value) {
    const std::optional<double> number = value.schema->number();
    require(number.has_value(), "json_schema: {}: expected a number, got {}", value.path,
            json_text(*value.schema).substr(0, 40));
    return *number;
}

// The tightest of the bounds below, or, with a sign of -1, above. In draft 4,
// exclusiveMinimum is true or false and says whether minimum itself is out.
std::optional<NumberBound> bound(const SchemaParts& schema, const std::string& inclusive,
                                 const std::string& exclusive, double sign) {
    std::optional<NumberBound> tightest;
    const auto take = [&](const NumberBound& other) {
        const double difference = tightest ? sign * (other.value - tightest->value) : 1;
        if (difference > 0 || (difference == 0 && other.exclusive)) tightest = other;
    };
    for (const SchemaPart& part : schema.parts) {
        const Json* is_exclusive = part.schema->find(exclusive);
        if (part.schema->find(inclusive))
            take({number_in(member(part, inclusive)),
                  is_exclusive && *is_exclusive == Json(true)});
        if (is_exclusive && !is_exclusive->as<bool>())
            take({number_in(member(part, exclusive)), true});
    }
    return tightest;
}

std::optional<NumberBound> minimum(const SchemaParts& schema) {
    return bound(schema, "minimum", "exclusiveMinimum", 1);
}
std::optional<NumberBound> maximum(const SchemaParts& schema) {
    return bound(schema, "maximum", "exclusiveMaximum", -1);
}

// The first integer that is not below a bound, limited to 16 digits and one more.
std::int64_t first_integer(const NumberBound& bound) {
    const double limit = 1e16, rounded = std::ceil(bound.value);
    const double first = bound.exclusive && rounded == bound.value ? rounded + 1 : rounded;
    return static_cast<std::int64_t>(std::clamp(first, -limit, limit));
}

bool has_pattern(const SchemaParts& schema) {
    const std::vector<SchemaPart> formats = schema.all("format");
    return schema.find("pattern") ||
           std::any_of(formats.begin(), formats.end(), [](const SchemaPart& format) {
               return pattern_of_format(expect<std::string>(format, "a format")).has_value();
           });
}

}  // namespace

// The strings that satisfy pattern, format and lengths. The states of a pattern are multiplied
// by the lengths that they count, so a large maxLength becomes one that the automaton has room
// for.
RegexPool::Regex SchemaCompiler::regex_of(RegexPool& pool, const SchemaParts& schema) {
    std::vector<RegexPool::Regex> parts;
    for (const SchemaPart& pattern : schema.all("pattern"))
        parts.push_back(parse_pattern(pool, expect<std::string>(pattern, "a pattern")));
    for (const SchemaPart& format : schema.all("format"))
        if (const auto pattern = pattern_of_format(expect<std::string>(format, "a format")))
            parts.push_back(parse_pattern(pool, *pattern));
    const std::size_t min = largest_count(schema, "minLength").value_or(0);
    auto max = smallest_count(schema, "maxLength");
    if (max) {
        const std::size_t room = RegexPool::max_states / pool.num_states(pool.both(parts));
        max = std::max(min, std::min(*max, room - 1));
    }
    if (min > 0 || max)
        parts.push_back(pool.repeat(pool.one_of(CharacterSet().set()), min, max));
    return pool.both(parts);
}

RuleIndex SchemaCompiler::string(const SchemaParts& schema) {
    try {
        RegexPool pool;
        if (has_pattern(schema))
            return pool.add_string(rules_, schema.path(), regex_of(pool, schema));
    } catch (const ValueError& error) {
        leave_out(schema.path(), error.what());
        return json_.string;
    }
    const auto min = largest_count(schema, "minLength"),
               max = smallest_count(schema, "maxLength");
    if (!min && !max) return json_.string;
    const RuleIndex characters =
        rules_.repeat(schema.path(), json_.character, min.value_or(0), max);
    return rules_.add(schema.path(), {{bytes_of("\""), characters, bytes_of("\"")}});
}

RuleIndex SchemaCompiler::integer(const SchemaParts& schema) {
    IntegerRange range;
    if (const auto min = minimum(schema)) range.min = std::max(range.min, first_integer(*min));
    if (const auto max = maximum(schema))
        range.max = std::min(range.max, -first_integer({-max->value, max->exclusive}));
    for (const SchemaPart& value : schema.all("multipleOf")) {
        const double multiple = number_in(value);
        require(multiple > 0, "json_schema: {}: expected a number above 0, got {}", value.path,
                json_text(*value.schema));
        if (multiple == std::floor(multiple) && multiple < 1e9)
            range.multiple_of = std::lcm(range.multiple_of, std::int64_t(multiple));
        else
            leave_out(value.path, "only integers are supported");
    }
    if (range == IntegerRange{}) return json_.integer;
    const auto known = integers_.find(range);
    if (known != integers_.end()) return known->second;
    return integers_[range] = add_integers(rules_, schema.path(), range);
}

RuleIndex SchemaCompiler::number(const SchemaParts& schema) {
    if (schema.find("multipleOf")) return integer(schema);
    const auto min = minimum(schema), max = maximum(schema);
    return min || max ? add_numbers(rules_, schema.path(), min, max) : json_.number;
}

}  // namespace llm
