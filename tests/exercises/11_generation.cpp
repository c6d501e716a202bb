#include <cmath>
#include <limits>

#include "chapters/11_generation/exercise.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

Model small_model() { return models::load_model(fixture_path("09_full_model/qwen3")); }

// Logits whose softmax are these probabilities.
Vector logs(Vector probabilities) {
    for (Real& value : probabilities) value = std::log(value);
    return probabilities;
}

Real count_kept(const Vector& logits) {
    return static_cast<Real>(std::count_if(logits.begin(), logits.end(),
                                           [](Real logit) { return logit != -infinity; }));
}

// Logits of 50 tokens, from which top-k 30 has already removed 20.
Vector filtered_logits(std::uint32_t seed) {
    Generator generator(seed);
    return apply_top_k(randn({50}, generator) * Real(3), 30);
}

// Typical sampling as Meister et al. define it: the tokens that are closer to the entropy than
// others, one by one, until their probabilities reach typical_p.
Vector typical(const Vector& logits, Real typical_p) {
    if (typical_p == 1) return logits;
    const Vector probabilities = softmax(logits);
    double mean = 0;
    for (const Real p : probabilities)
        if (p > 0) mean -= double(p) * std::log(double(p));
    std::vector<bool> kept(logits.size(), false);
    for (double sum = 0; sum == 0 || sum < double(typical_p);) {
        std::size_t closest = logits.size();
        double smallest = std::numeric_limits<double>::infinity();
        for (std::size_t id = 0; id < logits.size(); ++id) {
            const double distance = std::abs(-std::log(double(probabilities(id))) - mean);
            if (kept[id] || distance >= smallest) continue;
            closest = id;
            smallest = distance;
        }
        if (closest == logits.size()) break;
        kept[closest] = true;
        sum += double(probabilities(closest));
    }
    Vector filtered = logits;
    for (std::size_t id = 0; id < logits.size(); ++id)
        if (!kept[id]) filtered(id) = -infinity;
    return filtered;
}

// The steps of 11.15, with the functions of the lesson.
Id expected_token(const Vector& logits, const std::vector<Id>& input_ids,
                  const TypicalSampling& config, Generator& generator) {
    Vector scores = apply_repetition_penalty(logits, input_ids, config.repetition_penalty);
    if (config.temperature == 0) return argmax_token(scores);
    if (config.top_k > 0) scores = apply_top_k(scores, config.top_k);
    scores = typical(scores, config.typical_p);
    if (config.min_p > 0) scores = apply_min_p(scores, config.min_p);
    return sample(apply_temperature(scores, config.temperature), generator);
}

// The ids that a function chooses with each of these configurations, 40 ids each.
using Choose = Id (*)(const Vector&, const std::vector<Id>&, const TypicalSampling&,
                      Generator&);
std::vector<Id> choose_200(Choose choose) {
    const std::vector<TypicalSampling> configs = {{},
                                                  {0.7f, 20, 0.9f, 0.02f, 1.3f},
                                                  {2, 0, 0.8f, 0, 1.1f},
                                                  {1.5f, 8, 1, 0.1f, 1},
                                                  {0, 0, 1, 0, 1.5f}};
    Generator weights(15), generator(77);
    std::vector<Id> ids;
    for (const TypicalSampling& config : configs)
        for (int i = 0; i < 40; ++i)
            ids.push_back(choose(randn({50}, weights) * Real(3), ids, config, generator));
    return ids;
}

}  // namespace

TEST_CASE("11.1 predict probabilities at two temperatures") {
    const Vector prediction = predicted_probabilities();
    const Vector logits = logs({0.8f, 0.2f});
    const Vector probabilities{softmax(apply_temperature(logits, 0.5f))(0),
                               softmax(apply_temperature(logits, 2))(0)};
    INFO("the probability of the first token at temperature 0.5 and at temperature 2");
    CHECK_CLOSE(prediction, probabilities, 0.01);
}

