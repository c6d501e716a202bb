// ./learn chat: a conversation with a model: with the fast path of chapters 15 and 16, or of a
// model type of chapter 17 or 18.
#include <algorithm>

#include "chapters/11_generation/sampling_options.hpp"
#include "chapters/11_generation/text_streamer.hpp"
#include "chapters/23_structured_output/tool_use.hpp"
#include "chapters/apps/chat/chat_session.hpp"
#include "chapters/apps/chat/model_options.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/standard_input.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/options.hpp"

using namespace llm;
using namespace llm::models;
using namespace llm::chat;

struct Arguments {
    ModelOptions model;
    std::string system_prompt;
    bool no_thinking = false, calculator = false;
    std::size_t context_length = 2048;
    GenerationConfig config;
};

constexpr std::size_t max_calls = 4;  // of the calculator, for one answer

// The conversation, and what answers depend on.
struct Session {
    const Arguments& arguments;
    const ChatModel& chat;
    CachedSequence cached;
    std::shared_ptr<const TokenTrie> trie;  // of the tokens; with a calculator
    Generator generator;
    std::vector<Message> messages{};  // with a chat template
    std::string text{};               // without one: the text that the model continues
    bool has_dropped = false;         // messages, in this conversation

    std::vector<RenderedPart> render(const std::vector<Message>& conversation) const {
        return render_conversation(
            *chat.chat_template, conversation,
            {true, !arguments.no_thinking, bos_token_text(chat.tokenizer), today()});
    }
    void reset() {
        has_dropped = false;
        messages.clear();
        text.clear();
        if (!arguments.system_prompt.empty())
            messages.push_back({"system", arguments.system_prompt});
    }
};

// Generates tokens and prints them as text. The text of a prompt that is to be continued is not
// printed again. With a calculator or a list of bad words, an answer is printed when it is
// complete: without calls, and one with such a word is replaced. Returns the text of the
// answer.
std::string stream_answer(Session& session, const std::vector<Id>& prompt_ids,
                          const std::vector<Id>& printed_ids) {
    const Tokenizer& tokenizer = session.chat.tokenizer;
    const BadWords& bad_words = session.chat.bad_words;
    const bool is_streamed = bad_words.empty() && !session.trie;
    TextStreamer streamer(tokenizer, printed_ids);
    GenerationConfig config = session.arguments.config;
    if (session.trie)
        config.logits_processor =
            tool_use_logits(session.trie, {calculator_tool()}, {.parallel = false});
    const GeneratedTokens answer =
        generate(session.cached, prompt_ids, config, session.generator, [&](Id id) {
            if (is_streamed) streamer.put(id);
        });
    std::string text = tokenizer.decode(answer.ids);
    if (has_bad_word(text, bad_words)) text = "I do not know that.";
    const std::string shown = session.trie ? text.substr(0, text.find(tool_call_begin)) : text;
    if (!is_streamed) write_text(shown);
    if (is_streamed || !shown.empty()) end_text();
    if (answer.reason == StopReason::last_position)
        note("(The context of " + to_text(session.cached.num_positions) + " tokens is full.)");
    if (answer.reason == StopReason::max_new_tokens && session.chat.chat_template)
        note("(--max-new-tokens ended the answer.)");
    if (answer.reason == StopReason::interrupted) note("(stopped)");
    return text;
}

// Encodes a conversation. If it is too long, its oldest turns are dropped, until it has three
// quarters of the tokens that it may have: in the next turns its beginning then stays as it is,
// so that the cache can be used.
std::vector<Id> encode_what_fits(Session& session, std::vector<Message>& messages) {
    const std::size_t num_positions = session.cached.num_positions;
    const std::size_t allowed =
        longest_prompt(num_positions, session.arguments.config.max_new_tokens);
    std::size_t max_tokens = allowed;
    std::vector<Id> ids;
    const auto fits = [&](const std::vector<Message>& conversation) {
        ids = encode_conversation(session.chat.tokenizer, session.render(conversation));
        if (ids.size() <= max_tokens) return true;
        max_tokens = allowed - allowed / 4;
        return false;
    };
    const std::size_t dropped = drop_oldest_turns(messages, fits);
    require(ids.size() < num_positions,
            "this message has {} tokens with the system prompt{}, the context only {}",
            ids.size(), messages.back().role == "tool" ? " and the calculator's result" : "",
            num_positions);
    if (dropped > 0 && !std::exchange(session.has_dropped, true))
        note("(From here on, the oldest messages are dropped, to leave room for the answers.)");
    return ids;
}

