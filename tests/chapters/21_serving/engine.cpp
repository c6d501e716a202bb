#include "chapters/21_serving/engine.hpp"

#include "chapters/models/llama/load_model.hpp"
#include "tests/support/check.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

GenerationRequest request(std::vector<Id> prompt_ids, std::size_t max_new_tokens,
                          Real temperature = 0, std::uint32_t seed = 0) {
    GenerationRequest result{std::move(prompt_ids)};
    result.config.max_new_tokens = max_new_tokens;
    result.config.sampling.temperature = temperature;
    result.seed = seed;
    return result;
}

GeneratedTokens alone(const FastModel& model, const GenerationRequest& request) {
    CachedSequence cached = make_cached_sequence(
        model, num_cached_positions(model.config, request.prompt_ids, request.config));
    Generator generator(request.seed);
    return generate(cached, request.prompt_ids, request.config, generator);
}

// Texts of the shipped model with a common beginning, greedy and sampled.
std::vector<GenerationRequest> king_james_requests() {
    const IdMatrix fixture = id_fixture<2>("13_training/king_james_ids");
    const std::vector<Id> text(fixture.begin(), fixture.end());
    std::vector<GenerationRequest> requests;
    for (std::size_t i = 0; i < 9; ++i) {
        std::vector<Id> prompt(text.begin(), text.begin() + std::ptrdiff_t(2 * i + 3));
        if (i % 3 == 2) prompt.insert(prompt.end(), text.begin(), text.end());
        requests.push_back(
            request(std::move(prompt), 20 + 3 * i, i % 2 == 0 ? Real(0) : Real(0.8), 7));
    }
    return requests;
}

}  // namespace

TEST_CASE("many requests at once get the texts that each gets alone, also with few pages") {
    const FastModel fast =
        make_fast_model(models::load_model(asset("king_james")), DType::float32);
    const std::vector<GenerationRequest> requests = king_james_requests();
    for (const std::size_t num_pages : {100u, 12u})
        for (const bool prefix_cache : {true, false}) {
            INFO(num_pages, " ", prefix_cache);
            Engine engine(fast, {{5, 24, prefix_cache}, num_pages, 8});
            const std::vector<GeneratedTokens> all = generate_all(engine, requests);
            for (std::size_t i = 0; i < requests.size(); ++i) {
                INFO(i);
                CHECK(all[i].ids == alone(fast, requests[i]).ids);
                CHECK(all[i].reason == StopReason::max_new_tokens);
            }
            CHECK((engine.scheduler().num_preemptions > 0) == (num_pages == 12));
            CHECK(engine.scheduler().pool.num_unused() == num_pages);
        }
}

TEST_CASE("a quantized model and a float16 cache: the texts of each alone") {
    const FastModel fast =
        make_fast_model(models::load_model(asset("king_james")), DType::bfloat16);
    const std::vector<GenerationRequest> requests = king_james_requests();
    EngineConfig config{{4, 16}, 60, 16, DType::float16};
    Engine engine(fast, config);
    const std::vector<GeneratedTokens> all = generate_all(engine, requests);
    for (std::size_t i = 0; i < requests.size(); i += 2) {
        CachedSequence cached = make_cached_sequence(
            fast, requests[i].prompt_ids.size() + requests[i].config.max_new_tokens,
            DType::float16);
        Generator generator(0);
        CHECK(all[i].ids ==
              generate(cached, requests[i].prompt_ids, requests[i].config, generator).ids);
    }
}

TEST_CASE(
    "a request ends with its EOS token, with its last new token or at the last position") {
    Config config = odd_config();
    config.max_position_embeddings = 12;
    Generator generator(5);
    const FastModel fast = make_fast_model(make_test_model(config, generator), DType::float32);
    const std::vector<Id> ids = alone(fast, request({1, 2, 3}, 5)).ids;
    Engine engine(fast, {{4, 8}, 20, 4});

    std::vector<GenerationRequest> requests(3, request({1, 2, 3}, 5));
    const auto first = std::find(ids.begin(), ids.end(), ids[2]);
    requests[1].config.eos_token_ids = {ids[2]};
    requests[2].config.max_new_tokens = 100;
    std::vector<Id> streamed, streamed_before_eos;
    requests[1].on_token = [&](Id id, auto) { streamed_before_eos.push_back(id); };
    requests[2].on_token = [&](Id id, auto) { streamed.push_back(id); };
    const std::vector<GeneratedTokens> all = generate_all(engine, requests);
    CHECK(all[0].reason == StopReason::max_new_tokens);
    CHECK(all[0].ids == ids);
    CHECK(all[1].reason == StopReason::eos_token);
    CHECK(all[1].ids == std::vector<Id>(ids.begin(), first));
    CHECK(all[1].ids == streamed_before_eos);
    CHECK(all[2].reason == StopReason::last_position);
    CHECK(all[2].ids.size() == 9);
    CHECK(all[2].ids == streamed);
}