TEST_CASE("11.2 predict the number of tokens that remain") {
    const Vector prediction = predicted_token_counts();
    const Vector logits = logs({0.4f, 0.3f, 0.15f, 0.1f, 0.05f});
    const Vector counts{
        count_kept(apply_top_k(logits, 2)), count_kept(apply_top_p(logits, 0.75f)),
        count_kept(apply_top_p(logits, 0.9f)), count_kept(apply_min_p(logits, 0.2f))};
    INFO("the tokens that top-k 2, top-p 0.75, top-p 0.9 and min-p 0.2 keep");
    CHECK_CLOSE(prediction, counts, 0);
}

TEST_CASE("11.3 predict penalized logits") {
    const Vector prediction = predicted_penalized_logits();
    const Vector logits = apply_repetition_penalty({3, 1.5f, -1, -2}, {0, 2, 2, 0, 0}, 1.5f);
    INFO("the logits after a repetition penalty of 1.5");
    CHECK_CLOSE(prediction, logits, 1e-3);
}

TEST_CASE("11.4 predict sampled tokens") {
    const Vector prediction = predicted_ids();
    const Vector cumulative{0.1f, 0.5f, 0.8f, 1};
    Vector ids = xt::zeros<Real>({4});
    const std::vector<Real> coins = {0.3f, 0.75f, 0.05f, 0.55f};
    for (std::size_t i = 0; i < 4; ++i)
        ids(i) = static_cast<Real>(std::count_if(cumulative.begin(), cumulative.end(),
                                                 [&](Real end) { return end <= coins[i]; }));
    INFO("the tokens for 0.3, 0.75, 0.05 and 0.55");
    CHECK_CLOSE(prediction, ids, 0);
}

TEST_CASE("11.5 predict the second chunk of a prompt") {
    const Vector prediction = predicted_chunk();
    const AttentionInputs inputs =
        causal_attention_inputs(small_model().rotary_table(20), 1, 8, 12);
    const Tensor4& mask = inputs.attention_mask;
    const auto masked = std::count(mask.begin(), mask.end(), -infinity);
    const Vector chunk{Real(mask.shape(2)), Real(mask.shape(3)),
                       Real(inputs.position_ids(0, 0)), Real(masked)};
    INFO("queries, keys, the first position id, and elements of the mask that are -inf");
    CHECK_CLOSE(prediction, chunk, 0);
}

TEST_CASE("11.6 find the bug: the same tokens at every temperature") {
    const Vector logits{4, 3, 2, 1, 0};
    for (const Real temperature : {2.0f, 4.0f, 0.5f, 1.0f}) {
        INFO("temperature ", temperature, ", top-p 0.9");
        CHECK_CLOSE(temperature_and_top_p(logits, temperature, 0.9f),
                    apply_top_p(apply_temperature(logits, temperature), 0.9f), 0);
    }
}

TEST_CASE("11.7 find the bug: only the first prompt is continued correctly") {
    const Model model = small_model();
    const std::vector<std::vector<Id>> prompts = {{3, 16, 0}, {9}, {1, 2}};
    const auto outputs = generate_all(model, prompts, 8);
    REQUIRE(outputs.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
        Generator generator(1);
        GenerationConfig config;
        config.sampling.temperature = 0;
        config.max_new_tokens = 8;
        INFO("prompt ", i, " alone");
        CHECK(outputs[i] == generate(model, prompts[i], config, generator).ids);
    }
}

