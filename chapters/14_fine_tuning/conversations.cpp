#include "chapters/14_fine_tuning/conversations.hpp"

#include <algorithm>
#include <set>

#include "common/files/json_lines.hpp"
#include "common/files/mapped_file.hpp"

namespace llm {
namespace {

// Keys that describe a line of published data sets, and change nothing.
const std::set<std::string> description_keys = {
    "category", "dataset", "id", "language", "metadata", "prompt_id", "source", "split", "url"};

double weight_of(const JsonFile& message) {
    const double weight = message.has("weight") ? message.number("weight") : 1;
    if (weight != 0 && weight != 1) message.reject("weight", "is neither 0 nor 1");
    return weight;
}

std::vector<Message> messages_of(const JsonFile& json, const std::string& key) {
    std::vector<Message> messages;
    for (const JsonFile& message : json.objects(key)) {
        messages.push_back({message.text("role"), message.text("content")});
        messages.back().is_trained = weight_of(message) != 0;
        message.reject_unread({});
    }
    return messages;
}

// The content of the only message, which is the assistant's.
std::string answer_in(const JsonFile& json, const std::string& key) {
    const std::vector<Message> messages = messages_of(json, key);
    if (messages.size() != 1 || messages[0].role != "assistant")
        json.reject(key, "is not one message of the assistant");
    return messages[0].content;
}

bool is_answer(const Message& message) { return message.role == "assistant"; }
bool is_trained(const Message& message) { return is_answer(message) && message.is_trained; }

}  // namespace

std::vector<Conversation> read_conversations(const std::string& file) {
    std::vector<Conversation> conversations;
    for (const JsonFile& json : read_json_lines(file)) {
        const std::vector<Message> messages = messages_of(json, "messages");
        if (std::none_of(messages.begin(), messages.end(), is_trained))
            json.reject("messages", "has no message of the assistant to train");
        if (is_answer(messages.front()))
            json.reject("messages", "begins with a message of the assistant");
        conversations.push_back(
            {messages, json.has("task") ? json.text("task") : "", json.path().string()});
        json.reject_unread(description_keys);
    }
    return conversations;
}

std::vector<Preference> read_preferences(const std::string& file) {
    std::vector<Preference> preferences;
    for (const JsonFile& json : read_json_lines(file)) {
        const std::vector<Message> prompt = messages_of(json, "prompt");
        if (prompt.empty()) json.reject("prompt", "has no messages");
        preferences.push_back({prompt, answer_in(json, "chosen"), answer_in(json, "rejected"),
                               json.path().string()});
        json.reject_unread(description_keys);
    }
    return preferences;
}

void write_preferences(const std::string& file, const std::vector<Preference>& preferences) {
    const auto add_message = [](JsonMembers& members, const std::string& key,
                                const Message& message) {
        members.push_back({key + ".role", message.role});
        members.push_back({key + ".content", message.content});
    };
    std::string text;
    for (const auto& [prompt, chosen, rejected, source] : preferences) {
        JsonMembers members;
        for (std::size_t i = 0; i < prompt.size(); ++i)
            add_message(members, "prompt." + to_text(i), prompt[i]);
        add_message(members, "chosen.0", {"assistant", chosen});
        add_message(members, "rejected.0", {"assistant", rejected});
        text += json_line(members);
    }
    write_text_file(file, text);
}

Id ChatEncoder::end_of_turn() const { return end_of_turn_id(*chat_template.format, tokenizer); }

std::vector<RenderedPart> ChatEncoder::prompt(const std::vector<Message>& messages) const {
    RenderOptions options;
    options.bos_token = bos_token_text(tokenizer);
    return render_conversation(chat_template, messages, options);
}

std::vector<Id> ChatEncoder::prompt_ids(const std::vector<Message>& messages) const {
    return encode_conversation(tokenizer, prompt(messages));
}

Completion ChatEncoder::completion(const std::vector<Message>& messages,
                                   const std::string& answer) const {
    std::vector<Message> with_answer = messages;
    with_answer.push_back({"assistant", answer});
    RenderOptions options;
    options.add_generation_prompt = false;
    options.bos_token = bos_token_text(tokenizer);
    const std::vector<Id> ids = encode_conversation(
        tokenizer, render_conversation(chat_template, with_answer, options));
    const std::vector<Id> prompt = prompt_ids(messages);
    require(prompt.size() < ids.size() && std::equal(prompt.begin(), prompt.end(), ids.begin()),
            "the tokens of the prompt change when this answer follows: {}", escaped(answer));
    // What the template writes after the end of the turn is not part of the answer.
    const auto end = std::find(ids.rbegin(), ids.rend(), end_of_turn()).base();
    return {prompt, {ids.begin() + std::ptrdiff_t(prompt.size()), end}};
}

std::vector<Completion> ChatEncoder::completions(const std::vector<Message>& messages) const {
    std::vector<Completion> result;
    for (auto message = messages.begin(); message != messages.end(); ++message)
        if (is_trained(*message))
            result.push_back(completion({messages.begin(), message}, message->content));
    return result;
}

}  // namespace llm
