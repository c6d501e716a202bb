#include "chapters/11_generation/generation.hpp"
#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/11_generation/inspection.hpp"
#include "chapters/11_generation/text_streamer.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

const Vector few_logits{1, 3, 2, 3, -1};
const Real removed = -infinity;

Vector pinned(const std::string& name) { return fixture<1>("11_generation/" + name); }

// Chapter 01's softmax of one row.
Vector softmax_of_row(const Vector& logits) {
    return reshape(softmax(reshape(logits, {1, logits.size()})), {logits.size()});
}

Model checkpoint(const std::string& name) {
    return models::load_model(fixture_path("09_full_model/" + name));
}

// The relative frequency of each token in 20000 samples.
Vector frequencies(const Vector& logits) {
    Generator generator(5);
    Vector result = xt::zeros<Real>({logits.size()});
    for (int i = 0; i < 20000; ++i)
        result(static_cast<std::size_t>(sample(logits, generator))) += 1.0f / 20000;
    return result;
}

SamplingConfig greedy() {
    SamplingConfig config;
    config.temperature = 0;
    return config;
}

// The logits of the last position: (B, T) -> (B, V).
Matrix last_of(const Tensor3& logits) {
    return xt::view(logits, xt::all(), logits.shape(1) - 1);
}

Tensor3 cached_forward(const Model& model, const IdMatrix& ids, KVCache& cache) {
    return model.forward(ids, {.cache = &cache, .logits_to_keep = LogitsToKeep::last}).logits;
}

// The logits of the last position, computed with a cache in parts of these lengths.
Matrix in_parts(const Model& model, const IdMatrix& ids,
                const std::vector<std::size_t>& parts) {
    KVCache cache = make_cache(model, ids.shape(1));
    Matrix logits;
    std::size_t begin = 0;
    for (const std::size_t part : parts) {
        const IdMatrix new_ids = xt::view(ids, xt::all(), xt::range(begin, begin + part));
        const Tensor3 output = cached_forward(model, new_ids, cache);
        CHECK(output.shape(1) == 1);
        logits = last_of(output);
        begin += part;
        CHECK(cache.seq_len == begin);
    }
    return logits;
}

}  // namespace

TEST_CASE("apply_temperature: below 1 the differences of logits grow, and it must be above 0") {
    CHECK_CLOSE(apply_temperature(few_logits, 0.5f), (Vector{2, 6, 4, 6, -2}), 0);
    CHECK_CLOSE(apply_temperature(few_logits, 2), (Vector{0.5, 1.5, 1, 1.5, -0.5}), 0);
    CHECK_THROWS_WITH_AS(apply_temperature(few_logits, 0),
                         "sampling: the temperature must be above 0", ValueError);
    CHECK_THROWS_WITH_AS(apply_temperature(few_logits, -1),
                         "sampling: the temperature must be above 0", ValueError);
}

TEST_CASE("apply_top_k keeps the k most likely tokens, of equal ones the first") {
    CHECK_CLOSE(apply_top_k(few_logits, 1), (Vector{removed, 3, removed, removed, removed}), 0);
    CHECK_CLOSE(apply_top_k(few_logits, 3), (Vector{removed, 3, 2, 3, removed}), 0);
    CHECK_CLOSE(apply_top_k(few_logits, 5), few_logits, 0);
    CHECK_CLOSE(apply_top_k(few_logits, 9), few_logits, 0);
    CHECK_THROWS_WITH_AS(apply_top_k(few_logits, 0), "sampling: top-k must be at least 1",
                         ValueError);
    const Vector equal = apply_top_k(xt::zeros<Real>({40}), 7);
    for (std::size_t token = 0; token < 40; ++token)
        CHECK(equal(token) == (token < 7 ? 0 : removed));
}

