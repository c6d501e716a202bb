// The engine in its thread, and requests of several other threads.
#include <thread>

#include "common/files/unicode.hpp"
#include "tests/support/serve_helpers.hpp"

using namespace llm;
using namespace llm::serve;

using namespace std::chrono_literals;

TEST_CASE("requests of several threads get the texts that each gets alone") {
    Metrics metrics;
    EngineLoop loop(random_model(), small_engine, 100, metrics);
    std::vector<std::vector<Id>> expected;
    for (std::uint32_t i = 0; i < 12; ++i)
        expected.push_back(alone(sequence({Id(i + 3), 5}, 6 + i, i)));
    std::vector<std::map<std::size_t, Received>> received(12);
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < 12; ++i)
        threads.emplace_back([&, i] {
            OpenRequest open = loop.submit(
                {sequence({Id(i + 3), 5}, 6 + i, i), sequence({Id(i + 3), 5}, 6 + i, i)});
            received[i] = receive(open);
        });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < 12; ++i)
        for (const std::size_t choice : {0, 1}) {
            CHECK(received[i].at(choice).ids == expected[i]);
            CHECK(received[i].at(choice).end->reason == StopReason::max_new_tokens);
        }
    CHECK(becomes_idle(loop, metrics));
    CHECK(metrics.state().pages_total == 40);
}

TEST_CASE("a request that is given up frees its pages, and the others go on") {
    Metrics metrics;
    EngineLoop loop(random_model(), small_engine, 100, metrics);
    OpenRequest other = loop.submit({sequence({7, 8}, 100, 1)});
    {
        OpenRequest open = loop.submit({sequence({3, 4, 5}, 150), sequence({6}, 150)});
        while (!open.next_event(Clock::now() + 60s)) {
        }
        open.cancel(0);
        CHECK(open.num_open() == 1);
        while (true) {  // only events of the other sequence arrive
            const auto event = open.next_event(Clock::now() + 60s);
            REQUIRE(event.has_value());
            CHECK(event->choice == 1);
            break;
        }
    }
    CHECK(receive(other).at(0).ids == alone(sequence({7, 8}, 100, 1)));
    CHECK(becomes_idle(loop, metrics));
}

