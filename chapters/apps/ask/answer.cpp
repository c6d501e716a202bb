#include "chapters/apps/ask/answer.hpp"

#include <algorithm>

#include "chapters/11_generation/text_streamer.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/unicode.hpp"

namespace llm::ask {
namespace {

std::vector<Id> encode_prompt_for(const chat::ChatModel& model, const std::string& prompt) {
    if (!model.chat_template) return models::encode_prompt(model.tokenizer, prompt + "\n");
    return encode_conversation(
        model.tokenizer,
        render_conversation(*model.chat_template, {{"user", prompt}},
                            {true, false, bos_token_text(model.tokenizer), chat::today()}));
}

}  // namespace

std::string prompt_of(const std::string& question, const std::string& passages) {
    if (passages.empty()) return question;
    return "Answer the question with this text. If the text does not answer it, say so.\n\n" +
           passages + "\n\n" + question;
}

std::vector<Id> encode_question(const chat::ChatModel& model, const std::string& question,
                                const std::string& passages, std::size_t num_positions,
                                std::size_t max_new_tokens) {
    const std::size_t longest = chat::longest_prompt(num_positions, max_new_tokens);
    const std::vector<std::string> words = split_at_spaces(passages);
    const auto encoded = [&](std::size_t count) {
        return encode_prompt_for(model, prompt_of(question, first_words(words, count)));
    };
    // Find the largest number of words that fits, by bisection.
    std::size_t fits = 0, too_many = words.size() + 1;
    while (too_many - fits > 1) {
        const std::size_t middle = fits + (too_many - fits) / 2;
        (encoded(middle).size() <= longest ? fits : too_many) = middle;
    }
    std::vector<Id> ids = encoded(fits);
    require(ids.size() < num_positions, "the question has {} tokens, the context only {}",
            ids.size(), num_positions);
    return ids;
}

std::string answer_question(const chat::ChatModel& model, const std::string& question,
                            const std::string& passages, const AnswerOptions& options,
                            const std::function<void(const std::string&)>& on_text) {
    const std::size_t num_positions =
        std::min(options.context_length, chat::config_of(model.model).max_position_embeddings);
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = std::min(options.max_new_tokens, num_positions / 2);
    config.eos_token_ids = model.eos_token_ids;
    const std::vector<Id> prompt =
        encode_question(model, question, passages, num_positions, config.max_new_tokens);
    CachedSequence cached =
        chat::make_cached_sequence(model.model, num_positions, options.cache_dtype);
    Generator generator(0);  // not used at temperature 0
    IncrementalDecoder decoder(model.tokenizer);
    const GeneratedTokens answer = generate(cached, prompt, config, generator, [&](Id id) {
        const std::string text = decoder.put(id);
        if (on_text) on_text(text);
    });
    if (answer.reason == StopReason::interrupted) throw Interrupted();
    return model.tokenizer.decode(answer.ids);
}

bool contains_words(const std::string& answer, const std::string& expected) {
    const std::vector<std::string> in_answer = words(answer), wanted = words(expected);
    return !wanted.empty() && std::search(in_answer.begin(), in_answer.end(), wanted.begin(),
                                          wanted.end()) != in_answer.end();
}

}  // namespace llm::ask
