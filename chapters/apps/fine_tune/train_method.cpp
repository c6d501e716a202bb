#include "chapters/apps/fine_tune/train_method.hpp"

#include <algorithm>

#include "chapters/14_fine_tuning/dpo.hpp"
#include "chapters/14_fine_tuning/grpo_step.hpp"
#include "common/files/mapped_file.hpp"
#include "common/numbers/choices.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/show.hpp"

namespace llm::fine_tune {
namespace {

// The two completions of one prompt.
struct CompletionPair {
    Completion chosen, rejected;
};

std::size_t num_tokens(const Completion& completion) {
    return completion.prompt_ids.size() + completion.response_ids.size();
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
template <class T, class NumTokens>
void leave_out_long(std::vector<T>& all, const FineTuningRun& run, const NumTokens& count) {
    const std::size_t max_tokens = run.tuner.model.config.max_position_embeddings;
    const std::size_t left_out =
        std::erase_if(all, [&](const T& one) { return count(one) > max_tokens; });
    if (left_out > 0)
        show("left out, longer than " + to_text(max_tokens) + " tokens", left_out);
    require(!all.empty(), "no conversation fits into the context of {} tokens", max_tokens);
}

std::vector<Conversation> read_conversations_of(const std::string& task,
                                                const std::string& file) {
    std::vector<Conversation> all = read_conversations(file);
    if (!task.empty()) std::erase_if(all, [&](const auto& one) { return one.task != task; });
    if (all.empty())
        throw FileError(file + ": it has no conversations" +
                        (task.empty() ? "" : " of the task " + task));
    return all;
}

GrpoArguments grpo_arguments(const Grpo& method, std::size_t max_new_tokens) {
    GrpoArguments args;
    args.group_size = method.group_size;
    args.loss.beta = Real(method.beta);
    if (method.loss_type == "dapo") args.loss.aggregation = LossAggregation::token_mean;
    if (method.loss_type == "dr_grpo") {
        args.scale_rewards = false;
        args.loss.aggregation = LossAggregation::fixed_length;
        args.loss.max_length = max_new_tokens;
    }
    return args;
}

}  // namespace

std::vector<AskedQuestion> read_questions(const std::string& file, const std::string& task) {
    std::vector<AskedQuestion> questions;
    for (const Conversation& conversation : read_conversations_of(task, file))
        questions.push_back(question_of(conversation));
    return questions;
}

void train(FineTuningRun& run, const Sft& method, const Start& start) {
    const std::vector<Conversation> data = read_conversations_of(run.task.task, run.task.train);
    start();
    std::vector<Completion> completions;
    encode_each(data, [&](const Conversation& conversation) {
        for (const Completion& completion : run.encoder.completions(conversation.messages))
            completions.push_back(completion);
    });
    leave_out_long(completions, run, num_tokens);
    show("answers to train on", with_commas(completions.size()));
    show("epochs", fixed(double(method.steps.count * method.steps.batch_size) /
                             double(completions.size()),
                         2));
    const LossOn loss_on = method.loss_on_everything ? LossOn::everything : LossOn::response;
    const auto lines =
        run_steps(run, method.steps, {"loss", "gradient norm"}, [&](Real learning_rate) {
            const ResponseBatch batch = make_response_batch(
                random_choices(completions, method.steps.batch_size, run.generator),
                run.encoder.end_of_turn(), loss_on);
            const auto loss = [&](const Matrix& log_probs) {
                return sft_loss(log_probs, batch.response_mask);
            };
            const FineTuningMetrics metrics =
                fine_tuning_step(run.tuner, batch, loss, learning_rate, 1, run.gradients);
            return std::vector{metrics.loss, metrics.grad_norm};
        });
    plot("sft", {LinePlot{"SFT", "step", "loss, nats per token", {lines[0]}}});
}

void train(FineTuningRun& run, const Dpo& method, const Start& start) {
    const std::vector<Preference> data = read_preferences(run.task.train);
    start();
    std::vector<CompletionPair> pairs;
    encode_each(data, [&](const Preference& preference) {
        pairs.push_back({run.encoder.completion(preference.prompt, preference.chosen),
                         run.encoder.completion(preference.prompt, preference.rejected)});
    });
    leave_out_long(pairs, run, [](const CompletionPair& pair) {
        return std::max(num_tokens(pair.chosen), num_tokens(pair.rejected));
    });
    const Model reference = run.tuner.model;
    const std::vector<std::string> names = {"loss", "chosen", "rejected", "accuracy"};
    const auto lines = run_steps(run, method.steps, names, [&](Real learning_rate) {
        // First all chosen answers, then the rejected ones to the same prompts.
        std::vector<Completion> completions;
        const auto sampled = random_choices(pairs, method.steps.batch_size, run.generator);
        for (const CompletionPair& pair : sampled) completions.push_back(pair.chosen);
        for (const CompletionPair& pair : sampled) completions.push_back(pair.rejected);
        const ResponseBatch batch = make_response_batch(completions, run.encoder.end_of_turn());
        const Vector reference_log_probs =
            sequence_log_probs(batch_log_probs(reference, batch), batch.response_mask);
        DpoTokenLoss metrics;
        const auto loss = [&](const Matrix& log_probs) {
            metrics = dpo_token_loss(log_probs, batch.response_mask, reference_log_probs,
                                     Real(method.beta), Real(method.rpo_alpha));
            return TokenLoss{metrics.loss, metrics.gradient};
        };
        fine_tuning_step(run.tuner, batch, loss, learning_rate, 1, run.gradients);
        return std::vector{metrics.loss, mean_of(metrics.dpo.chosen_rewards),
                           mean_of(metrics.dpo.rejected_rewards), metrics.dpo.accuracy};
    });
    plot("dpo_rewards",
         {LinePlot{"DPO: rewards", "step", "β (ln p - ln p_ref)", {lines[1], lines[2]}}});
}

void train(FineTuningRun& run, const Grpo& method, const Start& start) {
    std::vector<AskedQuestion> questions = read_questions(run.task.train, run.task.task);
    start();
    leave_out_long(questions, run, [&](const AskedQuestion& question) {
        return run.encoder.prompt_ids(question.messages).size() + 1;  // of an answer
    });
    const Model reference = run.tuner.model;
    GrpoArguments args = grpo_arguments(method, run.task.max_new_tokens);
    const auto decode = [&](const std::vector<Id>& ids) {
        return run.encoder.tokenizer.decode(ids);
    };
    const std::vector<std::string> names = {"reward", "groups", "clipped", "KL"};
    const auto lines = run_steps(run, method.steps, names, [&](Real learning_rate) {
        std::vector<std::vector<Id>> prompts;
        std::vector<std::string> answers;
        for (const AskedQuestion& question :
             random_choices(questions, method.steps.batch_size, run.generator)) {
            prompts.push_back(run.encoder.prompt_ids(question.messages));
            answers.push_back(question.answer);
        }
        const Rollouts rollouts =
            sample_rollouts(run.tuner.model, prompts, args.group_size, run.task.max_new_tokens,
                            run.encoder.end_of_turn(), run.generator);
        const Vector rewards = exact_match_rewards(rollouts, answers, decode);
        args.learning_rate = learning_rate;
        const GrpoMetrics metrics =
            grpo_step(run.tuner, reference, rollouts, rewards, args, run.gradients);
        return std::vector{metrics.mean_reward, double(metrics.groups_with_gradient),
                           metrics.clip_fraction, metrics.kl};
    });
    plot("reward", {LinePlot{"GRPO", "step", "mean reward", {lines[0]}}});
}

void sample(FineTuningRun& run, const Sample& method,
            const std::vector<AskedQuestion>& questions, std::vector<Preference>& preferences) {
    const AnswerConfig config{1, run.task.max_new_tokens};
    run_steps(run, method.steps, {"wrong answers"}, [&](Real) {
        const auto asked = random_choices(questions, method.steps.batch_size, run.generator);
        const std::vector<std::string> answers =
            answers_of(run.tuner.model, run.encoder, asked, config, run.generator);
        const std::size_t before = preferences.size();
        for (std::size_t i = 0; i < asked.size(); ++i)
            if (!answers[i].empty() && exact_match_reward(asked[i].answer, answers[i]) != 1)
                preferences.push_back({asked[i].messages, asked[i].answer, answers[i]});
        return std::vector{double(preferences.size() - before) / double(asked.size())};
    });
}

}  // namespace llm::fine_tune