// Answers messages of which the last is the user's. A model with a calculator may call it
// first: then the call and its result are added, and the model reads them and goes on.
std::string answer_with_calculator(Session& session, std::vector<Message> messages,
                                   const std::vector<Id>& ids) {
    std::string answer = stream_answer(session, ids, {});
    for (std::size_t calls = 0; session.trie && calls < max_calls; ++calls) {
        const CalculatorUse use = run_calculator(answer);
        if (use.messages.empty()) break;
        for (const std::string& calculation : use.calculations)
            note("(calculator: " + calculation + ")");
        messages.insert(messages.end(), use.messages.begin(), use.messages.end());
        answer = stream_answer(session, encode_what_fits(session, messages), {});
    }
    return answer;
}

// Answers a message of the user. Calls are not kept in the conversation: what the user says
// next refers to the answer, and the context is short.
void answer_message(Session& session, const std::string& content) {
    std::vector<Message> messages = session.messages;
    messages.push_back({"user", content});
    const std::vector<Id> ids = encode_what_fits(session, messages);
    session.messages = messages;
    const std::string answer = answer_with_calculator(session, messages, ids);
    session.messages.push_back({"assistant", answer});
}

// Continues a text; an empty line continues the last one.
void continue_text(Session& session, const std::string& line) {
    if (line.empty() && session.text.empty()) return;
    const std::string text = line.empty() ? session.text : line;
    const std::vector<Id> ids = models::encode_prompt(session.chat.tokenizer, text);
    const std::size_t num_positions = session.cached.num_positions;
    require(ids.size() < num_positions, "the text has {} tokens, the context only {}",
            ids.size(), num_positions);
    session.text = text + stream_answer(session, ids, ids);
}

// Shows what the model read before its last answer, and the answer.
void show_rendered_conversation(const Session& session) {
    require(session.chat.chat_template.has_value(), "this model has no chat template");
    std::vector<Message> messages = session.messages;
    std::string answer;
    if (!messages.empty() && messages.back().role == "assistant") {
        answer = messages.back().content;
        messages.pop_back();
    }
    write_text(rendered_text(session.render(messages)) + answer);
    end_text();
}

void show_help(const Session& session) {
    show("/template", "show the conversation as the model reads it, with special tokens");
    show("/reset", "begin a new conversation");
    show("/help", "show this list");
    show("/quit", "end the program, as Ctrl-D does");
    show("Ctrl-C", "stop an answer");
    if (!session.chat.chat_template) show("an empty line", "continue the last text");
}

// Runs a line: a command, or text for the model. Returns false for /quit.
bool run_line(Session& session, const std::string& line) {
    if (line == "/quit") return false;
    if (line == "/help")
        show_help(session);
    else if (line == "/reset")
        session.reset();
    else if (line == "/template")
        show_rendered_conversation(session);
    else if (line.starts_with('/'))
        throw TextError("there is no command " + escaped(line) + "; /help lists them");
    else if (!session.chat.chat_template)
        continue_text(session, line);
    else if (!line.empty())
        answer_message(session, line);
    return true;
}

bool ends_at_signal() { return InterruptHandler::terminated() || !is_interactive(); }

