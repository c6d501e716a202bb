#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "tests/support/check.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

// Every 97th logit, as in the fixtures of Mini-LLM.
Tensor3 thinned(const Tensor3& logits) {
    return xt::view(logits, xt::all(), xt::all(), xt::range(0, 32000, 97));
}

// The tokens from first up to last of each sequence.
IdMatrix tokens(const IdMatrix& ids, std::size_t first, std::size_t last) {
    return xt::view(ids, xt::all(), xt::range(first, last));
}
Tensor3 tokens(const Tensor3& states, std::size_t first, std::size_t last) {
    return xt::view(states, xt::all(), xt::range(first, last));
}

// The attention weights of queries first up to last over keys 0 up to last.
Tensor4 weights_of(const Tensor4& attentions, std::size_t first, std::size_t last) {
    return xt::view(attentions, xt::all(), xt::all(), xt::range(first, last),
                    xt::range(0, last));
}

void check_same(const KVCache& actual, const KVCache& expected) {
    CHECK(actual.seq_len == expected.seq_len);
    REQUIRE(actual.layers.size() == expected.layers.size());
    for (std::size_t n = 0; n < actual.layers.size(); ++n) {
        CHECK_CLOSE(actual.layers[n].keys, expected.layers[n].keys, 0);
        CHECK_CLOSE(actual.layers[n].values, expected.layers[n].values, 0);
    }
}

// Layers of the tests' own for run_layers, with inputs and caches of their own types.

// Attention to the last tokens only, without position encoding and without an MLP.
struct NoInputs {};
struct SlidingWindowLayer {
    AttentionLayer self_attn;
    std::size_t window;

    BlockOutput operator()(const Tensor3& hidden_states, const NoInputs&,
                           LayerCache* cache = nullptr) const {
        auto [queries, keys, values] = project_qkv(self_attn, hidden_states);
        if (cache) {
            cache->update(keys, values);
            keys = cache->keys;
            values = cache->values;
        }
        const std::size_t query_len = queries.shape(2), kv_len = keys.shape(2);
        Matrix mask = causal_mask(query_len, kv_len);
        for (const auto& [t, s] : every_index(query_len, kv_len))
            if (kv_len - query_len + t >= s + window) mask(t, s) = -infinity;
        const AttentionOutput attention =
            grouped_query_attention(queries, keys, values, expand_mask(mask, queries.shape(0)));
        return {hidden_states + project_output(self_attn, attention.context),
                attention.weights};
    }
};

// Adds the sum of all tokens so far; its cache is that sum.
struct RunningSum {
    Tensor3 sum = xt::zeros<Real>({0, 0, 0});  // (B, 1, C), empty at first
};
struct ScaledSumInputs {
    Real scale;
};
struct RunningSumLayer {
    struct Output {
        Tensor4 attentions;
        Real unrelated_member = 0;
        Tensor3 hidden_states;
    };
    Output operator()(const Tensor3& hidden_states, const ScaledSumInputs& inputs,
                      RunningSum* cache) const {
        const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
        Tensor3 sum = xt::zeros<Real>({batch_size, std::size_t{1}, hidden_size});
        if (cache && cache->sum.size() > 0) sum = cache->sum;
        Tensor3 output = hidden_states;
        for (const auto& [b, t, c] : every_index(batch_size, seq_len, hidden_size)) {
            sum(b, 0, c) += hidden_states(b, t, c);
            output(b, t, c) += inputs.scale * sum(b, 0, c);
        }
        if (cache) cache->sum = sum;
        return {xt::zeros<Real>({1, 1, 1, 1}), 0, output};
    }
};

}  // namespace

TEST_CASE("Mini-LLM: hidden states and logits equal PyTorch's") {
    Generator generator(77);
    Model model = make_model(mini_llm_config(), generator, RopeLayout::interleaved);
    const IdMatrix ids{{1, 334, 3855, 288}};
    const Tensor3 pinned = fixture<3>("09_full_model/demo_hidden_states");  // (17, 4, 24)
    const auto every_16th = [](const Tensor3& hidden_states) {
        return Matrix(xt::view(hidden_states, 0, xt::all(), xt::range(0, 384, 16)));
    };

    const AttentionInputs inputs = causal_attention_inputs(model.rotary_table(4), 1, 4);
    Tensor3 hidden_states = model.embed(ids);
    CHECK_CLOSE(every_16th(hidden_states), Matrix(xt::view(pinned, 0)), 1e-5);
    for (std::size_t layer = 0; layer < 16; ++layer) {
        hidden_states = model.layers[layer](hidden_states, inputs).hidden_states;
        CHECK_CLOSE(every_16th(hidden_states), Matrix(xt::view(pinned, layer + 1)), 1e-5);
    }
    CHECK_CLOSE(thinned(model.logits(hidden_states)), expected_logits("demo"), 1e-5);
    CHECK_CLOSE(model(ids), model.logits(hidden_states), 0);

    init_normal(model, Real(0.02), generator);
    CHECK_CLOSE(thinned(model(ids)), expected_logits("demo_small"), 1e-5);
}

