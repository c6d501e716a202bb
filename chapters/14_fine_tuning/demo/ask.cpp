#include "chapters/14_fine_tuning/demo/ask.hpp"

#include <cmath>

#include "chapters/11_generation/generation.hpp"
#include "chapters/14_fine_tuning/conversations.hpp"
#include "chapters/14_fine_tuning/fine_tuner.hpp"
#include "chapters/models/chat/bad_words.hpp"
#include "chapters/models/chat/chat_templates.hpp"
#include "chapters/models/chat/peft_files.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm {
using namespace models;

namespace {

std::vector<Id> greedy_answer(const Model& model, const ChatEncoder& encoder,
                              const std::vector<Id>& prompt_ids, std::size_t max_new_tokens) {
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = max_new_tokens;
    config.eos_token_ids = {encoder.end_of_turn()};
    Generator generator(1);
    return generate(model, prompt_ids, config, generator).ids;
}

// Each token of the answer and of its end, with its probability.
void show_probabilities(const Model& model, const ChatEncoder& encoder,
                        const Completion& completion) {
    const ResponseBatch batch = make_response_batch({completion}, encoder.end_of_turn());
    const Matrix log_probs = batch_log_probs(model, batch);  // (1, T)
    std::vector<TableRow> rows;
    for (std::size_t t = 0; t < log_probs.shape(1); ++t)
        if (batch.response_mask(0, t) != 0)
            rows.push_back({escaped(encoder.tokenizer.token_text(batch.targets(0, t))),
                            fixed(std::exp(double(log_probs(0, t))), 3)});
    show_table({"token of the answer", "p"}, rows);
}

}  // namespace

void ask_demo(AskArguments arguments) {
    if (arguments.model.empty()) {
        arguments.model = asset("wordnet");
        arguments.adapter = asset("wordnet_answers");
    }
    const Model base = models::load_model(arguments.model);
    const Tokenizer tokenizer =
        models::load_tokenizer_of_model(arguments.model, "", base.config.vocab_size);
    const ChatEncoder encoder{tokenizer, chat_template_of(arguments.model, arguments.adapter)};
    step("The prompt, as the chat template writes it");
    const std::vector<Message> messages{{"user", arguments.question}};
    const std::vector<Id> prompt_ids = encoder.prompt_ids(messages);
    say(escaped(rendered_text(encoder.prompt(messages))));
    show("tokens", prompt_ids.size());

    step("The answer");
    const auto answer_of = [&](const Model& model) {
        return greedy_answer(model, encoder, prompt_ids, arguments.max_new_tokens);
    };
    const BadWords bad_words = read_bad_words(arguments.adapter);
    const auto hidden_if_bad = [&](const std::string& text) {
        return has_bad_word(text, bad_words) ? "(hidden: a word of bad_words.txt)"
                                             : escaped(text);
    };
    if (!arguments.adapter.empty())
        show("without the adapter", hidden_if_bad(tokenizer.decode(answer_of(base))));
    const Model model = arguments.adapter.empty()
                            ? base
                            : merge_lora(base, load_adapter(arguments.adapter, base));
    const std::vector<Id> ids = answer_of(model);
    const std::string answer = tokenizer.decode(ids);
    show("answer", hidden_if_bad(answer));
    if (has_bad_word(answer, bad_words)) return;
    Completion completion{prompt_ids, ids};
    if (ids.size() < arguments.max_new_tokens)
        completion.response_ids.push_back(encoder.end_of_turn());
    show_probabilities(model, encoder, completion);
}

}  // namespace llm
