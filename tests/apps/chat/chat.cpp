// The chat: the KV cache between turns, the end of answers, and long conversations.
#include <csignal>
#include <set>

#include "chapters/14_fine_tuning/conversations.hpp"
#include "chapters/23_structured_output/tool_calls.hpp"
#include "chapters/apps/chat/chat_session.hpp"
#include "chapters/models/chat/bad_words.hpp"
#include "chapters/models/chat/chat_templates.hpp"
#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/system/interrupt.hpp"
#include "tests/support/fast_helpers.hpp"
#include "tests/support/files.hpp"
#include "tests/support/rendered_call.hpp"

using namespace llm;
using namespace llm::chat;
using namespace llm::models;

namespace {

const InferenceModel& inference_model() {
    static const InferenceModel model = make_fast_model(model_named("GQA"), DType::float32);
    return model;
}
const FastModel& fast_model() { return std::get<FastModel>(inference_model()); }

CachedSequence empty_cache(std::size_t num_positions = 1000) {
    return make_cached_sequence(inference_model(), num_positions);
}

// The published types. Their windows and chunks have 5 or 6 tokens.
const std::vector<std::string> types = {
    "gemma",       "smollm3",     "granite",     "olmo2",     "phi3",    "mistral",
    "gemma2",      "gemma3_text", "mixtral",     "qwen3_moe", "gpt_oss", "gpt_oss_mxfp4",
    "llama4_text", "deepseek_v2", "deepseek_v3", "qwen3_next"};

InferenceModel load(const std::string& type) {
    if (fs::exists(fixture_path("models/" + type)))
        return load_family_model(fixture_path("models/" + type));
    if (type == "mistral" || type.starts_with("gemma"))
        return load_family_model(fixture_path("17_long_context/" + type));
    if (type == "qwen3_next")
        return load_family_model(fixture_path("20_linear_attention/" + type));
    if (type.starts_with("deepseek"))
        return load_family_model(fixture_path("19_latent_attention/" + type));
    return load_family_model(fixture_path("18_experts/" + type));
}

// The logits after all tokens, computed in one call without a cache.
Vector fresh_logits(const InferenceModel& model, const std::vector<Id>& ids) {
    const IdMatrix one = one_sequence(ids);  // (1, T)
    if (const auto* moe = std::get_if<FamilyModel>(&model))
        return last_logits(moe->forward(one, {}));
    return last_logits(std::get<FamilyModel>(model).forward(one, {}));
}

// Writes down what is computed and what is kept. The logits have no meaning.
struct RecordingCache final : SequenceCache {
    std::vector<Id> appended{};
    std::vector<std::size_t> cropped{};
    bool keeps_nothing = false, fails = false;

    Vector append(std::span<const Id> new_ids) override {
        if (fails) throw ValueError("append failed");
        appended.assign(new_ids.begin(), new_ids.end());
        return xt::zeros<Real>({1});
    }
    std::size_t crop(std::size_t count) override {
        cropped.push_back(count);
        return keeps_nothing ? 0 : count;
    }
};

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

GeneratedTokens answer_to(const std::vector<Id>& prompt, const GenerationConfig& config,
                          CachedSequence& cached) {
    Generator generator(1);
    return generate(cached, prompt, config, generator, [](Id) {});
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
        CHECK_CLOSE(next_token_logits(ids, cache), fresh_logits(ids), 1e-4);
        CHECK(cache.ids == ids);
    }
}

TEST_CASE("Only tokens after the common prefix are computed") {
    auto recorder = std::make_unique<RecordingCache>();
    RecordingCache& record = *recorder;
    CachedSequence cached{std::move(recorder), 1000};
    const std::vector<Id> first = some_ids(40);
    next_token_logits(first, cached);
    CHECK(record.appended == first);
    next_token_logits(joined(first, {1, 2}), cached);
    CHECK(record.appended == std::vector<Id>{1, 2});
    std::vector<Id> changed = first;
    changed[10] = 99;
    next_token_logits(changed, cached);
    CHECK(record.appended == std::vector<Id>(changed.begin() + 10, changed.end()));
    next_token_logits(changed, cached);  // the logits of the last token are wanted again
    CHECK(record.appended == std::vector<Id>{changed.back()});
    CHECK(record.cropped == std::vector<std::size_t>{0, 40, 10, 39});

    record.keeps_nothing = true;
    next_token_logits(first, cached);
    CHECK(record.appended == first);
    CHECK(cached.ids == first);

    record.fails = true;  // ids that could not be appended are not in the cache
    CHECK_THROWS_AS(next_token_logits(joined(first, {1, 2}), cached), ValueError);
    CHECK(cached.ids.empty());
}

