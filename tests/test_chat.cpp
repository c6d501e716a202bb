// The chat: the KV cache between turns, the end of answers, and long conversations.
#include <csignal>

#include "chapters/chat_session.hpp"
#include "common/system/interrupt.hpp"
#include "tests/fast_helpers.hpp"

using namespace llm;

namespace {

const FastModel& fast_model() {
    static const FastModel model = make_fast_model(model_named("GQA"), DType::float32);
    return model;
}

CachedSequence empty_cache(std::size_t num_positions = 1000) {
    return {make_run_state(fast_model(), num_positions), {}};
}

// The logits after all tokens, computed in one call without a cache.
Vector fresh_logits(const std::vector<Id>& ids) {
    const Matrix logits = in_one_call(fast_model(), ids);  // (T, V)
    return xt::row(logits, static_cast<std::ptrdiff_t>(ids.size()) - 1);
}

std::vector<Id> joined(std::vector<Id> a, const std::vector<Id>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

GenerationConfig greedy_config(std::size_t max_new_tokens) {
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = max_new_tokens;
    return config;
}

Answer answer_to(const std::vector<Id>& prompt, const GenerationConfig& config,
                 CachedSequence& cache) {
    Generator generator(1);
    return generate_answer(fast_model(), prompt, config, generator, cache, [](Id) {});
}

std::vector<std::string> contents(const std::vector<Message>& messages) {
    std::vector<std::string> result;
    for (const Message& message : messages) result.push_back(message.content);
    return result;
}

const std::vector<Message> conversation = {{"system", "s"},     {"user", "u1"},
                                           {"assistant", "a1"}, {"user", "u2"},
                                           {"assistant", "a2"}, {"user", "u3"}};

}  // namespace

TEST_CASE("With the cache of earlier turns, logits equal those of a fresh run") {
    const std::vector<Id> first = some_ids(40);
    const std::vector<Id> second = joined(first, {5, 6, 7, 8, 9});
    const std::vector<Id> longer = joined(second, some_ids(600));  // several chunks
    std::vector<Id> changed = longer;                              // an earlier turn differs
    changed[20] = 99;
    CachedSequence cache = empty_cache();
    for (const auto& ids : {first, second, longer, changed, first, first, std::vector<Id>{3}}) {
        CHECK_CLOSE(next_token_logits(fast_model(), ids, cache), fresh_logits(ids), 1e-4);
        CHECK(cache.ids == ids);
        CHECK(cache.state.seq_len == ids.size());
    }
}

TEST_CASE("Only tokens after the common prefix are computed") {
    const std::vector<Id> first = some_ids(40);
    CachedSequence cache = empty_cache();
    next_token_logits(fast_model(), first, cache);
    // If key 10 is used as it stands in the cache, the logits are not a number.
    cache.state.keys(0, 0, 10, 0) = not_a_number;
    CHECK(std::isnan(next_token_logits(fast_model(), joined(first, {1, 2}), cache)(0)));
    std::vector<Id> changed = first;
    changed[10] = 99;
    CHECK_FALSE(std::isnan(next_token_logits(fast_model(), changed, cache)(0)));
}

TEST_CASE("An answer is the greedy continuation, also in a second turn") {
    CachedSequence cache = empty_cache();
    const std::vector<Id> prompt = some_ids(10);
    const Answer first = answer_to(prompt, greedy_config(12), cache);
    CHECK(joined(prompt, first.ids) == generate_greedily(fast_model(), prompt, 12, {}));
    CHECK(first.reason == StopReason::max_new_tokens);
    const std::vector<Id> next = joined(joined(prompt, first.ids), {4, 5, 6});
    const Answer second = answer_to(next, greedy_config(12), cache);
    CHECK(joined(next, second.ids) == generate_greedily(fast_model(), next, 12, {}));
}

TEST_CASE("An answer ends before an EOS token and at the last position") {
    const std::vector<Id> prompt = some_ids(10);
    CachedSequence cache = empty_cache();
    const std::vector<Id> ids = answer_to(prompt, greedy_config(12), cache).ids;
    GenerationConfig config = greedy_config(12);
    config.eos_token_ids = {130, ids[3]};
    const auto first = std::find(ids.begin(), ids.end(), ids[3]) - ids.begin();
    const Answer ended = answer_to(prompt, config, cache);
    CHECK(ended.ids == std::vector<Id>(ids.begin(), ids.begin() + first));
    CHECK(ended.reason == StopReason::eos_token);

    CachedSequence small = empty_cache(14);
    const Answer full = answer_to(prompt, greedy_config(12), small);
    CHECK(full.ids == std::vector<Id>(ids.begin(), ids.begin() + 4));
    CHECK(full.reason == StopReason::last_position);
}

TEST_CASE("Ctrl-C stops an answer, and the conversation goes on") {
    InterruptHandler handler;
    const std::vector<Id> prompt = some_ids(10);
    CachedSequence cache = empty_cache();
    Generator generator(1);
    const Answer answer = generate_answer(fast_model(), prompt, greedy_config(50), generator,
                                          cache, [count = 0](Id) mutable {
                                              if (++count == 3) std::raise(SIGINT);
                                          });
    CHECK(answer.reason == StopReason::interrupted);
    CHECK(answer.ids.size() == 3);
    CHECK(InterruptHandler::interrupted());
    CHECK_FALSE(InterruptHandler::terminated());

    handler.reset();
    CHECK_FALSE(InterruptHandler::interrupted());
    std::raise(SIGINT);  // ends the program unless the handler is installed again
    CHECK(InterruptHandler::interrupted());
    handler.reset();
    const std::vector<Id> next = joined(joined(prompt, answer.ids), {7});
    CHECK(answer_to(next, greedy_config(5), cache).ids.size() == 5);
    CHECK_CLOSE(next_token_logits(fast_model(), next, cache), fresh_logits(next), 1e-4);
}

TEST_CASE("The oldest turns are dropped, never the system message or the question") {
    const auto dropped_to = [](std::size_t size) {
        std::vector<Message> messages = conversation;
        const std::size_t count = drop_oldest_turns(
            messages, [&](const std::vector<Message>& rest) { return rest.size() <= size; });
        CHECK(count == conversation.size() - messages.size());
        return contents(messages);
    };
    CHECK(dropped_to(6) == contents(conversation));
    CHECK(dropped_to(5) == std::vector<std::string>{"s", "u2", "a2", "u3"});
    CHECK(dropped_to(3) == std::vector<std::string>{"s", "u3"});
    CHECK(dropped_to(0) == std::vector<std::string>{"s", "u3"});
}

TEST_CASE("A question without an answer is a turn, too") {
    std::vector<Message> messages = {{"user", "u1"}, {"user", "u2"}, {"user", "u3"}};
    CHECK(drop_oldest_turns(messages, [](const auto& rest) { return rest.size() < 3; }) == 1);
    CHECK(contents(messages) == std::vector<std::string>{"u2", "u3"});
}

TEST_CASE("A prompt leaves room for the answer, but may have half of the positions") {
    CHECK(max_prompt_tokens(1000, 100) == 900);
    CHECK(max_prompt_tokens(1000, 800) == 500);
}
