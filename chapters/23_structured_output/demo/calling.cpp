#include "chapters/23_structured_output/demo/calling.hpp"

#include "chapters/11_generation/generation.hpp"
#include "chapters/14_fine_tuning/conversations.hpp"
#include "chapters/23_structured_output/tool_use.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The greedy answer to messages; it may be a call.
std::string greedy_answer(const Model& model, const ChatEncoder& encoder,
                          const std::shared_ptr<const TokenTrie>& trie,
                          const std::vector<Message>& messages) {
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = 100;
    config.eos_token_ids = {encoder.end_of_turn()};
    config.logits_processor = tool_use_logits(trie, {calculator_tool()}, {.parallel = false});
    Generator unused(1);
    const std::vector<Id> prompt_ids = encoder.prompt_ids(messages);
    return encoder.tokenizer.decode(generate(model, prompt_ids, config, unused).ids);
}

}  // namespace

void calls_of_the_chat_model() {
    step("The chat model calls the calculator");
    const std::string path = asset("wordnet_calculator");
    const Model model = models::load_model(path);
    Tokenizer tokenizer = models::load_tokenizer_of_model(path, "", model.config.vocab_size);
    const ChatEncoder encoder{tokenizer, ChatTemplate{}};
    const std::shared_ptr<const TokenTrie> trie =
        make_tool_trie(tokenizer, {encoder.end_of_turn()});

    std::vector<TableRow> rows;
    for (const std::string question :
         {"What is 345 + 218?", "9 - 15", "what's 128 times 64", "Spell ice."}) {
        std::vector<Message> messages = {{"user", question}};
        std::string answer = greedy_answer(model, encoder, trie, messages);
        TableRow row = {question, "-", "-"};
        if (const auto calls = parse_tool_calls(answer).tool_calls; !calls.empty()) {
            row = {question, calls[0].arguments, run_tool(calls[0])};
            messages.push_back({"assistant", answer});
            messages.push_back({"tool", row[2]});
            answer = greedy_answer(model, encoder, trie, messages);
        }
        row.push_back(answer);
        rows.push_back(row);
    }
    show_table({"question", "arguments of the call", "result", "answer"}, rows);
}

}  // namespace llm