TEST_CASE("apply_top_p keeps the smallest set that reaches top_p, and at least one token") {
    // Probabilities of 1/2, 1/8, 1/4 and 1/8: all sums are exact.
    const Vector logits{std::log(4.0f), 0, std::log(2.0f), 0};
    const Vector one{logits(0), removed, removed, removed};
    const Vector two{logits(0), removed, logits(2), removed};
    CHECK_CLOSE(apply_top_p(logits, 0), one, 0);
    CHECK_CLOSE(apply_top_p(logits, 0.4f), one, 0);
    CHECK_CLOSE(apply_top_p(logits, 0.6f), two, 0);
    CHECK_CLOSE(apply_top_p(logits, 0.74f), two, 0);
    CHECK_CLOSE(apply_top_p(logits, 0.8f), (Vector{logits(0), 0, logits(2), removed}), 0);
    CHECK_CLOSE(apply_top_p(logits, 1), logits, 0);
    CHECK_CLOSE(apply_top_p(Vector{1, 1, 1, 1}, 0.5f), (Vector{1, 1, removed, removed}), 0);
    for (const Real bad : {-0.1f, 1.1f})
        CHECK_THROWS_WITH_AS(apply_top_p(logits, bad), "sampling: top-p must be from 0 to 1",
                             ValueError);
    const Vector many = xt::zeros<Real>({100000});  // the sum must be accurate enough for these
    CHECK_CLOSE(apply_top_p(many, 1), many, 0);
}

TEST_CASE("apply_min_p keeps the tokens that are at least min_p times as likely as the first") {
    const Vector logits{std::log(4.0f), 0, std::log(2.0f), 0};
    const Vector one{logits(0), removed, removed, removed};
    const Vector two{logits(0), removed, logits(2), removed};
    CHECK_CLOSE(apply_min_p(logits, 0), logits, 0);
    CHECK_CLOSE(apply_min_p(logits, 0.24f), logits, 0);
    CHECK_CLOSE(apply_min_p(logits, 0.3f), two, 0);
    CHECK_CLOSE(apply_min_p(logits, 0.6f), one, 0);
    CHECK_CLOSE(apply_min_p(few_logits, 1), (Vector{removed, 3, removed, 3, removed}), 0);
    for (const Real bad : {-0.1f, 1.1f})
        CHECK_THROWS_WITH_AS(apply_min_p(logits, bad), "sampling: min-p must be from 0 to 1",
                             ValueError);
}

TEST_CASE("apply_repetition_penalty lowers positive and negative logits, once per token") {
    CHECK_CLOSE(apply_repetition_penalty(few_logits, {1, 4, 1, 1}, 2),
                (Vector{1, 1.5, 2, 3, -2}), 0);
    CHECK_CLOSE(apply_repetition_penalty(few_logits, {}, 2), few_logits, 0);
    CHECK_THROWS_WITH_AS(apply_repetition_penalty(few_logits, {5}, 2),
                         "sampling: there is no token 5 in a vocabulary of 5", ValueError);
    CHECK_THROWS_AS(apply_repetition_penalty(few_logits, {-1}, 2), ValueError);
    for (const Real bad : {0.0f, -2.0f})
        CHECK_THROWS_WITH_AS(apply_repetition_penalty(few_logits, {1}, bad),
                             "sampling: the repetition penalty must be above 0", ValueError);
}

TEST_CASE("each function returns what Hugging Face's logits processor returns") {
    const Vector logits = pinned("logits");
    CHECK_CLOSE(apply_temperature(logits, 0.7f), pinned("temperature"), 1e-6);
    CHECK_CLOSE(apply_top_k(logits, 7), pinned("top_k"), 1e-6);
    CHECK_CLOSE(apply_top_p(logits, 0.8f), pinned("top_p"), 1e-6);
    CHECK_CLOSE(apply_min_p(logits, 0.1f), pinned("min_p"), 1e-6);
    CHECK_CLOSE(apply_repetition_penalty(logits, {3, 7, 7, 21, 39}, 1.3f), pinned("penalty"),
                1e-6);
}

TEST_CASE("process_logits applies all of them in Hugging Face's order") {
    const SamplingConfig config{1.5f, 12, 0.9f, 0.35f, 1.3f};
    const Vector processed = process_logits(pinned("logits"), {3, 7, 7, 21, 39}, config);
    CHECK_CLOSE(softmax(processed), pinned("combined"), 1e-6);
}

TEST_CASE("process_logits with temperature 0 applies the repetition penalty only") {
    const Vector logits{3, 2, -1};
    CHECK_CLOSE(process_logits(logits, {0, 2}, {0, 1, 0.1f, 0.9f, 2}), (Vector{1.5, 2, -2}),
                1e-6);
}

