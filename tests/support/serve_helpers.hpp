// What the tests of ./learn serve share: a tokenizer of bytes and a model with its vocabulary.
#pragma once

#include <thread>

#include "chapters/apps/serve/api/api_error.hpp"
#include "chapters/apps/serve/api/completion.hpp"
#include "tests/support/fast_helpers.hpp"

namespace llm {

// Token b + 3 is the byte b; 2 ends a text.
inline Id byte_id(char byte) { return Id(static_cast<unsigned char>(byte)) + 3; }

inline serve::ApiModel byte_model() {
    serve::ApiModel model{"bytes", byte_tokenizer()};
    model.tokenizer.prefix_tokens.clear();  // no <s> before a text
    model.eos_token_ids = model.tokenizer.eos_token_ids = {2};
    model.trie = std::make_shared<TokenTrie>(make_token_trie(model.tokenizer));
    model.context_length = 200;
    model.max_prompt_tokens = 150;
    return model;
}

// The names that a chat template needs: the byte tokenizer has no special tokens.
inline serve::ApiModel chat_model() {
    serve::ApiModel model = byte_model();
    model.chat_template = ChatTemplate{};
    model.tokenizer.added_tokens.push_back({"<|im_start|>", 0});
    model.tokenizer.added_tokens.push_back({"<|im_end|>", 1});
    model.tokenizer.vocab["<|im_start|>"] = 0;
    model.tokenizer.vocab["<|im_end|>"] = 1;
    return model;
}

// "400 param code: message" of the error, or "accepted".
inline std::string error_of(const std::string& body, bool chat, const serve::ApiModel& model) {
    try {
        chat ? parse_chat_request(body, model) : parse_completion_request(body, model);
        return "accepted";
    } catch (const serve::ApiError& error) {
        return std::to_string(error.status) + " " + error.param + " " + error.code + ": " +
               error.what();
    }
}

// A random model of 259 tokens.
inline const FastModel& random_model() {
    static const FastModel model = [] {
        Config config = odd_config();
        config.vocab_size = 259;
        Generator generator(3);
        return make_fast_model(make_test_model(config, generator), DType::float32);
    }();
    return model;
}

// Requests to an engine with a thread of its own.
inline const EngineConfig small_engine{{4, 16}, 40, 4};

inline GenerationRequest sequence(std::vector<Id> prompt_ids, std::size_t max_new_tokens,
                                  std::uint32_t seed = 0) {
    GenerationRequest request{std::move(prompt_ids)};
    request.config.max_new_tokens = max_new_tokens;
    request.config.sampling.temperature = 50;  // the model would repeat the last token
    request.seed = seed;
    return request;
}

inline std::vector<Id> alone(const GenerationRequest& request) {
    Engine engine(random_model(), small_engine);
    return generate_all(engine, {request})[0].ids;
}

struct Received {
    std::vector<Id> ids;
    std::optional<serve::SequenceEnd> end;
};

// Waits for the end of all sequences of a request.
inline std::map<std::size_t, Received> receive(serve::OpenRequest& open) {
    std::map<std::size_t, Received> received;
    while (open.num_open() > 0) {
        const auto event = open.next_event(serve::Clock::now() + std::chrono::seconds(60));
        REQUIRE(event.has_value());
        Received& one = received[event->choice];
        if (const auto* token = std::get_if<serve::SampledToken>(&event->what))
            one.ids.push_back(token->token.id);
        else
            one.end = std::get<serve::SequenceEnd>(event->what);
    }
    return received;
}

// The metrics are published after each step: waits until nothing runs, waits or holds a page.
inline bool becomes_idle(const serve::EngineLoop& loop, const serve::Metrics& metrics) {
    for (int i = 0; i < 6000; ++i) {
        const serve::EngineState state = metrics.state();
        if (loop.num_open() + state.running + state.waiting + state.pages_used == 0)
            return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
}

}  // namespace llm