TEST_CASE("11.8 write append and window") {
    Generator generator(7);
    const std::size_t W = 3;
    const Tensor4 keys = randn({2, 2, 7, 4}, generator),
                  values = randn({2, 2, 7, 4}, generator);
    const Tensor4 query = randn({2, 4, 1, 4}, generator);
    RollingCache cache{xt::zeros<Real>({2, 2, 3, 4}), xt::zeros<Real>({2, 2, 3, 4}), 0};
    const auto part = [](const Tensor4& all, std::size_t begin, std::size_t end) {
        return Tensor4(xt::view(all, xt::all(), xt::all(), xt::range(begin, end)));
    };
    for (std::size_t n = 0; n < 7; ++n) {
        append(cache, part(keys, n, n + 1), part(values, n, n + 1));
        const LayerCache cached = window(cache);
        INFO("after ", n + 1, " tokens, with a window of 3");
        {
            INFO("the key of token n is in slot n % 3, the others are unchanged");
            for (std::size_t m = n < W ? 0 : n + 1 - W; m <= n; ++m)
                REQUIRE_CLOSE(part(cache.keys, m % W, m % W + 1), part(keys, m, m + 1), 0);
        }
        const std::size_t kv_len = std::min(n + 1, W);
        REQUIRE(cached.keys.shape() == std::array<std::size_t, 4>{2, 2, kv_len, 4});
        REQUIRE(cache.keys.shape(2) == W);
        const Tensor4 mask =
            xt::zeros<Real>({std::size_t{2}, std::size_t{1}, std::size_t{1}, kv_len});
        const Tensor4 expected =
            grouped_query_attention(query, part(keys, n + 1 - kv_len, n + 1),
                                    part(values, n + 1 - kv_len, n + 1), mask)
                .context;
        CHECK_CLOSE(grouped_query_attention(query, cached.keys, cached.values, mask).context,
                    expected, 1e-6);
    }
}

TEST_CASE("11.9 write entropy") {
    const auto checked = [](Vector logits) { return Vector{Real(entropy(logits))}; };
    {
        INFO("probabilities 0.5, 0.25, 0.125 and 0.125: 1.75 ln 2");
        REQUIRE_CLOSE(checked(logs({0.5f, 0.25f, 0.125f, 0.125f})), Vector{1.2130f}, 1e-4);
    }
    {
        INFO("eight equal logits: ln 8");
        const Vector equal = xt::ones<Real>({8}) * Real(3);
        REQUIRE_CLOSE(checked(equal), Vector{2.0794f}, 1e-4);
    }
    {
        INFO("two equal logits, the others were removed: ln 2");
        REQUIRE_CLOSE(checked(Vector{-infinity, 5, -infinity, 5}), Vector{0.6931f}, 1e-4);
    }
    {
        INFO("logits of 1000 and 1000 - ln 3: probabilities 0.75 and 0.25");
        CHECK_CLOSE(checked(Vector{1000, 1000 - std::log(3.0f)}), Vector{0.5623f}, 1e-4);
    }
}

TEST_CASE("11.10 write keep_top_k") {
    const Vector logits{1, 3, -2, 3, 2}, ties{5, 5, 5};
    {
        INFO("the three largest of five logits");
        REQUIRE_CLOSE(keep_top_k(logits, 3), (Vector{-infinity, 3, -infinity, 3, 2}), 0);
    }
    {
        INFO("of equal logits, those with the smaller ids");
        REQUIRE_CLOSE(keep_top_k(ties, 2), (Vector{5, 5, -infinity}), 0);
    }
    {
        INFO("k is larger than the vocabulary");
        CHECK_CLOSE(keep_top_k(logits, 9), logits, 0);
    }
}

TEST_CASE("11.11 write keep_typical") {
    const Vector logits = logs({0.125f, 0.5f, 0.25f, 0.125f});
    {
        INFO("0.125, 0.5, 0.25, 0.125: 0.25 is the closest to the entropy, typical-p 0.2");
        REQUIRE_CLOSE(keep_typical(logits, 0.2f),
                      (Vector{-infinity, -infinity, logits(2), -infinity}), 0);
    }
    {
        INFO("the same with typical-p 0.7: 0.25 and 0.5");
        REQUIRE_CLOSE(keep_typical(logits, 0.7f),
                      (Vector{-infinity, logits(1), logits(2), -infinity}), 0);
    }
    {
        INFO("the same with typical-p 0.8: of the two tokens of 0.125 the first one");
        REQUIRE_CLOSE(keep_typical(logits, 0.8f),
                      (Vector{logits(0), logits(1), logits(2), -infinity}), 0);
    }
    {
        INFO("one token remains with typical-p 0");
        REQUIRE_CLOSE(keep_typical(logits, 0),
                      (Vector{-infinity, -infinity, logits(2), -infinity}), 0);
    }
    {
        INFO("logits 0 and -100: the sum rounds to 1, but typical-p 1 removes nothing");
        REQUIRE_CLOSE(keep_typical(Vector{0, -100}, 1), (Vector{0, -100}), 0);
    }
    for (const Real typical_p : {0.1f, 0.5f, 0.8f, 0.95f, 1.0f}) {
        INFO("50 tokens, 20 of which have been removed before, typical-p ", typical_p);
        CHECK_CLOSE(keep_typical(filtered_logits(1), typical_p),
                    typical(filtered_logits(1), typical_p), 0);
    }
}