TEST_CASE("run_layers runs a layer type of its own: sliding-window attention without RoPE") {
    Config config = validate_model(small_config());
    Generator generator(3);
    const Model model = make_model(config, generator);
    std::vector<SlidingWindowLayer> layers;
    for (const std::size_t window : {2, 3, 100})
        layers.push_back({make_attention_layer(config, generator), window});
    const Tensor3 embeddings = model.embed(small_ids);

    // Collect everything, and compare with the layers applied one by one.
    std::vector<LayerCache>* const no_caches = nullptr;
    const DecoderOutput output =
        run_layers(layers, embeddings, NoInputs{}, no_caches, {true, true});
    REQUIRE(output.hidden_states.size() == 4);
    REQUIRE(output.attentions.size() == 3);
    Tensor3 hidden_states = embeddings;
    for (std::size_t n = 0; n < 3; ++n) {
        CHECK_CLOSE(output.hidden_states[n], hidden_states, 0);
        const auto [next, attentions] = layers[n](hidden_states, NoInputs{});
        CHECK_CLOSE(output.attentions[n], attentions, 0);
        hidden_states = next;
    }
    CHECK_CLOSE(output.hidden_states[3], hidden_states, 0);
    CHECK_CLOSE(output.last_hidden_state, hidden_states, 0);
    const DecoderOutput last_only = run_layers(layers, embeddings, NoInputs{});
    CHECK_CLOSE(last_only.last_hidden_state, hidden_states, 0);
    CHECK((last_only.hidden_states.empty() && last_only.attentions.empty()));

    // With a cache per layer, token by token: the same hidden states.
    std::vector<LayerCache> caches(3);
    for (std::size_t t = 0; t < 5; ++t)
        CHECK_CLOSE(run_layers(layers, tokens(embeddings, t, t + 1), NoInputs{}, &caches)
                        .last_hidden_state,
                    tokens(hidden_states, t, t + 1), 1e-5);

    // Between embed and logits of a model: windows of 2 and 3 tokens see 4 tokens in all.
    layers.pop_back();
    const auto logits = [&](const IdMatrix& ids) {
        return model.logits(run_layers(layers, model.embed(ids), NoInputs{}).last_hidden_state);
    };
    IdMatrix changed = small_ids;
    changed(0, 0) = 7;
    const Tensor3 before = logits(small_ids), after = logits(changed);
    CHECK_CLOSE(tokens(after, 4, 5), tokens(before, 4, 5), 0);
    CHECK_FALSE(difference(tokens(after, 3, 4), tokens(before, 3, 4), 1e-5).empty());
}

TEST_CASE("run_layers runs layers without attention, with inputs and a cache of their own") {
    const std::vector<RunningSumLayer> layers(2);
    const ScaledSumInputs inputs{Real(0.5)};
    const Tensor3 embeddings{{{2}, {4}, {6}}};  // (1, 3, 1)

    // Layer 0 adds half of 2, 6, 12; layer 1 half of the sums of 3, 7, 12.
    const Tensor3 expected{{{4.5}, {12}, {23}}};
    std::vector<RunningSum> caches(2);
    const DecoderOutput output = run_layers(layers, embeddings, inputs, &caches, {true, true});
    CHECK_CLOSE(output.hidden_states[1], (Tensor3{{{3}, {7}, {12}}}), 0);
    CHECK_CLOSE(output.last_hidden_state, expected, 0);
    CHECK(output.attentions.size() == 2);
    CHECK_CLOSE(caches[1].sum, (Tensor3{{{22}}}), 0);

    std::vector<RunningSum> stepwise(2);
    for (std::size_t t = 0; t < 3; ++t)
        CHECK_CLOSE(run_layers(layers, tokens(embeddings, t, t + 1), inputs, &stepwise)
                        .last_hidden_state,
                    tokens(expected, t, t + 1), 0);
}

