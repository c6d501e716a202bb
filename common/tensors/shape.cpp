#include "common/tensors/shape.hpp"

#include <fmt/args.h>
#include <fmt/format.h>

namespace llm {

std::string to_text(std::span<const std::size_t> shape) {
    return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

void throw_value_error(std::string_view message, const std::vector<std::string>& arguments) {
    fmt::dynamic_format_arg_store<fmt::format_context> store;
    for (const std::string& argument : arguments) store.push_back(argument);
    throw ValueError(fmt::vformat(message, store));
}

}  // namespace llm
