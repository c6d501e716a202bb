#include "chapters/apps/chat/chat_session.hpp"

#include <algorithm>
#include <array>
#include <ctime>

#include "chapters/23_structured_output/tool_calls.hpp"

namespace llm::chat {
using namespace models;

const Config& config_of(const InferenceModel& model) {
    return std::visit([](const auto& typed) -> const Config& { return typed.config; }, model);
}

CachedSequence make_cached_sequence(const InferenceModel& model, std::size_t num_positions,
                                    DType cache_dtype) {
    if (const auto* fast = std::get_if<FastModel>(&model))
        return make_cached_sequence(*fast, num_positions, cache_dtype);
    require(cache_dtype == DType::float32,
            "a cache of {} is not supported for this model type; supported: float32",
            to_text(cache_dtype));
    return make_cached_sequence(std::get<FamilyModel>(model), num_positions);
}

std::size_t drop_oldest_turns(std::vector<Message>& messages,
                              const std::function<bool(const std::vector<Message>&)>& fits) {
    const std::size_t before = messages.size();
    const auto from_user = [](const Message& message) { return message.role == "user"; };
    while (!fits(messages)) {
        const auto oldest = std::find_if(messages.begin(), messages.end(), from_user);
        if (oldest == messages.end()) break;
        const auto next = std::find_if(oldest + 1, messages.end(), from_user);
        if (next == messages.end()) break;
        messages.erase(oldest, next);
    }
    return before - messages.size();
}

CalculatorUse run_calculator(const std::string& answer) {
    CalculatorUse use;
    const std::size_t last_call = answer.rfind(tool_call_begin);
    if (last_call != std::string::npos && answer.find(tool_call_end, last_call) == answer.npos)
        return use;
    const std::vector<ToolCall> calls = parse_tool_calls(answer).tool_calls;
    if (!calls.empty()) use.messages.push_back({"assistant", answer});
    for (const ToolCall& call : calls) {
        const std::string result = run_tool(call);
        const Json arguments = parse_json(call.arguments, "arguments");
        const Json* expression = arguments.find("expression");
        use.messages.push_back({"tool", result});
        use.calculations.push_back((expression ? *expression->as<std::string>() : "?") + " = " +
                                   result);
    }
    return use;
}

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm date;
    localtime_r(&now, &date);  // the server's threads would share the result of std::localtime
    std::array<char, 32> text;
    const std::size_t size = std::strftime(text.data(), text.size(), "%d %b %Y", &date);
    return {text.data(), size};
}

std::size_t longest_prompt(std::size_t num_positions, std::size_t max_new_tokens) {
    return num_positions - std::min(max_new_tokens, num_positions / 2);
}

}  // namespace llm::chat