TEST_CASE("the scheduler gets a request's group, its logits processor the new tokens alone") {
    const FastModel fast = make_fast_model(model_named("GQA"), DType::float32);
    Engine engine(fast, {{4, 8}, 20, 4});
    GenerationRequest of_group = request({1, 2, 3}, 3);
    of_group.group = 7;
    std::vector<std::vector<Id>> seen;
    of_group.config.logits_processor = [&](const Vector& logits, std::span<const Id> new_ids) {
        seen.emplace_back(new_ids.begin(), new_ids.end());
        return logits;
    };
    engine.submit(of_group);
    engine.submit(request({4}, 3));
    CHECK(engine.step().empty());
    CHECK(engine.scheduler().running.at(0).group == std::size_t{7});
    CHECK_FALSE(engine.scheduler().running.at(1).group.has_value());
    while (!engine.idle()) engine.step();
    const std::vector<Id> ids = alone(fast, request({1, 2, 3}, 3)).ids;
    CHECK(seen == std::vector<std::vector<Id>>{{}, {ids[0]}, {ids[0], ids[1]}});
}

TEST_CASE("a canceled request frees its pages, and the others go on") {
    const FastModel fast = make_fast_model(model_named("GQA"), DType::float32);
    Engine engine(fast, {{4, 8}, 20, 4});
    const std::size_t first = engine.submit(request({1, 2, 3}, 30));
    const std::size_t second = engine.submit(request({4, 5}, 6));
    for (int i = 0; i < 3; ++i) CHECK(engine.step().empty());
    CHECK(engine.cancel(first));
    CHECK_FALSE(engine.cancel(first));
    std::vector<FinishedRequest> finished;
    while (!engine.idle())
        for (FinishedRequest& each : engine.step()) finished.push_back(each);
    REQUIRE(finished.size() == 1);
    CHECK(finished[0].number == second);
    CHECK(finished[0].generated.ids == alone(fast, request({4, 5}, 6)).ids);
    CHECK(engine.scheduler().pool.num_unused() == 20);
}

TEST_CASE("logits that are not finite end their request with an error, and no other one") {
    Model model = model_named("GQA");
    xt::row(model.embed_tokens, 7) = std::numeric_limits<Real>::infinity();
    model.lm_head = model_named("GQA").embed_tokens;
    Model finite = model_named("GQA");
    finite.lm_head = finite.embed_tokens;
    FastModel fast = make_fast_model(finite, DType::float32);
    // Token 7 alone has an infinite embedding.
    fast.embed_tokens = {fast.embed_tokens.kernels, fast.embed_tokens.out_features,
                         fast.embed_tokens.in_features,
                         std::shared_ptr<const std::byte>(
                             reinterpret_cast<const std::byte*>(model.embed_tokens.data()),
                             [](const std::byte*) {})};
    Engine engine(fast, {{4, 8}, 20, 4});
    engine.submit(request({1, 7}, 4));
    const std::size_t good = engine.submit(request({4, 5}, 4));
    std::map<std::size_t, FinishedRequest> finished;
    while (!engine.idle())
        for (FinishedRequest& each : engine.step()) finished[each.number] = each;
    CHECK(finished.at(0).error == "sampling: a logit is +inf or NaN");
    CHECK(finished.at(good).error.empty());
    CHECK(finished.at(good).generated.ids.size() == 4);
    CHECK(engine.scheduler().pool.num_unused() == 20);
}

TEST_CASE("requests that the engine cannot serve are rejected") {
    const FastModel fast = make_fast_model(model_named("GQA"), DType::float32);
    Engine engine(fast, {{4, 8}, 5, 4});
    CHECK_THROWS_WITH_AS(engine.submit(request({}, 3)),
                         "generate: the prompt must have at least one token", ValueError);
    CHECK_THROWS_AS(engine.submit(request({131}, 3)), ValueError);
    CHECK_THROWS_WITH_AS(
        engine.submit(request({1, 2}, 19)),
        "serving: 2 tokens of a prompt and 19 new ones need 6 pages of 4, but there are 5",
        ValueError);
    GenerationRequest shifted = request({1}, 3);
    shifted.config.context_shift = true;
    CHECK_THROWS_WITH_AS(engine.submit(shifted), "serving: the context cannot be shifted",
                         ValueError);
    CHECK(engine.idle());
}
