#include "chapters/14_fine_tuning/answers.hpp"

#include <cmath>

#include "chapters/11_generation/generation.hpp"
#include "common/numbers/hash.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

namespace llm {

bool is_held_out(const Question& question, unsigned percent) {
    // The low bits of FNV-1a of similar texts are alike; the high ones are mixed better.
    return (fnv1a(question.prompt) >> 32) % 100 < percent;
}

double exact_match_reward(const std::string& answer, const std::string& text) {
    const std::string spaces = " \t\r\n";
    const std::size_t first = text.find_first_not_of(spaces);
    if (first == text.npos) return 0;
    const std::size_t last = text.find_last_not_of(spaces);
    return text.substr(first, last - first + 1) == answer ? 1 : 0;
}

AskedQuestion question_of(const Conversation& conversation) {
    std::size_t last = conversation.messages.size() - 1;
    while (conversation.messages[last].role != "assistant") --last;
    const auto begin = conversation.messages.begin();
    return {{begin, begin + std::ptrdiff_t(last)},
            conversation.messages[last].content,
            conversation.task};
}

std::vector<std::string> answers_of(const Model& model, const ChatEncoder& encoder,
                                    const std::vector<AskedQuestion>& questions,
                                    const AnswerConfig& config, Generator& generator) {
    GenerationConfig generation;
    generation.sampling.temperature = config.temperature;
    generation.max_new_tokens = config.max_new_tokens;
    generation.eos_token_ids = {encoder.end_of_turn()};
    std::vector<std::uint32_t> seeds(questions.size());
    for (std::uint32_t& seed : seeds) seed = generator.next_32_bits();
    std::vector<std::string> answers(questions.size());
    parallel_for(questions.size(), [&](std::size_t i) {
        InterruptHandler::throw_if_interrupted();
        Generator own_generator(seeds[i]);
        const GeneratedTokens answer = generate(
            model, encoder.prompt_ids(questions[i].messages), generation, own_generator);
        if (answer.reason == StopReason::eos_token)
            answers[i] = encoder.tokenizer.decode(answer.ids);
    });
    return answers;
}

std::map<std::string, Score> score_answers(const std::vector<AskedQuestion>& questions,
                                           const std::vector<std::string>& answers) {
    std::map<std::string, Score> scores;
    for (std::size_t i = 0; i < questions.size(); ++i) {
        Score& score = scores[questions[i].task];
        ++score.num_questions;
        score.num_correct += exact_match_reward(questions[i].answer, answers[i]) == 1;
    }
    return scores;
}

}  // namespace llm
