#include "chapters/apps/fine_tune/methods.hpp"

#include <algorithm>
#include <numeric>

#include "chapters/14_fine_tuning/answers.hpp"
#include "chapters/14_fine_tuning/dpo.hpp"
#include "chapters/14_fine_tuning/grpo_step.hpp"
#include "chapters/apps/fine_tune/reports.hpp"
#include "chapters/apps/fine_tune/run_steps.hpp"
#include "common/numbers/choices.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/show.hpp"

namespace llm::fine_tune {
namespace {

// The two completions of one prompt.
struct CompletionPair {
    Completion chosen, rejected;
};
// A prompt, and the correct answer.
struct EncodedQuestion {
    std::vector<Id> prompt_ids;
    std::string answer;
};

// The tokens that the context must hold; after a prompt, at least one of an answer.
std::size_t num_tokens(const Completion& completion) {
    return completion.prompt_ids.size() + completion.response_ids.size();
}
std::size_t num_tokens(const CompletionPair& pair) {
    return std::max(num_tokens(pair.chosen), num_tokens(pair.rejected));
}
std::size_t num_tokens(const EncodedQuestion& question) {
    return question.prompt_ids.size() + 1;
}

// Calls encode(item) for each conversation or preference. Leaves out those of which it throws
// ValueError, and shows how many, and the first with its line; throws if there are no others.
template <class T, class Encode>
void encode_each(const std::vector<T>& items, const Encode& encode) {
    std::string first;
    std::size_t left_out = 0;
    for (const T& item : items) {
        try {
            encode(item);
        } catch (const ValueError& error) {
            if (++left_out == 1) first = item.source + ": " + error.what();
        }
    }
    require(left_out < items.size(), "{}", first);
    if (left_out == 0) return;
    show("left out, because they cannot be encoded", left_out);
    say("the first: " + first);
}

// Leaves out what has more tokens than the model's context, before the first step.
template <class T>
std::vector<T> that_fit(std::vector<T> all, const FineTuningRun& run) {
    const std::size_t max_tokens = run.tuner.model.config.max_position_embeddings;
    const std::size_t left_out =
        std::erase_if(all, [&](const T& one) { return num_tokens(one) > max_tokens; });
    if (left_out > 0)
        show("left out, longer than " + to_text(max_tokens) + " tokens", left_out);
    require(!all.empty(), "no conversation fits into the context of {} tokens", max_tokens);
    return all;
}

}  // namespace

void run_sft(FineTuningRun& run, const std::vector<Conversation>& conversations) {
    std::vector<Completion> completions;
    encode_each(conversations, [&](const Conversation& conversation) {
        for (const Completion& completion : run.encoder.completions(conversation.messages))
            completions.push_back(completion);
    });
    completions = that_fit(std::move(completions), run);
    show("answers to train on", with_commas(completions.size()));
    show("epochs", fixed(double(run.steps * run.batch_size) / double(completions.size()), 2));
    const LossOn loss_on =
        run.arguments.loss_on_everything ? LossOn::everything : LossOn::response;
    const auto lines = run_steps(run, {"loss", "gradient norm"}, [&](std::size_t step) {
        const ResponseBatch batch =
            make_response_batch(random_choices(completions, run.batch_size, run.generator),
                                run.encoder.end_of_turn(), loss_on);
        const auto loss = [&](const Matrix& log_probs) {
            return sft_loss(log_probs, batch.response_mask);
        };
        const FineTuningMetrics metrics = fine_tuning_step(
            run.tuner, batch, loss, learning_rate_at(run.schedule, step), 1, run.gradients);
        return std::vector{metrics.loss, metrics.grad_norm};
    });
    plot("sft", {LinePlot{"SFT", "step", "loss, nats per token", {lines[0]}}});
}

void run_dpo(FineTuningRun& run, const std::vector<Preference>& preferences) {
    std::vector<CompletionPair> pairs;
    encode_each(preferences, [&](const Preference& preference) {
        pairs.push_back({run.encoder.completion(preference.prompt, preference.chosen),
                         run.encoder.completion(preference.prompt, preference.rejected)});
    });
    pairs = that_fit(std::move(pairs), run);
    const Model reference = run.tuner.model;
    const Real beta = run.arguments.beta < 0 ? Real(0.1) : Real(run.arguments.beta);
    const std::vector<std::string> names = {"loss", "chosen", "rejected", "accuracy"};
    const auto lines = run_steps(run, names, [&](std::size_t step) {
        // First all chosen answers, then the rejected ones to the same prompts.
        std::vector<Completion> completions;
        const auto sampled = random_choices(pairs, run.batch_size, run.generator);
        for (const CompletionPair& pair : sampled) completions.push_back(pair.chosen);
        for (const CompletionPair& pair : sampled) completions.push_back(pair.rejected);
        const ResponseBatch batch = make_response_batch(completions, run.encoder.end_of_turn());
        const Vector reference_log_probs =
            sequence_log_probs(batch_log_probs(reference, batch), batch.response_mask);
        DpoTokenLoss metrics;
        const auto loss = [&](const Matrix& log_probs) {
            metrics = dpo_token_loss(log_probs, batch.response_mask, reference_log_probs, beta,
                                     Real(run.arguments.rpo_alpha));
            return TokenLoss{metrics.loss, metrics.gradient};
        };
        fine_tuning_step(run.tuner, batch, loss, learning_rate_at(run.schedule, step), 1,
                         run.gradients);
        return std::vector{metrics.loss, mean_of(metrics.dpo.chosen_rewards),
                           mean_of(metrics.dpo.rejected_rewards), metrics.dpo.accuracy};
    });
    plot("dpo_rewards",
         {LinePlot{"DPO: rewards", "step", "β (ln p - ln p_ref)", {lines[1], lines[2]}}});
}

void run_grpo(FineTuningRun& run, const std::vector<AskedQuestion>& questions) {
    std::vector<EncodedQuestion> encoded;
    for (const AskedQuestion& question : questions)
        encoded.push_back({run.encoder.prompt_ids(question.messages), question.answer});
    encoded = that_fit(std::move(encoded), run);
    const Model reference = run.tuner.model;
    GrpoArguments args;
    args.group_size = run.arguments.group_size;
    if (run.arguments.beta >= 0) args.loss.beta = Real(run.arguments.beta);
    if (run.arguments.loss_type == "dapo") args.loss.aggregation = LossAggregation::token_mean;
    if (run.arguments.loss_type == "dr_grpo") {
        args.scale_rewards = false;
        args.loss.aggregation = LossAggregation::fixed_length;
        args.loss.max_length = run.arguments.max_new_tokens;
    }
    const auto decode = [&](const std::vector<Id>& ids) {
        return run.encoder.tokenizer.decode(ids);
    };
    const std::vector<std::string> names = {"reward", "groups", "clipped", "KL"};
    const auto lines = run_steps(run, names, [&](std::size_t step) {
        std::vector<std::vector<Id>> prompts;
        std::vector<std::string> answers;
        for (const auto& [prompt_ids, answer] :
             random_choices(encoded, run.batch_size, run.generator)) {
            prompts.push_back(prompt_ids);
            answers.push_back(answer);
        }
        const Rollouts rollouts = sample_rollouts(run.tuner.model, prompts, args.group_size,
                                                  run.arguments.max_new_tokens,
                                                  run.encoder.end_of_turn(), run.generator);
        const Vector rewards = exact_match_rewards(rollouts, answers, decode);
        args.learning_rate = learning_rate_at(run.schedule, step);
        const GrpoMetrics metrics =
            grpo_step(run.tuner, reference, rollouts, rewards, args, run.gradients);
        return std::vector{metrics.mean_reward, double(metrics.groups_with_gradient),
                           metrics.clip_fraction, metrics.kl};
    });
    plot("reward", {LinePlot{"GRPO", "step", "mean reward", {lines[0]}}});
}

void sample_preferences(FineTuningRun& run, const std::vector<AskedQuestion>& questions,
                        std::vector<Preference>& preferences) {
    Reports reports(run.steps, {"wrong answers"});
    const AnswerConfig config{1, run.arguments.max_new_tokens};
    while (reports.num_steps_done() < run.steps) {
        const auto asked = random_choices(questions, run.batch_size, run.generator);
        const std::vector<std::string> answers =
            answers_of(run.tuner.model, run.encoder, asked, config, run.generator);
        std::size_t num_wrong = 0;
        for (std::size_t i = 0; i < asked.size(); ++i) {
            if (answers[i].empty() || exact_match_reward(asked[i].answer, answers[i]) == 1)
                continue;
            preferences.push_back({asked[i].messages, asked[i].answer, answers[i]});
            ++num_wrong;
        }
        reports.end_step({double(num_wrong) / double(asked.size())});
    }
}

}  // namespace llm::fine_tune