TEST_CASE("run_layers states how many caches and layers there are if they differ") {
    std::vector<RunningSum> caches(3);
    CHECK_THROWS_WITH_AS(run_layers(std::vector<RunningSumLayer>(2), Tensor3{{{1}}},
                                    ScaledSumInputs{1}, &caches),
                         "decoder: 3 caches for 2 layers", ValueError);
}

TEST_CASE("forward with a KV cache equals forward without one, token by token and in chunks") {
    for (const std::string name : {"llama", "qwen2", "qwen3", "mistral", "mini_llm"}) {
        INFO(name);
        const Model model = models::load_model(checkpoint(name));
        const ModelOutput whole = model.forward(small_ids, {.output_attentions = true});
        CHECK_CLOSE(whole.logits, expected_logits(name), 1e-5);
        for (const std::vector<std::size_t>& chunks :
             {std::vector<std::size_t>{1, 1, 1, 1, 1}, {2, 3}, {3, 1, 1}, {5}}) {
            KVCache cache = make_cache(model, 5);
            std::size_t first = 0;
            for (const std::size_t size : chunks) {
                const std::size_t last = first + size;
                const ModelOutput chunk =
                    model.forward(tokens(small_ids, first, last),
                                  {.cache = &cache, .output_attentions = true});
                CHECK(cache.seq_len == last);
                CHECK_CLOSE(chunk.logits, tokens(whole.logits, first, last), 1e-5);
                REQUIRE(chunk.attentions.size() == 2);
                for (std::size_t n = 0; n < 2; ++n)
                    CHECK_CLOSE(chunk.attentions[n],
                                weights_of(whole.attentions[n], first, last), 1e-5);
                first = last;
            }
            CHECK(dims(cache.layers[1].keys) ==
                  std::array<std::size_t, 4>{2, 2, 5, model.config.head_dim});
        }
    }
}

TEST_CASE("forward with LogitsToKeep::last returns the logits of the last position alone") {
    const Model model = models::load_model(checkpoint("qwen3"));
    const Tensor3 logits = model(small_ids);
    const Tensor3 last =
        model.forward(small_ids, {.logits_to_keep = LogitsToKeep::last}).logits;
    CHECK(dims(last) == std::array<std::size_t, 3>{2, 1, 17});
    CHECK_CLOSE(last, tokens(logits, 4, 5), 1e-6);

    // With a cache, after a chunk of three tokens.
    KVCache cache = make_cache(model, 5);
    const ForwardOptions options{.cache = &cache, .logits_to_keep = LogitsToKeep::last};
    CHECK_CLOSE(model.forward(tokens(small_ids, 0, 3), options).logits, tokens(logits, 2, 3),
                1e-5);
    CHECK_CLOSE(model.forward(tokens(small_ids, 3, 5), options).logits, tokens(logits, 4, 5),
                1e-5);
}

TEST_CASE("forward that fails leaves the KV cache unchanged") {
    Generator generator(1);
    const Model model = make_model(small_config(), generator);
    KVCache cache = make_cache(model, 4);
    model.forward(tokens(small_ids, 0, 3), {.cache = &cache});
    const KVCache before = cache;
    const auto fails = [&](const IdMatrix& ids) {
        CHECK_THROWS_AS(model.forward(ids, {.cache = &cache}), ValueError);
        check_same(cache, before);
    };
    fails(IdMatrix{{5}, {17}});      // an id outside the vocabulary
    fails(tokens(small_ids, 3, 5));  // more positions than the cache has
    fails(IdMatrix{{5}});            // another batch size
    model.forward(tokens(small_ids, 3, 4), {.cache = &cache});
    CHECK(cache.seq_len == 4);
    CHECK_THROWS_AS(model.forward(tokens(small_ids, 4, 5), {.cache = &cache}), ValueError);

    CHECK_NOTHROW(make_cache(model, 64));
    CHECK_THROWS_WITH_AS(make_cache(model, 65),
                         "model: a sequence of 65 tokens exceeds max_position_embeddings of 64",
                         ValueError);
}