TEST_CASE("sample_next_token samples from the processed logits") {
    const Vector logits = pinned("logits");
    const Vector expected = pinned("combined");
    const SamplingConfig config{1.5f, 12, 0.9f, 0.35f, 1.3f};
    Generator generator(8);
    Vector counted = xt::zeros<Real>({logits.size()});
    for (int i = 0; i < 20000; ++i)
        counted(static_cast<std::size_t>(
            sample_next_token(logits, {3, 7, 7, 21, 39}, config, generator))) += 1.0f / 20000;
    for (std::size_t token = 0; token < logits.size(); ++token)
        CHECK((counted(token) > 0) == (expected(token) > 0));
    CHECK_CLOSE(counted, expected, 0.015);
}

TEST_CASE("sample_next_token: the default of each field changes nothing, other values do") {
    const Vector logits{2, 1, 1.5, 0};
    Generator plain(3);
    std::vector<Id> sampled;
    for (int i = 0; i < 50; ++i)
        sampled.push_back(sample_next_token(logits, {}, SamplingConfig(), plain));
    for (const SamplingConfig& config :
         {SamplingConfig{1, 4, 1, 0, 1}, SamplingConfig{1, 0, 1, 0, 1},
          SamplingConfig{1, 100, 1, 0, 1}}) {
        Generator generator(3);
        for (const Id id : sampled)
            CHECK(sample_next_token(logits, {}, config, generator) == id);
    }

    Generator generator(1);
    const auto only_first = [&](const SamplingConfig& config, const std::vector<Id>& ids) {
        for (int i = 0; i < 50; ++i)
            if (sample_next_token(logits, ids, config, generator) != 0) return false;
        return true;
    };
    CHECK(only_first({0, 0, 1, 0, 1}, {}));
    CHECK(only_first({1, 1, 1, 0, 1}, {}));
    CHECK(only_first({1, 0, 0.1f, 0, 1}, {}));
    CHECK(only_first({1, 0, 1, 0.9f, 1}, {}));
    CHECK_FALSE(only_first({1, 0, 1, 0, 1}, {}));
    CHECK(sample_next_token(logits, {0}, {0, 0, 1, 0, 2}, generator) == 2);
}

TEST_CASE("argmax_token is the first of the largest logits") {
    CHECK(argmax_token(few_logits) == 1);
    CHECK(argmax_token(Vector{removed, -5, removed}) == 1);
    CHECK_THROWS_WITH_AS(argmax_token(Vector{removed, removed}),
                         "sampling: all logits are -inf", ValueError);
}

TEST_CASE("sample: the frequency of a token is its probability, and -inf is never sampled") {
    const Vector logits{0, 1, removed, 2, -1};
    const Vector counted = frequencies(logits);
    CHECK(counted(2) == 0);
    CHECK_CLOSE(counted, softmax_of_row(logits), 0.01);
    CHECK_CLOSE(softmax(logits), softmax_of_row(logits), 0);
    CHECK_CLOSE(frequencies(Vector{removed, removed, 7}), (Vector{0, 0, 1}), 1e-3);
}

TEST_CASE("sample uses one uniform random number per token") {
    const Vector logits{0, 0, 0, 0};
    Generator generator(11), same(11);
    for (int i = 0; i < 100; ++i)
        CHECK(sample(logits, generator) == static_cast<Id>(same.next_uniform() * 4));
}

TEST_CASE("sample_from draws what sample draws, and throws if all probabilities are 0") {
    const Vector logits{0.5, -infinity, 2, 1, -1};
    Generator generator(3), other(3);
    for (int i = 0; i < 100; ++i)
        CHECK(sample_from(softmax(logits), generator) == sample(logits, other));
    CHECK_THROWS_WITH_AS(sample_from({0, 0, 0}, generator), "sampling: all probabilities are 0",
                         ValueError);
}

TEST_CASE("sample and sample_next_token throw if the logits define no distribution") {
    Generator generator(1);
    CHECK_THROWS_WITH_AS(sample(Vector{removed, removed}, generator),
                         "sampling: all logits are -inf", ValueError);
    for (const Real bad : {infinity, std::nanf("")})
        for (const SamplingConfig& config :
             {SamplingConfig{}, SamplingConfig{.temperature = 0}, SamplingConfig{.top_k = 1},
              SamplingConfig{.top_p = Real(0.5)}, SamplingConfig{.min_p = Real(0.5)}})
            CHECK_THROWS_WITH_AS(sample_next_token(Vector{2, 1, bad}, {}, config, generator),
                                 "sampling: a logit is +inf or NaN", ValueError);
}