TEST_CASE(
    "Models of chapters 17 and 18: with earlier turns, logits equal those of a fresh run") {
    const std::vector<Id> base = {1, 7, 3, 27, 12, 5, 9, 2, 2, 17, 4, 11, 28, 6, 0, 13, 8, 21};
    const auto first_ids = [&](std::size_t count) {
        return std::vector<Id>(base.begin(), base.begin() + count);
    };
    std::vector<Id> changed_early = first_ids(4), changed_late = base;
    changed_early[1] = 20;
    changed_late[10] = 20;
    for (const std::string& type : types) {
        CAPTURE(type);
        const InferenceModel model = load(type);
        CachedSequence cached = make_cached_sequence(model, 64);
        for (const auto& ids :
             {first_ids(4), changed_early, first_ids(2), first_ids(5), first_ids(9), base,
              changed_late, base, first_ids(3), base, joined(base, base), first_ids(1)}) {
            CAPTURE(ids.size());
            CHECK_CLOSE(next_token_logits(ids, cached), fresh_logits(model, ids), 2e-5);
            CHECK(cached.ids == ids);
        }
    }
}

TEST_CASE("crop keeps tokens until a rolling cache has overwritten one") {
    const std::vector<Id> ids = some_ids(9);
    CachedSequence fast = empty_cache();
    fast.cache->append(ids);
    CHECK(fast.cache->crop(7) == 7);
    CHECK_THROWS_WITH_AS(fast.cache->crop(8), "cache: 8 of 7 tokens cannot be kept",
                         ValueError);

    const std::vector<Id> five = {1, 7, 3, 27, 12}, nine = {1, 7, 3, 27, 12, 5, 9, 2, 2};
    const std::set<std::string> without_windows = {
        "gemma", "smollm3", "granite", "olmo2", "qwen3_moe", "deepseek_v2", "deepseek_v3"};
    for (const std::string& type : types) {
        CAPTURE(type);
        const InferenceModel model = load(type);
        CachedSequence cached = make_cached_sequence(model, 64);
        cached.cache->append(five);
        // A state cannot go back: nothing is kept.
        const bool has_state = type == "qwen3_next";
        CHECK(cached.cache->crop(3) == (has_state ? 0 : 3));
        if (has_state) cached.cache->append(std::span(five).first(3));
        cached.cache->append(nine);  // 12 tokens
        CHECK(cached.cache->crop(12) == 12);
        CHECK(cached.cache->crop(11) == (without_windows.contains(type) ? 11 : 0));
        CHECK(cached.cache->crop(0) == 0);
    }
}

TEST_CASE("Models of chapters 17 and 18 have caches of float32 only") {
    CHECK_THROWS_WITH_AS(make_cached_sequence(load("mistral"), 64, DType::float16),
                         "a cache of float16 is not supported for this model type; supported: "
                         "float32",
                         ValueError);
    CHECK(make_cached_sequence(inference_model(), 64, DType::float16).num_positions == 64);
}

TEST_CASE("An answer is the greedy continuation, also in a second turn") {
    CachedSequence cache = empty_cache();
    const std::vector<Id> prompt = some_ids(10);
    const GeneratedTokens first = answer_to(prompt, greedy_config(12), cache);
    CHECK(joined(prompt, first.ids) == generate_greedily(fast_model(), prompt, 12, {}));
    CHECK(first.reason == StopReason::max_new_tokens);
    const std::vector<Id> next = joined(joined(prompt, first.ids), {4, 5, 6});
    const GeneratedTokens second = answer_to(next, greedy_config(12), cache);
    CHECK(joined(next, second.ids) == generate_greedily(fast_model(), next, 12, {}));
}

TEST_CASE("An answer ends before an EOS token and at the last position") {
    const std::vector<Id> prompt = some_ids(10);
    CachedSequence cache = empty_cache();
    const std::vector<Id> ids = answer_to(prompt, greedy_config(12), cache).ids;
    GenerationConfig config = greedy_config(12);
    config.eos_token_ids = {130, ids[3]};
    const auto first = std::find(ids.begin(), ids.end(), ids[3]) - ids.begin();
    const GeneratedTokens ended = answer_to(prompt, config, cache);
    CHECK(ended.ids == std::vector<Id>(ids.begin(), ids.begin() + first));
    CHECK(ended.reason == StopReason::eos_token);

    CachedSequence small = empty_cache(14);
    const GeneratedTokens full = answer_to(prompt, greedy_config(12), small);
    CHECK(full.ids == std::vector<Id>(ids.begin(), ids.begin() + 4));
    CHECK(full.reason == StopReason::last_position);
}

