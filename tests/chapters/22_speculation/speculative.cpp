#include <csignal>
#include <set>

#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/mtp_helpers.hpp"
#include "tests/support/speculative_helpers.hpp"

using namespace llm;

namespace {

// Knows the text, and proposes what follows: each token is accepted in greedy decoding.
struct Oracle final : Proposer {
    std::size_t num_tokens;
    IdList text;

    Oracle(std::size_t vocab, IdList whole) : num_tokens(vocab), text(std::move(whole)) {}
    std::size_t vocab_size() const override { return num_tokens; }
    Proposal propose(const IdList& context, std::size_t max_tokens, const SamplingConfig&,
                     Generator&) override {
        Proposal proposal;
        for (std::size_t t = context.size(); t < text.size() && proposal.size() < max_tokens;
             ++t) {
            proposal.ids.push_back(text[t]);
            proposal.probabilities.push_back(one_hot(text[t], num_tokens));
        }
        return proposal;
    }
};

GenerationConfig greedy(std::size_t max_new_tokens, IdList eos = {}) {
    return {.sampling = {.temperature = 0},
            .max_new_tokens = max_new_tokens,
            .eos_token_ids = std::move(eos)};
}

GeneratedTokens generated_by_11(const FastModel& model, const IdList& prompt,
                                const GenerationConfig& config, std::size_t num_positions) {
    CachedSequence cached = make_cached_sequence(model, num_positions);
    Generator unused(1);
    return generate(cached, prompt, config, unused);
}

// The same as chapter 11: tokens, reason, and what on_token sees.
SpeculativeStatistics check_same(const FastModel& model, Proposer& proposer, std::size_t K,
                                 const IdList& prompt, const GenerationConfig& config,
                                 std::size_t num_positions) {
    CAPTURE(K);
    CAPTURE(prompt);
    TargetSequence target = make_target_sequence(model, num_positions);
    Generator generator(1);
    IdList seen;
    const SpeculativeTokens result = generate_speculatively(
        target, proposer, K, prompt, config, generator, [&](Id id) { seen.push_back(id); });
    const GeneratedTokens expected = generated_by_11(model, prompt, config, num_positions);
    CHECK(result.generated.ids == expected.ids);
    CHECK(result.generated.reason == expected.reason);
    CHECK(seen == expected.ids);
    CHECK(target.sequence.state.seq_len == target.cached.ids.size());
    return result.statistics;
}

IdList concatenated(IdList first, const IdList& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

}  // namespace

TEST_CASE("greedy speculative decoding gives the tokens of generate, whatever is proposed") {
    const FastModel& model = tiny(1);
    const IdList text = generated_by_11(model, {4}, greedy(20), 40).ids;
    CHECK(std::set<Id>(text.begin(), text.end()).size() > 3);  // it is no repetition
    Garbage garbage(7, {3, 0, 6, 6}, true), random_garbage(7, {}, false);
    NgramProposer ngram(7);
    DraftModel other(tiny(2), 40), itself(model, 40), short_draft(tiny(3), 12);
    Proposer* proposers[] = {&garbage, &random_garbage, &ngram, &other, &itself, &short_draft};
    for (Proposer* proposer : proposers)
        for (const std::size_t K : {0, 1, 2, 4, 7, 20})
            for (const IdList& prompt :
                 {IdList{4}, IdList{1, 5, 2}, IdList{6, 6, 0, 3, 6, 6, 0}}) {
                check_same(model, *proposer, K, prompt, greedy(20), 40);
                GenerationConfig penalized = greedy(20);
                penalized.sampling.repetition_penalty = 1.5f;
                check_same(model, *proposer, K, prompt, penalized, 40);
            }
}

TEST_CASE("the shipped model writes the same text greedily with each draft") {
    const Model model = models::load_model(asset("king_james"));
    const FastModel target = make_fast_model(model, DType::float32),
                    rounded = make_fast_model(model, DType::bfloat16);
    const Tokenizer tokenizer =
        models::load_tokenizer(asset("king_james/tokenizer.json"), model.config.vocab_size);
    for (const char* text : {"And the LORD said unto Moses", "In the beginning",
                             "The LORD is my shepherd; I shall not want."}) {
        const IdList prompt = tokenizer.encode(text);
        NgramProposer ngram(model.config.vocab_size);
        DraftModel draft(rounded, 128), itself(target, 128);
        for (const std::size_t K : {3, 8}) {
            check_same(target, ngram, K, prompt, greedy(60), 128);
            const auto similar = check_same(target, draft, K, prompt, greedy(60), 128);
            CHECK(double(similar.accepted) > 0.9 * double(similar.proposed));
            const auto same = check_same(target, itself, K, prompt, greedy(60), 128);
            CHECK(same.accepted == same.proposed);
            CHECK(same.steps == (60 + K) / (K + 1));
        }
    }
}

TEST_CASE("greedy text with an MTP draft is that of generate, also where the context shifts") {
    const FastModel& model = tiny(1);
    const FastMtpModule module = make_fast_mtp_module(tiny_mtp_module(3), model);
    for (const std::size_t num_positions : {16u, 40u})
        for (const std::size_t K : {0, 1, 2, 4, 7, 20})
            for (const IdList& prompt :
                 {IdList{4}, IdList{1, 5, 2}, IdList{6, 6, 0, 3, 6, 6, 0}}) {
                CAPTURE(K);
                GenerationConfig config = greedy(30, {});
                config.context_shift = true;
                TargetSequence target = make_target_sequence(model, num_positions);
                MtpDraft draft(module, target);
                Generator generator(1);
                const auto generated =
                    generate_speculatively(target, draft, K, prompt, config, generator)
                        .generated;
                CHECK(generated.ids ==
                      generated_by_11(model, prompt, config, num_positions).ids);
            }
}

TEST_CASE("the target as its own draft: everything is accepted, also with sampling") {
    for (const Real temperature : {0.0f, 1.0f}) {
        TargetSequence target = make_target_sequence(tiny(1), 40);
        DraftModel itself(tiny(1), 40);
        Generator generator(4);
        const GenerationConfig config{
            .sampling = {.temperature = temperature, .top_p = 0.9f, .repetition_penalty = 1.2f},
            .max_new_tokens = 30};
        const SpeculativeTokens result =
            generate_speculatively(target, itself, 4, {1, 5, 2}, config, generator);
        CHECK(result.generated.ids.size() == 30);
        CHECK(result.statistics.steps == 6);
        CHECK(result.statistics.proposed == 24);
        CHECK(result.statistics.accepted == 24);
    }
}

TEST_CASE("generation ends in the middle of accepted tokens exactly where generate ends") {
    const FastModel& model = tiny(1);
    const IdList prompt = {1, 5, 2};
    const IdList text = generated_by_11(model, prompt, greedy(30), 40).ids;
    Oracle oracle(7, concatenated(prompt, text));

    // At any number of new tokens, and at the last position of the cache.
    for (std::size_t count = 0; count <= 12; ++count) {
        const auto statistics = check_same(model, oracle, 5, prompt, greedy(count), 40);
        CHECK(statistics.accepted == statistics.proposed);
        CHECK(statistics.steps == (count + 5) / 6);
        check_same(model, oracle, 5, prompt, greedy(30), 3 + count);
    }

    // At an EOS token, whichever position of a step it has.
    for (Id eos = 0; eos < 7; ++eos)
        for (const std::size_t K : {1, 2, 3, 5, 9}) {
            check_same(model, oracle, K, prompt, greedy(30, {eos}), 40);
            Garbage garbage(7, {eos, 2, eos, 4}, true);
            check_same(model, garbage, K, prompt, greedy(30, {eos, 4}), 40);
        }

    // Where the context is full and is shifted.
    GenerationConfig shifted = greedy(30);
    shifted.context_shift = true;
    DraftModel draft(model, 16);
    NgramProposer ngram(7);
    check_same(model, draft, 4, prompt, shifted, 16);
    check_same(model, ngram, 4, prompt, shifted, 16);
    shifted.use_cache = false;
    check_same(model, ngram, 4, prompt, shifted, 16);
}

TEST_CASE("after a rejection the cache holds the kept tokens, and goes on like a fresh one") {
    const FastModel& model = tiny(1);
    const IdList context = {1, 5, 2, 0, 3};
    const Id best = generated_by_11(model, context, greedy(1), 40).ids[0];
    for (const bool accept_first : {false, true}) {
        TargetSequence target = make_target_sequence(model, 40);
        Generator generator(1);
        SpeculativeStatistics statistics;
        Proposal proposal;
        for (const Id id : {accept_first ? best : (best + 1) % 7, Id(3), Id(3), Id(3)}) {
            proposal.ids.push_back(id);
            proposal.probabilities.push_back(one_hot(id, 7));
        }
        const IdList tokens = verify_proposal(target, proposal, context, context, greedy(9),
                                              generator, statistics);
        CHECK(tokens[0] == best);
        CHECK((tokens.size() > 1) == accept_first);
        CHECK(statistics.accepted == tokens.size() - 1);
        IdList kept = concatenated(context, tokens);
        kept.pop_back();
        CHECK(target.cached.ids == kept);
        CHECK(target.sequence.state.seq_len == kept.size());

        CachedSequence fresh = make_cached_sequence(model, 40);
        const IdList next = concatenated(concatenated(context, tokens), {6, 4});
        CHECK_CLOSE(next_token_logits(next, target.cached), next_token_logits(next, fresh),
                    1e-5);
    }
}

TEST_CASE("an EOS token is not left in the cache, nor is what was proposed after it") {
    const FastModel& model = tiny(1);
    const IdList prompt = {1, 5, 2};
    const IdList text = generated_by_11(model, prompt, greedy(6), 40).ids;
    Oracle oracle(7, concatenated(prompt, text));
    TargetSequence target = make_target_sequence(model, 40);
    Generator generator(1);
    const std::size_t end = std::size_t(std::ranges::find(text, text[2]) - text.begin());
    const auto result =
        generate_speculatively(target, oracle, 5, prompt, greedy(6, {text[2]}), generator);
    CHECK(result.generated.reason == StopReason::eos_token);
    CHECK(target.cached.ids ==
          concatenated(prompt, IdList(text.begin(), text.begin() + int(end))));

    // A second prompt that begins with the first one: the cached tokens are used again.
    const IdList second = concatenated(prompt, {6, 0});
    const auto next = generate_speculatively(target, oracle, 5, second, greedy(6), generator);
    CHECK(next.generated.ids == generated_by_11(model, second, greedy(6), 40).ids);
}

TEST_CASE("Ctrl-C ends speculative generation after the token that on_token has got") {
    InterruptHandler handler;
    const FastModel& model = tiny(1);
    const IdList prompt = {1, 5, 2};
    const IdList text = generated_by_11(model, prompt, greedy(10), 40).ids;
    for (const std::size_t K : {0, 3, 8}) {
        Oracle oracle(7, concatenated(prompt, text));
        TargetSequence target = make_target_sequence(model, 40);
        Generator generator(1);
        IdList seen;
        const auto result = generate_speculatively(target, oracle, K, prompt, greedy(10),
                                                   generator, [&](Id id) {
                                                       seen.push_back(id);
                                                       if (seen.size() == 3) std::raise(SIGINT);
                                                   });
        CHECK(result.generated.reason == StopReason::interrupted);
        CHECK(result.generated.ids == IdList(text.begin(), text.begin() + 3));
        CHECK(seen.size() == 3);
        CHECK(result.statistics.steps == (3 + K) / (K + 1));  // no further one is computed
        handler.reset();
    }
}

TEST_CASE("first_layers is the model with its later layers left out") {
    Model model = tiny_model(1);
    const FastModel fast = make_fast_model(model, DType::float32);
    model.layers.resize(1);
    model.config.num_hidden_layers = 1;
    const IdList ids = {1, 5, 2, 0};
    CHECK_CLOSE(in_one_call(first_layers(fast, 1), ids), logits_of(model, ids), 1e-5);
    CHECK_CLOSE(in_one_call(first_layers(fast, 2), ids), in_one_call(fast, ids), 0);
    for (const std::size_t count : {0, 3})
        CHECK_THROWS_WITH_AS(
            first_layers(fast, count),
            ("first_layers: " + to_text(count) + " layers of a model that has 2").c_str(),
            ValueError);
}

TEST_CASE("a draft model proposes while its cache has positions, then nothing") {
    DraftModel draft(tiny(2), 6);
    Generator generator(1);
    const SamplingConfig config;
    CHECK(draft.propose({1, 5, 2, 0, 3}, 1, config, generator).size() == 1);
    CHECK(draft.propose({1, 5, 2, 0, 3}, 4, config, generator).size() == 2);
    CHECK(draft.propose({1, 5, 2, 0, 3, 6, 6}, 4, config, generator).size() == 0);
    const Proposal proposal = draft.propose({1, 5}, 3, config, generator);
    for (std::size_t k = 0; k < 3; ++k)
        CHECK(proposal.probabilities[k](std::size_t(proposal.ids[k])) > 0);
    CHECK(draft.cached.ids == IdList{1, 5, proposal.ids[0], proposal.ids[1]});
}

TEST_CASE("speculative decoding names what does not fit") {
    TargetSequence target = make_target_sequence(tiny(1), 40);
    Generator generator(1);
    NgramProposer wrong(9), right(7);
    CHECK_THROWS_WITH_AS(
        generate_speculatively(target, wrong, 3, {1}, greedy(3), generator),
        "speculative decoding: the draft has a vocabulary of 9 tokens, the target of 7",
        ValueError);
    CHECK_THROWS_WITH_AS(generate_speculatively(target, right, 3, {}, greedy(3), generator),
                         "generate: the prompt must have at least one token", ValueError);
    CHECK_THROWS_WITH_AS(generate_speculatively(target, right, 3, {1, 7}, greedy(3), generator),
                         "model: there is no token 7 in a vocabulary of 7", ValueError);
    CHECK_THROWS_AS(DraftModel(tiny(1), 41), ValueError);

    struct TooMany final : Garbage {
        using Garbage::Garbage;
        Proposal propose(const IdList& context, std::size_t max_tokens,
                         const SamplingConfig& config, Generator& random) override {
            return Garbage::propose(context, max_tokens + 1, config, random);
        }
    };
    TooMany too_many(7, {3}, true);
    CHECK_THROWS_WITH_AS(
        generate_speculatively(target, too_many, 2, {1}, greedy(9), generator),
        "speculative decoding: the draft proposes 3 tokens instead of at most 2", ValueError);
}