TEST_CASE("sample_next_token: top-k comes before top-p, and logits that overflow throw") {
    // Of 40, 30, 20 and 10 percent top-k leaves 57 and 43: top-p 0.55 then keeps the first
    // alone.
    const Vector logits{std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
    Generator generator(2);
    for (int i = 0; i < 50; ++i)
        CHECK(sample_next_token(logits, {}, {.top_k = 2, .top_p = 0.55f}, generator) == 0);
    CHECK_THROWS_WITH_AS(
        sample_next_token(Vector{1, 2}, {}, {.temperature = 1e-39f}, generator),
        "sampling: a logit is +inf or NaN", ValueError);
}

TEST_CASE("with a cache, position ids continue and a new token attends to all cached ones") {
    const Model model = checkpoint("qwen3");
    const RotaryTable table = make_cache(model, 10).rotary_tables.front();
    const AttentionInputs three = causal_attention_inputs(table, 2, 3, 4);
    CHECK_CLOSE(three.position_ids, (IdMatrix{{4, 5, 6}, {4, 5, 6}}), 0);
    const Matrix expected{
        {0, 0, 0, 0, 0, removed, removed}, {0, 0, 0, 0, 0, 0, removed}, {0, 0, 0, 0, 0, 0, 0}};
    for (const std::size_t b : {0, 1})
        CHECK_CLOSE(head_of(three.attention_mask, b, 0), expected, 0);
    CHECK_CLOSE(head_of(causal_attention_inputs(table, 1, 1, 4).attention_mask, 0, 0),
                (Matrix{{0, 0, 0, 0, 0}}), 0);

    const AttentionInputs all = causal_attention_inputs(table, 2, 5, 0);
    const AttentionInputs plain = causal_attention_inputs(model.rotary_table(5), 2, 5);
    CHECK_CLOSE(all.position_ids, plain.position_ids, 0);
    CHECK_CLOSE(all.attention_mask, plain.attention_mask, 0);
    CHECK_CLOSE(Matrix(xt::view(all.rotary_table.cos, xt::range(0, 5))), plain.rotary_table.cos,
                0);
    CHECK_CLOSE(Matrix(xt::view(all.rotary_table.sin, xt::range(0, 5))), plain.rotary_table.sin,
                0);

    CHECK_NOTHROW(causal_attention_inputs(table, 1, 2, 8));
    CHECK_THROWS_WITH_AS(causal_attention_inputs(table, 1, 3, 8),
                         "attention: kv_len 11 exceeds the 10 positions of the rotary table",
                         ValueError);
    CHECK_THROWS_AS(make_cache(model, 65), ValueError);
}

TEST_CASE("logits with a cache equal those without, for every split and every kind of model") {
    const IdMatrix ids{{3, 16, 0, 5, 5, 1, 9}, {9, 1, 2, 3, 4, 4, 0}};
    for (const std::string name : {"llama", "qwen2", "qwen3", "mistral", "mini_llm"}) {
        INFO(name);
        const Model model = checkpoint(name);
        const Matrix expected = last_of(model(ids));
        CHECK_CLOSE(in_parts(model, ids, {7}), expected, 1e-5);
        CHECK_CLOSE(in_parts(model, ids, {6, 1}), expected, 1e-5);
        CHECK_CLOSE(in_parts(model, ids, {1, 1, 1, 1, 1, 1, 1}), expected, 1e-5);
        CHECK_CLOSE(in_parts(model, ids, {2, 3, 2}), expected, 1e-5);
    }
}

TEST_CASE("the cache holds the rotated keys and the values of all tokens") {
    const Model model = checkpoint("qwen3");  // H 4, Hkv 2, D 6
    const IdMatrix ids{{3, 16, 0}, {9, 1, 2}};
    KVCache cache = make_cache(model, 9);
    cached_forward(model, IdMatrix{{3, 16}, {9, 1}}, cache);
    cached_forward(model, IdMatrix{{0}, {2}}, cache);
    REQUIRE(cache.layers.size() == 2);

    const AttentionLayer& layer = model.layers[0].self_attn;
    const Tensor3 hidden_states = model.layers[0].attention_norm(model.embed(ids));
    const QueriesKeysValues heads =
        apply_qk_norm_and_rope(layer.qk_norm, project_qkv(layer, hidden_states),
                               causal_attention_inputs(model.rotary_table(3), 2, 3));
    CHECK_CLOSE(cache.layers[0].keys, heads.keys, 1e-5);
    CHECK_CLOSE(cache.layers[0].values, split_heads(layer.projections.v_proj(hidden_states), 2),
                1e-5);
    CHECK(cache.layers[1].keys.shape() == std::array<std::size_t, 4>{2, 2, 3, 6});
}

TEST_CASE("an attention layer with a cache: weights over all tokens, the same output") {
    const Model model = checkpoint("qwen3");
    const AttentionLayer& layer = model.layers[0].self_attn;
    Generator generator(2);
    const Tensor3 hidden_states = randn({2, 5, 16}, generator);
    const RotaryTable table = model.rotary_table(5);
    LayerCache cache;
    layer(Tensor3(xt::view(hidden_states, xt::all(), xt::range(0, 3))),
          causal_attention_inputs(table, 2, 3), &cache);
    const AttentionLayer::Output two =
        layer(Tensor3(xt::view(hidden_states, xt::all(), xt::range(3, 5))),
              causal_attention_inputs(table, 2, 2, 3), &cache);
    CHECK(two.attentions.shape() == std::array<std::size_t, 4>{2, 4, 2, 5});

    const AttentionLayer::Output all =
        layer(hidden_states, causal_attention_inputs(table, 2, 5));
    CHECK_CLOSE(two.hidden_states,
                Tensor3(xt::view(all.hidden_states, xt::all(), xt::range(3, 5))), 1e-5);
    CHECK_CLOSE(
        two.attentions,
        Tensor4(xt::view(all.attentions, xt::all(), xt::all(), xt::range(3, 5), xt::all())),
        1e-5);
}

TEST_CASE("hidden states and attentions are those of every layer, for the logit lens, too") {
    const Model model = checkpoint("qwen3");
    const IdMatrix ids{{3, 16, 0, 5}};
    const ModelOutput output =
        model.forward(ids, {.output_hidden_states = true, .output_attentions = true});
    REQUIRE(output.hidden_states.size() == 3);
    REQUIRE(output.attentions.size() == 2);
    CHECK_CLOSE(model.logits(output.hidden_states[2]), model(ids), 1e-5);
    CHECK_CLOSE(output.hidden_states[0], model.embed(ids), 0);

    // Recompute the output of layer 1 from its attention weights and values.
    const PreNormBlock& layer = model.layers[1];
    const Tensor3& input = output.hidden_states[1];
    const Tensor4 values = project_qkv(layer.self_attn, layer.attention_norm(input)).values;
    Tensor4 context = xt::zeros<Real>({1, 4, 4, 6});
    for (std::size_t h = 0; h < 4; ++h)
        xt::view(context, 0, h) =
            xt::linalg::dot(head_of(output.attentions[1], 0, h), head_of(values, 0, h / 2));
    const Tensor3 after_attention = input + project_output(layer.self_attn, context);
    CHECK_CLOSE(after_attention + layer.mlp(layer.ffn_norm(after_attention)),
                output.hidden_states[2], 1e-5);

    const Matrix weights = attentions_of_query(output.attentions[1], 2);  // (H, 3)
    CHECK(weights.shape() == std::array<std::size_t, 2>{4, 3});
    for (const auto& [h, s] : every_index(4, 3))
        CHECK(weights(h, s) == output.attentions[1](0, h, 2, s));
    CHECK_THROWS_AS(attentions_of_query(output.attentions[1], 4), ValueError);
    const Vector expected = softmax_of_row(Vector(xt::view(model(ids), 0, 2)));
    CHECK_CLOSE(logit_lens(model, output.hidden_states[2], 2), expected, 1e-5);
    CHECK_THROWS_AS(logit_lens(model, output.hidden_states[2], 4), ValueError);
}

TEST_CASE("last_logits: those of the last position of the first sequence") {
    const ModelOutput output{counting({2, 3, 4}), {}, {}};
    CHECK_CLOSE(last_logits(output), (Vector{8, 9, 10, 11}), 0);
    CHECK_THROWS_AS(last_logits({xt::zeros<Real>({1, 0, 4}), {}, {}}), ValueError);
    CHECK_THROWS_AS(last_logits({xt::zeros<Real>({0, 3, 4}), {}, {}}), ValueError);
}

TEST_CASE("crop keeps the first tokens of a cached sequence: all, one, or none") {
    const Model model = checkpoint("qwen3");
    ModelSequence<Model> sequence(model, 8);
    sequence.append(std::vector<Id>{3, 16, 0});
    CHECK(sequence.crop(3) == 3);
    CHECK(sequence.crop(1) == 1);
    CHECK(sequence.cache.seq_len == 1);
    CHECK_CLOSE(sequence.append(std::vector<Id>{16, 0}),
                last_logits(model.forward(one_sequence(std::vector<Id>{3, 16, 0}), {})), 1e-5);
    CHECK(sequence.crop(0) == 0);
    CHECK(sequence.cache.seq_len == 0);
}

TEST_CASE("a forward pass that throws leaves the cache unchanged") {
    const Model model = checkpoint("qwen3");
    KVCache cache = make_cache(model, 4);
    cached_forward(model, IdMatrix{{3, 16}, {9, 1}}, cache);
    const Tensor4 keys = cache.layers[0].keys;
    CHECK_THROWS_AS(cached_forward(model, IdMatrix{{17}, {0}}, cache), ValueError);
    CHECK_THROWS_AS(cached_forward(model, IdMatrix{{1, 2, 3}, {1, 2, 3}}, cache), ValueError);
    CHECK_THROWS_WITH_AS(cached_forward(model, IdMatrix{{1}}, cache),
                         "cache: (1, 2, 1, 6) cannot be appended to (2, 2, 2, 6)", ValueError);
    CHECK_THROWS_AS(cached_forward(model, xt::zeros<Id>({2, 0}), cache), ValueError);
    const AttentionInputs inputs =
        causal_attention_inputs(cache.rotary_tables.front(), 2, 1, 2);
    LayerCache other_heads{xt::zeros<Real>({2, 1, 2, 6}), xt::zeros<Real>({2, 1, 2, 6})};
    const Tensor3 hidden_states = model.embed(IdMatrix{{3}, {4}});
    CHECK_THROWS_AS(model.layers[0].self_attn(hidden_states, inputs, &other_heads), ValueError);
    LayerCache other_head_dim{xt::zeros<Real>({2, 2, 2, 4}), xt::zeros<Real>({2, 2, 2, 4})};
    CHECK_THROWS_WITH_AS(model.layers[0].self_attn(hidden_states, inputs, &other_head_dim),
                         "cache: (2, 2, 1, 6) cannot be appended to (2, 2, 2, 4)", ValueError);
    CHECK(cache.seq_len == 2);
    CHECK_CLOSE(cache.layers[0].keys, keys, 0);
    cached_forward(model, IdMatrix{{3}, {4}}, cache);
    CHECK(cache.seq_len == 3);
}

TEST_CASE("generate: greedy decoding equals PyTorch's, with and without a cache") {
    const Model model = checkpoint("qwen3");
    const IdMatrix expected = id_fixture<2>("11_generation/greedy");
    const std::vector<Id> prompt(expected.begin(), expected.begin() + 4);
    const std::vector<Id> rest(expected.begin() + 4, expected.end());
    for (const bool use_cache : {true, false}) {
        Generator generator(1);
        const GenerationConfig config{greedy(), rest.size(), {}, use_cache};
        CHECK(generate(model, prompt, config, generator).ids == rest);
    }
}

TEST_CASE("generate: the same tokens for the same seed, with and without a cache") {
    const Model model = checkpoint("mistral");
    const auto generated = [&](std::uint32_t seed, bool use_cache) {
        Generator generator(seed);
        return generate(model, {1, 2}, {SamplingConfig(), 30, {}, use_cache}, generator).ids;
    };
    CHECK(generated(7, true) == generated(7, true));
    CHECK(generated(7, true) == generated(7, false));
    CHECK(generated(7, true) != generated(8, true));
}

TEST_CASE("generate: the repetition penalty counts the prompt and the generated tokens") {
    const Model model = checkpoint("mistral");
    SamplingConfig never_twice = greedy();
    never_twice.repetition_penalty = 1e6f;
    Generator generator(1);
    std::vector<Id> ids = generate(model, {3, 5}, {never_twice, 12, {}, true}, generator).ids;
    ids.insert(ids.end(), {3, 5});
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
}

TEST_CASE("generate stops after max_new_tokens, at an EOS token, or at the last position") {
    const Model model = checkpoint("qwen3");
    const IdMatrix greedy_ids = id_fixture<2>("11_generation/greedy");
    const std::vector<Id> prompt(greedy_ids.begin(), greedy_ids.begin() + 4);
    Generator generator(1);
    std::vector<Id> streamed;
    const auto record = [&](Id id) { streamed.push_back(id); };

    CHECK(generate(model, prompt, {greedy(), 3, {}, true}, generator, record).ids ==
          std::vector<Id>{7, 15, 13});
    CHECK(streamed == std::vector<Id>{7, 15, 13});
    // on_token gets each token before the next one is computed.
    const auto stop = [&](Id id) {
        if (id == 15) throw std::runtime_error("enough");
    };
    const double unused = generator.next_uniform();
    CHECK_THROWS_WITH(generate(model, prompt, {greedy(), 9, {}, true}, generator, stop),
                      "enough");
    CHECK(unused < 1);
    CHECK(generate(model, prompt, {greedy(), 9, {13, 11}, true}, generator).ids ==
          std::vector<Id>{7, 15});
    CHECK(generate(model, prompt, {greedy(), 0, {}, true}, generator).ids.empty());
    CHECK(generate(model, prompt, {greedy(), 1000, {}, true}, generator).ids.size() == 60);

    CHECK_THROWS_WITH_AS(generate(model, {}, {greedy(), 3, {}, true}, generator),
                         "generate: the prompt must have at least one token", ValueError);
    for (const std::size_t count : {0, 3}) {
        CHECK_THROWS_AS(generate(model, {17}, {greedy(), count, {}, true}, generator),
                        ValueError);
        CHECK_THROWS_AS(generate(model, {}, {greedy(), count, {}, true}, generator),
                        ValueError);
    }
    const std::size_t endless = static_cast<std::size_t>(-1);
    CHECK(generate(model, prompt, {greedy(), endless, {}, true}, generator).ids.size() == 60);
    CHECK_THROWS_AS(generate(model, std::vector<Id>(65, 1), {greedy(), 3, {}, true}, generator),
                    ValueError);
}

TEST_CASE("shift_context keeps the first token and the last half") {
    CHECK(shift_context({9, 1, 2, 3, 4, 5, 6, 7}) == std::vector<Id>{9, 4, 5, 6, 7});
    CHECK(shift_context({9, 1, 2, 3, 4}) == std::vector<Id>{9, 3, 4});
    CHECK(shift_context({9, 1, 2, 3}) == std::vector<Id>{9, 2, 3});
    CHECK_THROWS_WITH_AS(shift_context({1, 2, 3}),
                         "generate: a context of 3 tokens is too short to be shifted",
                         ValueError);
}

TEST_CASE("generate with context_shift: a full context is shifted, and computed from scratch") {
    const Model model = checkpoint("qwen3");  // 64 positions
    const std::vector<Id> prompt = {3, 1, 4};
    Generator generator(1);
    // The definition: each token is the most likely one after its context alone.
    std::vector<Id> expected, context = prompt;
    while (expected.size() < 150) {
        if (context.size() == 64) context = shift_context(context);
        const Id id = argmax_token(last_logits(model.forward(one_sequence(context), {})));
        expected.push_back(id);
        context.push_back(id);
    }
    for (const bool use_cache : {true, false}) {
        const GenerationConfig config{greedy(), 150, {}, use_cache, true};
        CHECK(generate(model, prompt, config, generator).ids == expected);
    }
    // Up to the last position nothing changes, and a full prompt can be continued.
    CHECK(generate(model, prompt, {greedy(), 150, {}, true}, generator).ids ==
          std::vector<Id>(expected.begin(), expected.begin() + 61));
    CHECK(generate(model, std::vector<Id>(64, 1), {greedy(), 2, {}, true, true}, generator)
              .ids.size() == 2);
}

TEST_CASE("STORIES260K: a trained model writes llama2.c's story, with and without a cache") {
    const std::string file = stories260k();
    if (file.empty()) {
        MESSAGE(
            "skipped: karpathy's stories260K.bin is neither here nor where STORIES260K says");
        return;
    }
    const Model model = models::load_model(file);
    const Tokenizer tokenizer =
        models::load_tokenizer(models::find_tokenizer_file(file, 512), 512);
    const std::vector<Id> prompt = tokenizer.encode("");
    const std::vector<Id> eos = tokenizer.eos_token_ids;
    Generator generator(1);
    const std::vector<Id> ids =
        generate(model, prompt, {greedy(), 200, eos, true}, generator).ids;
    const std::vector<Id> without_cache =
        generate(model, prompt, {greedy(), 60, eos, false}, generator).ids;
    CHECK(without_cache == std::vector<Id>(ids.begin(), ids.begin() + 60));
    const std::string text = tokenizer.decode(ids);
    CHECK(
        text.starts_with("Once upon a time, there was a little girl named Lily. She loved to "
                         "play outside in the park. One day, she saw a big, red ball."));
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);

    const fs::path published = fs::path(file).replace_filename("greedy200.txt");
    if (!fs::exists(published)) {
        MESSAGE("skipped: greedy200.txt, llama2.c's own 200 tokens, is not beside it");
        return;
    }
    CHECK(text + "\n" == content(published));
}