TEST_CASE("11.12 write keep_min_p") {
    const Vector logits = logs({0.1f, 0.6f, 0.05f, 0.25f});
    {
        INFO("probabilities 0.1, 0.6, 0.05 and 0.25, min-p 0.3: at least 0.18");
        REQUIRE_CLOSE(keep_min_p(logits, 0.3f),
                      (Vector{-infinity, logits(1), -infinity, logits(3)}), 0);
    }
    for (const Real min_p : {0.0f, 0.001f, 0.03f, 0.25f, 0.9f, 1.0f}) {
        INFO("50 tokens, 20 of which have been removed before, min-p ", min_p);
        CHECK_CLOSE(keep_min_p(filtered_logits(2), min_p),
                    apply_min_p(filtered_logits(2), min_p), 0);
    }
}

TEST_CASE("11.13 write penalize") {
    const Vector logits{2, -2, 1, -1, 0};
    {
        INFO("positive and negative logits, penalty 2");
        REQUIRE_CLOSE(penalize(logits, {0, 1, 4}, 2), (Vector{1, -4, 1, -1, 0}), 1e-6);
    }
    {
        INFO("a token that occurs three times is penalized once");
        REQUIRE_CLOSE(penalize(logits, {0, 3, 0, 3, 0}, 2), (Vector{1, -2, 1, -2, 0}), 1e-6);
    }
    {
        INFO("no token has occurred");
        CHECK_CLOSE(penalize(logits, {}, 2), logits, 0);
    }
}

TEST_CASE("11.14 write id_at") {
    const Vector logits = logs({0.25f, 0.5f, 0, 0.25f});
    for (const auto& [coin, id] : std::vector<std::pair<double, Id>>{
             {0, 0}, {0.2, 0}, {0.3, 1}, {0.7, 1}, {0.8, 3}, {0.999, 3}}) {
        const double number = coin;  // a lambda cannot capture a structured binding
        INFO("probabilities 0.25, 0.5, 0 and 0.25, random number ", number);
        REQUIRE(id_at(logits, number) == id);
    }
    {
        INFO("the first and the last token have been removed");
        REQUIRE(id_at(Vector{-infinity, 4, -infinity}, 0) == 1);
        REQUIRE(id_at(Vector{-infinity, 4, -infinity}, 0.99999999) == 1);
    }
    {
        INFO("ten equal logits, whose probabilities may add up to less than 1, then -inf");
        Vector equal = xt::zeros<Real>({11});
        equal(10) = -infinity;
        REQUIRE(id_at(equal, std::nextafter(1.0, 0.0)) == 9);
    }
    {
        INFO("logits of 1000 and 999");
        CHECK(id_at(Vector{1000, 999}, 0.72) == 0);
        CHECK(id_at(Vector{1000, 999}, 0.74) == 1);
    }
}

TEST_CASE("11.15 write choose_next_token") {
    {
        INFO("temperature 0: the largest logit after the penalty, without a random number");
        Generator generator(3), unused(3);
        TypicalSampling greedy;
        greedy.temperature = 0;
        greedy.repetition_penalty = 2;
        REQUIRE(choose_next_token(Vector{1, 5, 4}, {1}, greedy, generator) == 2);
        REQUIRE(generator.next_32_bits() == unused.next_32_bits());
    }
    const std::vector<Id> ids = choose_200(choose_next_token);
    const std::vector<Id> expected = choose_200(expected_token);
    REQUIRE(ids.size() == expected.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        INFO("five configurations, 40 ids each, the lesson's generator: id ", i);
        REQUIRE(ids[i] == expected[i]);
    }
}