TEST_CASE("Ctrl-C stops an answer, and the conversation goes on") {
    InterruptHandler handler;
    const std::vector<Id> prompt = some_ids(10);
    CachedSequence cache = empty_cache();
    Generator generator(1);
    const GeneratedTokens answer =
        generate(cache, prompt, greedy_config(50), generator, [count = 0](Id) mutable {
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
    CHECK_CLOSE(next_token_logits(next, cache), fresh_logits(next), 1e-4);
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
    CHECK(longest_prompt(1000, 100) == 900);
    CHECK(longest_prompt(1000, 800) == 500);
}

TEST_CASE("A bad word is found in any case, between other signs, and spelled") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "bad_words.txt").string();
    CHECK(read_bad_words(scratch.folder.string()).empty());
    // FNV-1a of "foobar" and "a". Source: the test vectors of the hash's authors
    overwrite(file, "# a comment\n85944171f73967e8\n\naf63dc4c8601ec8c");
    const BadWords words = read_bad_words(scratch.folder.string());
    CHECK(words.size() == 2);
    for (const std::string text :
         {"foobar", "No: FOObar!", "foobar is", "Backward: f-o-o-b-a-r.", "foobar-like", "b-a"})
        CHECK_MESSAGE(has_bad_word(text, words), text);
    for (const std::string text : {"", "foobars", "foo bar", "barfoobar", "x-y", "f-o-o b-e-r"})
        CHECK_MESSAGE(!has_bad_word(text, words), text);
    for (const std::string line : {"85944171f73967e", "85944171f73967e80", "0x944171f73967e8",
                                   "85944171f73967eg", "foobar"}) {
        overwrite(file, line + "\n");
        try {
            read_bad_words(scratch.folder.string());
            FAIL_CHECK("read: " << line);
        } catch (const FileError& error) {
            CHECK(error.what() == file + ": expected 16 hexadecimal digits, got " + line);
        }
    }
}

TEST_CASE("the shipped chat model reads a call and its result as in its training data") {
    const std::string path = asset("wordnet_calculator");
    const Tokenizer tokenizer = models::load_tokenizer_of_model(path, "", 1024);
    const ChatEncoder encoder{tokenizer, find_chat_template(path).value()};
    const Message question{"user", "345 + 218?"};
    const std::string call = rendered_call({"calculator", R"({"expression": "345 + 218"})"});
    std::vector<Message> messages = {question};
    for (const Message& message : run_calculator(call).messages) messages.push_back(message);
    // A line of train_calculator.jsonl.
    const std::vector<Message> trained = {
        question,
        {"assistant",
         "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"345 + "
         "218\"}}\n</tool_call>"},
        {"user", "<tool_response>\n563\n</tool_response>"}};
    CHECK(rendered_text(encoder.prompt(messages)) == rendered_text(encoder.prompt(trained)));
    CHECK(encoder.prompt_ids(messages) == encoder.prompt_ids(trained));
}

TEST_CASE("run_calculator: a call becomes two messages, an answer without one none") {
    CHECK(run_calculator("345 + 218 = 563").messages.empty());
    const ToolCall sum{"calculator", R"({"expression": "345 + 218"})"};
    const std::string answer = "Let me see. " + rendered_call(sum);
    const CalculatorUse use = run_calculator(answer);
    REQUIRE(use.messages.size() == 2);
    CHECK(use.messages[0].role == "assistant");
    CHECK(use.messages[0].content == answer);
    CHECK(use.messages[1].role == "tool");
    CHECK(use.messages[1].content == "563");
    CHECK(use.calculations == std::vector<std::string>{"345 + 218 = 563"});
    const ToolCall quotient{"calculator", R"({"expression": "1 / 0"})"};
    CHECK(run_calculator(rendered_call(sum) + "\n" + rendered_call(quotient)).calculations[1] ==
          "1 / 0 = error: calculator: division by zero");
    CHECK_THROWS_WITH_AS(run_calculator(rendered_call({"shell", "{}"})),
                         "tool call: there is no tool 'shell'", ValueError);
    CHECK_THROWS_AS(run_calculator("<tool_call>\n{\n</tool_call>"), ValueError);
    CHECK(run_calculator("<tool_call>\n{\"name\"").messages.empty());  // no token was left
    CHECK(run_calculator(rendered_call(sum) + "\n<tool_call>\n{").messages.empty());
}