TEST_CASE("threads that submit and give up at random moments lose no page") {
    Metrics metrics;
    EngineLoop loop(random_model(), small_engine, 1000, metrics);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 6; ++t)
        threads.emplace_back([&, t] {
            Generator generator(t);
            for (int i = 0; i < 20; ++i) {
                OpenRequest open = loop.submit({sequence({Id(t + 3), 4, 5}, 40, t)});
                const std::uint32_t wanted = generator.next_32_bits() % 30;
                for (std::uint32_t k = 0; k < wanted; ++k) open.next_event(Clock::now() + 2ms);
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(becomes_idle(loop, metrics));
    OpenRequest open = loop.submit({sequence({9}, 5)});
    CHECK(receive(open).at(0).ids == alone(sequence({9}, 5)));
    CHECK(becomes_idle(loop, metrics));
}

TEST_CASE("what the engine rejects ends with its error, and too many waiting are rejected") {
    Metrics metrics;
    EngineLoop loop(random_model(), small_engine, 2, metrics);
    OpenRequest bad = loop.submit({sequence({300}, 5)});
    CHECK(receive(bad).at(0).end->error.find("vocabulary") != std::string::npos);

    std::vector<OpenRequest> open;
    bool is_busy = false;
    for (int i = 0; i < 50 && !is_busy; ++i) try {
            open.push_back(loop.submit({sequence({5}, 150)}));
        } catch (const ServerBusy&) {
            is_busy = true;
        }
    CHECK(is_busy);
    CHECK(!open.empty());
    open.clear();
    CHECK(becomes_idle(loop, metrics));
}

TEST_CASE("a loop that stops accepts nothing and tells who is canceled") {
    Metrics metrics;
    EngineLoop loop(random_model(), small_engine, 100, metrics);
    OpenRequest open = loop.submit({sequence({5}, 150), sequence({6}, 150)});
    CHECK(loop.stop_accepting() <= 2);
    CHECK_THROWS_AS(loop.submit({sequence({5}, 5)}), ServerStops);
    loop.cancel_all();
    for (const auto& [choice, received] : receive(open)) {
        const bool finished = received.ids.size() == 150;
        CHECK(received.end->canceled == !finished);
    }
    CHECK(becomes_idle(loop, metrics));
}

TEST_CASE("log-probabilities: those of a softmax, of the token and of the most likely ones") {
    Metrics metrics;
    EngineLoop loop(random_model(), small_engine, 100, metrics);
    GenerationRequest greedy = sequence({5, 6}, 3);
    greedy.config.sampling.temperature = 0;
    OpenRequest open = loop.submit({greedy}, 259);
    for (int i = 0; i < 3; ++i) {
        const auto event = open.next_event(Clock::now() + 60s);
        REQUIRE(event.has_value());
        const auto& token = std::get<SampledToken>(event->what);
        REQUIRE(token.top.size() == 259);
        CHECK(token.top[0].id == token.token.id);
        CHECK(token.top[0].log_prob == token.token.log_prob);
        double sum = 0;
        for (std::size_t k = 0; k < token.top.size(); ++k) {
            sum += std::exp(token.top[k].log_prob);
            CHECK((k == 0 || token.top[k].log_prob <= token.top[k - 1].log_prob));
        }
        CHECK(sum == doctest::Approx(1).epsilon(1e-9));
    }
}

TEST_CASE(
    "the parts of a completion add up to its answers, which stop strings and deadlines end") {
    Metrics metrics;
    const ApiModel model = byte_model();
    EngineLoop loop(random_model(), {{4, 16}, 60, 4}, 100, metrics);
    CompletionRequest request;
    request.chat = false;
    request.prompts = {{byte_id('H'), byte_id('i')}};
    request.n = 2;
    request.max_new_tokens = 40;
    request.seed = 4;
    request.sampling.temperature = 50;
    const auto run = [&](Clock::time_point deadline) {
        Completion completion(model, request, loop, deadline);
        std::vector<Choice> wholes(2);
        while (!completion.has_ended())
            if (const auto part = completion.next_part(Clock::now() + 60s)) {
                wholes[part->index].text += part->text;
                wholes[part->index].finish_reason += part->finish_reason;
            }
        CHECK(completion.usage().prompt_tokens == 2);
        CHECK(completion.usage().completion_tokens <= 80);
        return wholes;
    };
    const std::vector<Choice> first = run(Clock::now() + 60s), second = run(Clock::now() + 60s);
    for (std::size_t i = 0; i < 2; ++i) {
        const std::vector<Id> ids = alone([&] {
            GenerationRequest one = sequence(request.prompts[0], 40, 4 + std::uint32_t(i));
            one.config.eos_token_ids = model.eos_token_ids;
            return one;
        }());
        CHECK(first[i].text == replace_invalid_utf8(model.tokenizer.decode_bytes(ids)));
        CHECK(first[i].text == second[i].text);
        CHECK((first[i].finish_reason == "length" || first[i].finish_reason == "stop"));
    }
    CHECK(first[0].text != first[1].text);

    const std::size_t at = first[0].text.find_first_of("0123456789abcdefghijklmnopqrstuvwxyz");
    REQUIRE(at != std::string::npos);
    request.stop = {first[0].text.substr(at, 1)};
    const std::vector<Choice> stopped = run(Clock::now() + 60s);
    CHECK(stopped[0].text == first[0].text.substr(0, at));
    CHECK(stopped[0].finish_reason == "stop");
    // Others are computed first, so that it has no token yet at its deadline.
    CompletionRequest other = request;
    other.stop.clear();
    other.n = 4;
    std::vector<std::unique_ptr<Completion>> others;
    for (int i = 0; i < 10; ++i)
        others.push_back(std::make_unique<Completion>(model, other, loop, Clock::now() + 60s));
    try {
        run(Clock::now() - 1s);
        FAIL_CHECK("it had time");
    } catch (const ApiError& error) {
        CHECK(error.status == 408);
    }
    others.clear();
    CHECK(becomes_idle(loop, metrics));
}