// Reads lines until /quit or the end of the input, or until Ctrl-C twice at the prompt. In a
// pipe or script, the first Ctrl-C ends the program.
void run_session(Session& session) {
    InterruptHandler handler;
    bool interrupted_before = false;
    while (true) {
        try {
            const std::optional<std::string> line = read_line("> ");
            interrupted_before = false;
            if (!line && is_interactive()) end_text();
            if (!line || !run_line(session, *line)) return;
            if (InterruptHandler::interrupted() && ends_at_signal()) return;
        } catch (const Interrupted&) {
            end_text();
            if (interrupted_before || ends_at_signal()) return;
            interrupted_before = true;
            note("(Ctrl-C again, Ctrl-D or /quit ends the program.)");
        } catch (const TextError& error) {
            note(error.what());
        } catch (const ValueError& error) {
            note(error.what());
        }
        handler.reset();
    }
}

// In a terminal: the model that answers, and what the shipped one can do.
void greet(const std::string& model_path) {
    if (!is_interactive()) return;
    if (model_path == asset("wordnet_calculator"))
        note(
            "A model of 2 million parameters, which adds, subtracts, compares and spells.\n"
            "Try: What is 47 + 38?   And 5 more?   Spell kitchen.   And backward?   /help");
    else
        note("Talking with " + model_path + "; /help lists the commands.");
}

std::shared_ptr<const TokenTrie> trie_for_calls(ChatModel& model) {
    require(model.chat_template.has_value(),
            "--calculator needs a chat template, which this model does not have; --template "
            "NAME chooses one");
    return make_tool_trie(model.tokenizer, model.eos_token_ids);
}

void run_chat(Arguments arguments, const ChatModelFiles& files, std::uint32_t seed) {
    check_temperature(arguments.config.sampling);
    ChatModel model = load_chat_model(files);
    arguments.config.eos_token_ids = model.eos_token_ids;
    require(model.chat_template || arguments.system_prompt.empty(),
            "--system needs a chat template, which this model does not have; --template NAME "
            "chooses one");
    const std::size_t num_positions =
        std::min(arguments.context_length, config_of(model.model).max_position_embeddings);
    Session session{arguments, model,
                    make_cached_sequence(model.model, num_positions,
                                         dtype_named(arguments.model.cache_dtype)),
                    arguments.calculator ? trie_for_calls(model) : nullptr, Generator(seed)};
    greet(files.model_path);
    if (!model.chat_template)
        note("There is no chat template: the model only continues the text of each line.");
    session.reset();
    // The template may reject a system message or results of a tool: before the first line.
    if (!arguments.system_prompt.empty()) session.render({session.messages[0], {"user", ""}});
    if (session.trie) session.render({{"user", ""}, {"assistant", ""}, {"tool", ""}});
    run_session(session);
}

void add_options(Options& options, Arguments& arguments) {
    add_model_options(options, arguments.model);
    options.text("--system", arguments.system_prompt, "the system message");
    options.flag("--no-thinking", arguments.no_thinking,
                 "Qwen3: begin answers with an empty <think> block");
    options.flag("--calculator", arguments.calculator,
                 "the model may call a calculator, as it has learned to; the shipped "
                 "model does, and its --temperature is 0 unless given");
    options.count("--max-new-tokens", arguments.config.max_new_tokens, 1, 1 << 20,
                  "the longest answer");
    options.count("--context-length", arguments.context_length, 2, 1 << 20,
                  "tokens of conversation and answer, at most those of the model; the KV "
                  "cache takes memory for all of them");
    add_sampling_options(options, arguments.config.sampling);
}

int main(int argc, char** argv) {
    Arguments arguments;
    arguments.config.sampling.temperature = 0.7f;
    arguments.config.sampling.top_p = 0.9f;
    Options options("chat", "a conversation with a model");
    add_options(options, arguments);
    return options.run(argc, argv, [&] {
        if (is_shipped_model(arguments.model)) {
            arguments.calculator = true;
            if (!options.given("--temperature")) arguments.config.sampling.temperature = 0;
        }
        run_chat(arguments, chosen_files(options, arguments.model), options.seed());
    });
}