TEST_CASE("output_hidden_states: the embeddings, then the residual stream after each layer") {
    const Model model = models::load_model(checkpoint("qwen2"));
    const ModelOutput output =
        model.forward(small_ids, {.output_hidden_states = true, .output_attentions = true});
    const std::vector<Tensor3>& hidden_states = output.hidden_states;
    REQUIRE(hidden_states.size() == 3);
    REQUIRE(output.attentions.size() == 2);
    CHECK_CLOSE(hidden_states[0], model.embed(small_ids), 0);
    const AttentionInputs inputs = causal_attention_inputs(model.rotary_table(5), 2, 5);
    for (std::size_t n = 0; n < 2; ++n) {
        const auto [next, attentions] = model.layers[n](hidden_states[n], inputs);
        CHECK_CLOSE(hidden_states[n + 1], next, 0);
        CHECK_CLOSE(output.attentions[n], attentions, 0);
        CHECK(dims(attentions) == std::array<std::size_t, 4>{2, 4, 5, 5});
    }
    CHECK_CLOSE(model.logits(hidden_states[2]), output.logits, 0);

    // The last one is not normalized: logits() applies the final norm.
    CHECK_FALSE(difference(model.norm(hidden_states[2]), hidden_states[2], 0.1).empty());

    // Each is returned only if it is asked for.
    const ModelOutput logits_only = model.forward(small_ids, {});
    CHECK_CLOSE(logits_only.logits, output.logits, 0);
    CHECK((logits_only.hidden_states.empty() && logits_only.attentions.empty()));
    CHECK(model.forward(small_ids, {.output_hidden_states = true}).attentions.empty());
    CHECK(model.forward(small_ids, {.output_attentions = true}).hidden_states.empty());
}

TEST_CASE("an untied head has a matrix of its own, a tied head uses embed_tokens") {
    Config config = small_config();
    config.tie_word_embeddings = false;
    Generator generator(1);
    Model model = make_model(config, generator);
    REQUIRE(model.lm_head.has_value());
    CHECK(dims(*model.lm_head) == std::array<std::size_t, 2>{17, 16});
    const Tensor3 untied = model(small_ids);
    model.lm_head = model.embed_tokens;
    const Tensor3 copied = model(small_ids);
    model.lm_head.reset();
    CHECK_CLOSE(model(small_ids), copied, 0);
    CHECK_FALSE(difference(untied, copied, 0.1).empty());
}

TEST_CASE("logits_scaling divides the logits") {
    Generator generator(1);
    Model model = make_model(small_config(), generator);
    const Tensor3 logits = model(small_ids);
    model.logits_scaling = 8;
    CHECK_CLOSE(model(small_ids), Tensor3(logits / Real(8)), 1e-6);
}

TEST_CASE("learned positions: row t for token t, and those after the cache with one") {
    Generator generator(1);
    Model model = make_model(small_config(), generator);
    model.embed_positions = counting({6, 16}) / Real(50);
    const Tensor3 embeddings =
        model.forward(small_ids, {.output_hidden_states = true}).hidden_states.front();
    for (const auto& [b, t, c] : every_index(2, 5, 16))
        CHECK(embeddings(b, t, c) == doctest::Approx(model.embed_tokens(small_ids(b, t), c) +
                                                     (*model.embed_positions)(t, c)));
    KVCache cache = make_cache(model, 5);
    const Tensor3 logits = model(small_ids);
    model.forward(tokens(small_ids, 0, 2), {.cache = &cache});
    CHECK_CLOSE(model.forward(tokens(small_ids, 2, 5), {.cache = &cache}).logits,
                tokens(logits, 2, 5), 1e-5);
}

TEST_CASE("init_normal initializes every matrix again, with the given standard deviation") {
    Config config = small_config();
    config.tie_word_embeddings = false;
    Generator generator(1);
    Model model = make_model(config, generator);
    init_normal(model, Real(0.02), generator);
    const GatedMlp& mlp = model.layers[1].mlp;
    const Projections& projections = model.layers[1].self_attn.projections;
    for (const Matrix* matrix : std::initializer_list<const Matrix*>{
             &model.embed_tokens, &projections.q_proj.weight, &projections.k_proj.weight,
             &projections.v_proj.weight, &projections.o_proj.weight, &mlp.gate_proj.weight,
             &mlp.up_proj.weight, &mlp.down_proj.weight, &*model.lm_head}) {
        double squares = 0;
        for (const Real weight : *matrix) squares += double(weight) * double(weight);
        const double deviation = std::sqrt(squares / static_cast<double>(matrix->size()));
        CHECK(std::abs(deviation / 0.02 - 1) < 0.25);
    }
}