namespace {

// Returns logits that make 7 the next token, and notes what it is asked for.
struct Recorder final : SequenceCache {
    std::vector<std::size_t>* appended;

    explicit Recorder(std::vector<std::size_t>& lengths) : appended(&lengths) {}
    Vector append(std::span<const Id> new_ids) override {
        appended->push_back(new_ids.size());
        return {0, 0, 0, 0, 0, 0, 0, 1};
    }
    std::size_t crop(std::size_t count) override { return count; }
};

}  // namespace

TEST_CASE(
    "generate computes new tokens alone, and all of them without a cache or after a shift") {
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = 3;
    Generator generator(1);
    const auto lengths = [&](std::size_t num_positions) {
        std::vector<std::size_t> appended;
        CachedSequence cached{std::make_unique<Recorder>(appended), num_positions};
        const GeneratedTokens result = generate(cached, {1, 2, 3, 4, 5}, config, generator);
        CHECK(result.ids == std::vector<Id>(appended.size(), 7));
        CHECK(result.reason ==
              (appended.size() == 3 ? StopReason::max_new_tokens : StopReason::last_position));
        return appended;
    };
    using Lengths = std::vector<std::size_t>;
    CHECK(lengths(100) == Lengths{5, 1, 1});
    CHECK(lengths(7) == Lengths{5, 1});
    config.context_shift = true;
    CHECK(lengths(7) == Lengths{5, 1, 4});  // of 7 tokens, the first and the last three stay
    config.use_cache = false;
    CHECK(lengths(100) == Lengths{5, 6, 7});
}

TEST_CASE(
    "IncrementalDecoder: the parts are the whole text, also with a stripped first space") {
    Tokenizer tokenizer;
    tokenizer.token_bytes = {"<s>", " ", " a", "b", "  ", "\xc3", "\xa9"};
    tokenizer.all_special_ids = {0};
    Generator generator(3);
    for (const bool strip : {false, true})
        for (int run = 0; run < 200; ++run) {
            tokenizer.strip_leading_space = strip;
            std::vector<Id> ids;
            const auto sample_id = [&] {
                return static_cast<Id>(generator.next_32_bits() % 7);
            };
            for (int i = 0; i < run % 3; ++i)
                ids.push_back(sample_id());  // a text that goes on
            IncrementalDecoder decoder(tokenizer, ids);
            std::string text = tokenizer.decode_bytes(ids);
            for (int i = 0; i < 8; ++i) {
                ids.push_back(sample_id());
                text += decoder.put(ids.back());
                CHECK(text == tokenizer.decode_bytes(ids));
            }
        }
}