TEST_CASE("make_model converts interleaved q_proj and k_proj to split halves, head by head") {
    const Config config = small_config();
    Generator generator(4), same(4);
    const Model initialized = make_model(config, generator);
    const Model converted = make_model(config, same, RopeLayout::interleaved);
    const Projections &from = initialized.layers[1].self_attn.projections,
                      &to = converted.layers[1].self_attn.projections;
    CHECK_CLOSE(to.q_proj.weight, interleaved_to_split_half(from.q_proj, 4).weight, 0);
    CHECK_CLOSE(to.k_proj.weight, interleaved_to_split_half(from.k_proj, 2).weight, 0);
    CHECK_CLOSE(to.v_proj.weight, from.v_proj.weight, 0);
}

TEST_CASE("make_model initializes no bias of o_proj for Qwen2, as PyTorch with bias=False") {
    Config config = small_config();
    config.attention_bias = AttentionBias::qkv;
    Generator generator(6), same(6);
    const Model model = make_model(config, generator);
    const Projections& projections = model.layers[0].self_attn.projections;

    // The same initializations one by one: embedding, q, k, v with biases, o without, gate.
    const Matrix embed_tokens = randn({17, 16}, same);
    const Linear q_proj = make_linear(16, 16, true, same);
    const Linear k_proj = make_linear(16, 8, true, same);
    const Linear v_proj = make_linear(16, 8, true, same);
    const Linear o_proj = make_linear(16, 16, false, same);
    const Linear gate_proj = make_linear(16, 20, false, same);
    REQUIRE((projections.q_proj.bias && projections.k_proj.bias && projections.v_proj.bias));
    CHECK_FALSE(projections.o_proj.bias.has_value());
    CHECK_CLOSE(model.embed_tokens, embed_tokens, 0);
    CHECK_CLOSE(*projections.v_proj.bias, *v_proj.bias, 0);
    CHECK_CLOSE(projections.o_proj.weight, o_proj.weight, 0);
    CHECK_CLOSE(model.layers[0].mlp.gate_proj.weight, gate_proj.weight, 0);
}

TEST_CASE("an unknown id, a sequence that is too long and an empty one are rejected") {
    Generator generator(1);
    const Model model = make_model(small_config(), generator);
    CHECK_THROWS_WITH_AS(model(IdMatrix{{3, 17}}),
                         "model: there is no token 17 in a vocabulary of 17", ValueError);
    CHECK_THROWS_AS(model(IdMatrix{{-1}}), ValueError);
    CHECK_THROWS_WITH_AS(model(IdMatrix(xt::zeros<Id>({1, 0}))),
                         "model: input ids of (1, 0) hold no token", ValueError);
    CHECK_THROWS_WITH_AS(model(IdMatrix(xt::zeros<Id>({1, 65}))),
                         "model: a sequence of 65 tokens exceeds max_position_embeddings of 64",
                         ValueError);
    CHECK_NOTHROW(model(IdMatrix(xt::zeros<Id>({1, 64}))));
    CHECK_NOTHROW(check_input(model.config, IdMatrix(xt::zeros<Id>({65, 1}))));
    CHECK_THROWS_AS(check_input(model.config, IdMatrix(xt::zeros<Id>({1, 65}))), ValueError);
    CHECK(mini_llm_config().max_position_embeddings == 2048);
}

TEST_CASE("validate_model rejects a size of 0 and an odd head_dim, and fills in head_dim") {
    Config smallest = small_config();
    smallest.vocab_size = smallest.intermediate_size = smallest.num_hidden_layers = 1;
    CHECK_NOTHROW(validate_model(smallest));
    CHECK(validate_model(small_config()).head_dim == 4);
    Config empty = small_config();
    empty.num_hidden_layers = 0;
    CHECK_THROWS_AS(validate_model(empty), ValueError);
    empty = small_config();
    empty.intermediate_size = 0;
    CHECK_THROWS_AS(validate_model(empty), ValueError);
    empty = small_config();
    empty.vocab_size = 0;
    CHECK_THROWS_AS(count_parameters(empty), ValueError);
    CHECK_THROWS_AS(validate_model(Config{}), ValueError);
    Config odd = small_config();
    odd.head_dim = 5;
    CHECK_THROWS_WITH_AS(validate_model(odd), "config: head_dim must be even for RoPE, not 5",
                         ValueError);
}
