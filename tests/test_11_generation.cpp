#include <cstdlib>
#include <cstring>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/11_generation/inspection.hpp"
#include "chapters/10_tokenizer/tokenizer_json.hpp"
#include "common/files/unicode.hpp"
#include "tests/check.hpp"
#include "tests/files.hpp"

using namespace llm;

namespace {

const Vector few_logits{1, 3, 2, 3, -1};
const Real none = -infinity;

Vector pinned(const std::string& name) { return fixture<1>("11_generation/" + name); }

Vector softmaxed(const Vector& logits) {
    return reshape(softmax(reshape(logits, {1, logits.size()})), {logits.size()});
}

Model checkpoint(const std::string& name) {
    return load_model(fixture_path("09_full_model/" + name));
}

// How often each of n tokens is drawn in 20000 tries.
Vector shares(const Vector& logits) {
    Generator generator(5);
    Vector counted = xt::zeros<Real>({logits.size()});
    for (int i = 0; i < 20000; ++i)
        counted(static_cast<std::size_t>(draw(logits, generator))) += 1.0f / 20000;
    return counted;
}

Sampling greedy() {
    Sampling sampling;
    sampling.temperature = 0;
    return sampling;
}

// Logits of the model for a part of the ids, read one part after the other.
Matrix in_parts(const Model& model, const IdMatrix& ids,
                const std::vector<std::size_t>& parts) {
    KvCache cache = make_cache(model, ids.shape(1));
    Matrix logits;
    std::size_t at = 0;
    for (const std::size_t part : parts) {
        logits = next_logits(
            model, IdMatrix(xt::view(ids, xt::all(), xt::range(at, at + part))), cache);
        at += part;
        CHECK(cache.length == at);
    }
    return logits;
}

Matrix last_of(const Tensor3& logits) {
    return xt::view(logits, xt::all(), logits.shape(1) - 1);
}

}  // namespace

TEST_CASE("temperature: below 1 the gaps between logits grow, and it must be above 0") {
    CHECK_CLOSE(with_temperature(few_logits, 0.5f), (Vector{2, 6, 4, 6, -2}), 0);
    CHECK_CLOSE(with_temperature(few_logits, 2), (Vector{0.5, 1.5, 1, 1.5, -0.5}), 0);
    CHECK_THROWS_WITH_AS(with_temperature(few_logits, 0),
                         "sampling: the temperature must be above 0", ShapeError);
    CHECK_THROWS_AS(with_temperature(few_logits, -1), ShapeError);
}

TEST_CASE("top-k keeps the k likeliest, of equals the first") {
    CHECK_CLOSE(keep_top_k(few_logits, 1), (Vector{none, 3, none, none, none}), 0);
    CHECK_CLOSE(keep_top_k(few_logits, 3), (Vector{none, 3, 2, 3, none}), 0);
    CHECK_CLOSE(keep_top_k(few_logits, 5), few_logits, 0);
    CHECK_CLOSE(keep_top_k(few_logits, 9), few_logits, 0);
    CHECK_THROWS_AS(keep_top_k(few_logits, 0), ShapeError);
    const Vector equal = keep_top_k(xt::zeros<Real>({40}), 7);
    for (std::size_t token = 0; token < 40; ++token)
        CHECK(equal(token) == (token < 7 ? 0 : none));
}

TEST_CASE("top-p keeps the fewest tokens that reach p, and always the first") {
    // Probabilities of 1/2, 1/8, 1/4 and 1/8: all sums are exact.
    const Vector logits{std::log(4.0f), 0, std::log(2.0f), 0};
    const Vector two{logits(0), none, logits(2), none};
    CHECK_CLOSE(keep_top_p(logits, 0), (Vector{logits(0), none, none, none}), 0);
    CHECK_CLOSE(keep_top_p(logits, 0.4f), (Vector{logits(0), none, none, none}), 0);
    CHECK_CLOSE(keep_top_p(logits, 0.6f), two, 0);
    CHECK_CLOSE(keep_top_p(logits, 0.74f), two, 0);
    CHECK_CLOSE(keep_top_p(logits, 0.8f), (Vector{logits(0), 0, logits(2), none}), 0);
    CHECK_CLOSE(keep_top_p(logits, 1), logits, 0);
    CHECK_CLOSE(keep_top_p(Vector{1, 1, 1, 1}, 0.5f), (Vector{1, 1, none, none}), 0);
    CHECK_THROWS_AS(keep_top_p(logits, -0.1f), ShapeError);
    const Vector many = xt::zeros<Real>({100000});  // their sum must not lose what they add
    CHECK_CLOSE(keep_top_p(many, 1), many, 0);
    CHECK_THROWS_AS(keep_top_p(logits, 1.1f), ShapeError);
}

TEST_CASE("min-p keeps what is at least p times as likely as the likeliest") {
    const Vector logits{std::log(4.0f), 0, std::log(2.0f), 0};
    CHECK_CLOSE(keep_min_p(logits, 0), logits, 0);
    CHECK_CLOSE(keep_min_p(logits, 0.24f), logits, 0);
    CHECK_CLOSE(keep_min_p(logits, 0.3f), (Vector{logits(0), none, logits(2), none}), 0);
    CHECK_CLOSE(keep_min_p(logits, 0.6f), (Vector{logits(0), none, none, none}), 0);
    CHECK_CLOSE(keep_min_p(few_logits, 1), (Vector{none, 3, none, 3, none}), 0);
    CHECK_THROWS_AS(keep_min_p(logits, -0.1f), ShapeError);
    CHECK_THROWS_AS(keep_min_p(logits, 1.1f), ShapeError);
}

TEST_CASE("the repetition penalty makes what was seen less likely, once, whatever its sign") {
    CHECK_CLOSE(penalize_repetition(few_logits, {1, 4, 1, 1}, 2), (Vector{1, 1.5, 2, 3, -2}),
                0);
    CHECK_CLOSE(penalize_repetition(few_logits, {}, 2), few_logits, 0);
    CHECK_THROWS_WITH_AS(penalize_repetition(few_logits, {5}, 2),
                         "sampling: there is no token 5 among 5", ShapeError);
    CHECK_THROWS_AS(penalize_repetition(few_logits, {-1}, 2), ShapeError);
    CHECK_THROWS_AS(penalize_repetition(few_logits, {1}, 0), ShapeError);
    CHECK_THROWS_AS(penalize_repetition(few_logits, {1}, -2), ShapeError);
}

TEST_CASE("every rule leaves what Hugging Face's leaves") {
    const Vector logits = pinned("logits");
    CHECK_CLOSE(with_temperature(logits, 0.7f), pinned("temperature"), 1e-6);
    CHECK_CLOSE(keep_top_k(logits, 7), pinned("top_k"), 1e-6);
    CHECK_CLOSE(keep_top_p(logits, 0.8f), pinned("top_p"), 1e-6);
    CHECK_CLOSE(keep_min_p(logits, 0.1f), pinned("min_p"), 1e-6);
    CHECK_CLOSE(penalize_repetition(logits, {3, 7, 7, 21, 39}, 1.3f), pinned("penalty"), 1e-6);
}

TEST_CASE("next_token: all rules, in Hugging Face's order") {
    const Vector logits = pinned("logits");
    const Vector expected = pinned("everything");
    const Sampling sampling{1.5f, 12, 0.9f, 0.35f, 1.3f};
    Generator generator(8);
    Vector counted = xt::zeros<Real>({logits.size()});
    for (int i = 0; i < 20000; ++i)
        counted(static_cast<std::size_t>(
            next_token(logits, {3, 7, 7, 21, 39}, sampling, generator))) += 1.0f / 20000;
    for (std::size_t token = 0; token < logits.size(); ++token)
        CHECK((counted(token) > 0) == (expected(token) > 0));
    CHECK_CLOSE(counted, expected, 0.015);
}

TEST_CASE("next_token: the settings that change nothing change nothing, one at a time") {
    const Vector logits{2, 1, 1.5, 0};
    Generator plain(3);
    std::vector<Id> drawn;
    for (int i = 0; i < 50; ++i) drawn.push_back(next_token(logits, {}, Sampling(), plain));
    for (const Sampling& sampling :
         {Sampling{1, 4, 1, 0, 1}, Sampling{1, 0, 1, 0, 1}, Sampling{1, 100, 1, 0, 1}}) {
        Generator generator(3);
        for (const Id id : drawn) CHECK(next_token(logits, {}, sampling, generator) == id);
    }

    Generator generator(1);
    const auto only_first = [&](const Sampling& sampling, const std::vector<Id>& seen) {
        for (int i = 0; i < 50; ++i)
            if (next_token(logits, seen, sampling, generator) != 0) return false;
        return true;
    };
    CHECK(only_first({0, 0, 1, 0, 1}, {}));
    CHECK(only_first({1, 1, 1, 0, 1}, {}));
    CHECK(only_first({1, 0, 0.1f, 0, 1}, {}));
    CHECK(only_first({1, 0, 1, 0.9f, 1}, {}));
    CHECK_FALSE(only_first({1, 0, 1, 0, 1}, {}));
    CHECK(next_token(logits, {0}, {0, 0, 1, 0, 2}, generator) == 2);
}

TEST_CASE("likeliest is the first of the largest") {
    CHECK(likeliest(few_logits) == 1);
    CHECK(likeliest(Vector{none, -5, none}) == 1);
    CHECK_THROWS_WITH_AS(likeliest(Vector{none, none}), "sampling: no token is possible",
                         ShapeError);
}

TEST_CASE("draw: each token as often as its probability says, the impossible never") {
    const Vector logits{0, 1, none, 2, -1};
    const Vector counted = shares(logits);
    CHECK(counted(2) == 0);
    CHECK_CLOSE(counted, softmaxed(logits), 0.01);
    CHECK_CLOSE(shares(Vector{none, none, 7}), (Vector{0, 0, 1}), 1e-3);
}

TEST_CASE("draw: one uniform number a token, laid along the probabilities") {
    const Vector logits{0, 0, 0, 0};
    Generator generator(11), same(11);
    for (int i = 0; i < 100; ++i)
        CHECK(draw(logits, generator) == static_cast<Id>(same.next_uniform() * 4));
}

TEST_CASE("draw and next_token refuse logits from which nothing can be drawn") {
    Generator generator(1);
    CHECK_THROWS_WITH_AS(draw(Vector{none, none}, generator), "sampling: no token is possible",
                         ShapeError);
    for (const Real bad : {infinity, std::nanf("")})
        CHECK_THROWS_WITH_AS(next_token(Vector{1, bad}, {}, Sampling(), generator),
                             "sampling: a logit is infinite or not a number", ShapeError);
}

TEST_CASE(
    "next_token: top-k is cut before top-p, and a tiny temperature is refused in the end") {
    // Of 40, 30, 20 and 10 percent top-k leaves 57 and 43: top-p 0.55 then keeps the first
    // alone.
    const Vector logits{std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
    Generator generator(2);
    for (int i = 0; i < 50; ++i)
        CHECK(next_token(logits, {}, {.top_k = 2, .top_p = 0.55f}, generator) == 0);
    CHECK_THROWS_AS(next_token(Vector{1, 2}, {}, {.temperature = 1e-39f}, generator),
                    ShapeError);
}

TEST_CASE("placement_behind: positions go on, and a new token sees all that came before it") {
    const Model model = checkpoint("qwen3");
    KvCache cache = make_cache(model, 10);
    cache.length = 4;
    const Placement three = placement_behind(cache, 2, 3);
    CHECK_CLOSE(three.positions, (IdMatrix{{4, 5, 6}, {4, 5, 6}}), 0);
    const Matrix expected{
        {0, 0, 0, 0, 0, none, none}, {0, 0, 0, 0, 0, 0, none}, {0, 0, 0, 0, 0, 0, 0}};
    for (const std::size_t b : {0, 1}) CHECK_CLOSE(head_of(three.mask, b, 0), expected, 0);
    CHECK_CLOSE(head_of(placement_behind(cache, 1, 1).mask, 0, 0), (Matrix{{0, 0, 0, 0, 0}}),
                0);

    cache.length = 0;
    const Placement all = placement_behind(cache, 2, 5), plain = model.placement(2, 5);
    CHECK_CLOSE(all.positions, plain.positions, 0);
    CHECK_CLOSE(all.mask, plain.mask, 0);
    CHECK_CLOSE(Matrix(xt::view(all.table.cos, xt::range(0, 5))), plain.table.cos, 0);
    CHECK_CLOSE(Matrix(xt::view(all.table.sin, xt::range(0, 5))), plain.table.sin, 0);

    cache.length = 8;
    CHECK_NOTHROW(placement_behind(cache, 1, 2));
    CHECK_THROWS_WITH_AS(placement_behind(cache, 1, 3),
                         "cache: 3 tokens behind 8 do not fit into 10 positions", ShapeError);
    CHECK_THROWS_AS(make_cache(model, 65), ShapeError);
}

TEST_CASE(
    "logits with a cache are those without, whatever the parts, for every kind of model") {
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

TEST_CASE("the cache holds rotated keys and values of all tokens, per key head and sequence") {
    const Model model = checkpoint("qwen3");  // H 4, Hkv 2, D 6
    const IdMatrix ids{{3, 16, 0}, {9, 1, 2}};
    KvCache cache = make_cache(model, 9);
    next_logits(model, IdMatrix{{3, 16}, {9, 1}}, cache);
    next_logits(model, IdMatrix{{0}, {2}}, cache);
    REQUIRE(cache.layers.size() == 2);

    const AttentionLayer& attention = model.layers[0].self_attn;
    const Tensor3 hidden = model.layers[0].attention_norm(model.embed(ids));
    const Placement placement = model.placement(2, 3);
    const Tensor4 keys =
        attention.placed(split_heads(attention.projections.k_proj(hidden), 2), attention.k_norm,
                         placement.table, placement.positions);
    CHECK_CLOSE(cache.layers[0].keys, keys, 1e-5);
    CHECK_CLOSE(cache.layers[0].values, split_heads(attention.projections.v_proj(hidden), 2),
                1e-5);
    CHECK(cache.layers[1].keys.shape() == std::array<std::size_t, 4>{2, 2, 3, 6});
}

TEST_CASE("attend: weights over all tokens, context as the attention layer's") {
    const Model model = checkpoint("qwen3");
    const AttentionLayer& attention = model.layers[0].self_attn;
    Generator generator(2);
    const Tensor3 hidden = randn({2, 5, 16}, generator);
    KvCache cache = make_cache(model, 5);
    attend(attention, Tensor3(xt::view(hidden, xt::all(), xt::range(0, 3))),
           placement_behind(cache, 2, 3), cache.layers[0]);
    cache.length = 3;
    const Attention two =
        attend(attention, Tensor3(xt::view(hidden, xt::all(), xt::range(3, 5))),
               placement_behind(cache, 2, 2), cache.layers[0]);
    CHECK(two.weights.shape() == std::array<std::size_t, 4>{2, 4, 2, 5});

    const Placement whole = model.placement(2, 5);
    const Tensor3 expected = attention(hidden, whole.table, whole.positions, whole.mask);
    CHECK_CLOSE(attention.projections.o_proj(merge_heads(two.context)),
                Tensor3(xt::view(expected, xt::all(), xt::range(3, 5))), 1e-5);
}

TEST_CASE("look_inside: the stream and the weights of every layer are the model's") {
    const Model model = checkpoint("qwen3");
    const std::vector<Id> ids = {3, 16, 0, 5};
    const Inside inside = look_inside(model, ids);
    REQUIRE(inside.stream.size() == 3);
    REQUIRE(inside.attention.size() == 2);
    CHECK_CLOSE(model.logits(inside.stream[2]), model(one_sequence(ids)), 1e-5);
    CHECK_CLOSE(inside.stream[0], model.embed(one_sequence(ids)), 0);

    // What the heads of layer 1 took, mixed and added, and the MLP: the stream behind it.
    const PreNormBlock& block = model.layers[1];
    const Tensor3 attended = inside.stream[1] + block.self_attn.projections.o_proj(
                                                    merge_heads(inside.attention[1].context));
    CHECK_CLOSE(attended + block.mlp(block.ffn_norm(attended)), inside.stream[2], 1e-5);

    const Matrix weights = weights_of_query(inside.attention[1], 2);  // (H, 3)
    CHECK(weights.shape() == std::array<std::size_t, 2>{4, 3});
    for (const auto& [h, s] : every_index(4, 3))
        CHECK(weights(h, s) == inside.attention[1].weights(0, h, 2, s));
    const Vector expected = softmaxed(Vector(xt::view(model(one_sequence(ids)), 0, 2)));
    CHECK_CLOSE(logit_lens(model, inside.stream[2], 2), expected, 1e-5);
}

TEST_CASE("a refused step leaves the cache as it was") {
    const Model model = checkpoint("qwen3");
    KvCache cache = make_cache(model, 4);
    next_logits(model, IdMatrix{{3, 16}, {9, 1}}, cache);
    const Tensor4 keys = cache.layers[0].keys;
    CHECK_THROWS_AS(next_logits(model, IdMatrix{{17}, {0}}, cache), ShapeError);
    CHECK_THROWS_AS(next_logits(model, IdMatrix{{1, 2, 3}, {1, 2, 3}}, cache), ShapeError);
    CHECK_THROWS_WITH_AS(next_logits(model, IdMatrix{{1}}, cache),
                         "cache: it holds (2, 2, 2, 6), (1, 2, 1, 6) does not go with it",
                         ShapeError);
    CHECK_THROWS_AS(next_logits(model, xt::zeros<Id>({2, 0}), cache), ShapeError);
    LayerCache other_heads{xt::zeros<Real>({2, 1, 2, 6}), xt::zeros<Real>({2, 1, 2, 6})};
    const Tensor3 hidden = model.embed(IdMatrix{{3}, {4}});
    CHECK_THROWS_AS(
        attend(model.layers[0].self_attn, hidden, placement_behind(cache, 2, 1), other_heads),
        ShapeError);
    LayerCache other_width{xt::zeros<Real>({2, 2, 2, 4}), xt::zeros<Real>({2, 2, 2, 4})};
    CHECK_THROWS_WITH_AS(
        attend(model.layers[0].self_attn, hidden, placement_behind(cache, 2, 1), other_width),
        "cache: it holds (2, 2, 2, 4), (2, 2, 1, 6) does not go with it", ShapeError);
    CHECK(cache.length == 2);
    CHECK_CLOSE(cache.layers[0].keys, keys, 0);
    next_logits(model, IdMatrix{{3}, {4}}, cache);
    CHECK(cache.length == 3);
}

TEST_CASE("generate: the likeliest continuation is PyTorch's, with and without a cache") {
    const Model model = checkpoint("qwen3");
    const IdMatrix expected = id_fixture<2>("11_generation/greedy");
    const std::vector<Id> prompt(expected.begin(), expected.begin() + 4);
    const std::vector<Id> rest(expected.begin() + 4, expected.end());
    for (const bool use_cache : {true, false}) {
        Generator generator(1);
        const Writing writing{greedy(), rest.size(), {}, use_cache};
        CHECK(generate(model, prompt, writing, generator) == rest);
    }
}

TEST_CASE("generate: seeded, and the same with and without a cache") {
    const Model model = checkpoint("mistral");
    const auto drawn = [&](std::uint32_t seed, bool use_cache) {
        Generator generator(seed);
        return generate(model, {1, 2}, {Sampling(), 30, {}, use_cache}, generator);
    };
    CHECK(drawn(7, true) == drawn(7, true));
    CHECK(drawn(7, true) == drawn(7, false));
    CHECK(drawn(7, true) != drawn(8, true));
}

TEST_CASE("generate: a penalty looks at the prompt and at what was written") {
    const Model model = checkpoint("mistral");
    Sampling never_twice = greedy();
    never_twice.repetition_penalty = 1e6f;
    Generator generator(1);
    std::vector<Id> ids = generate(model, {3, 5}, {never_twice, 12, {}, true}, generator);
    ids.insert(ids.end(), {3, 5});
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
}

TEST_CASE("generate ends after so many tokens, at an end token, or at the last position") {
    const Model model = checkpoint("qwen3");
    const IdMatrix greedy_ids = id_fixture<2>("11_generation/greedy");
    const std::vector<Id> prompt(greedy_ids.begin(), greedy_ids.begin() + 4);
    Generator generator(1);
    std::vector<Id> heard;
    const auto hear = [&](Id id) { heard.push_back(id); };

    CHECK(generate(model, prompt, {greedy(), 3, {}, true}, generator, hear) ==
          std::vector<Id>{7, 15, 13});
    CHECK(heard == std::vector<Id>{7, 15, 13});
    // Each is heard before the next one is computed.
    const auto stop = [&](Id id) {
        if (id == 15) throw std::runtime_error("enough");
    };
    const double spent = generator.next_uniform();
    CHECK_THROWS_WITH(generate(model, prompt, {greedy(), 9, {}, true}, generator, stop),
                      "enough");
    CHECK(spent < 1);
    CHECK(generate(model, prompt, {greedy(), 9, {13, 11}, true}, generator) ==
          std::vector<Id>{7, 15});
    CHECK(generate(model, prompt, {greedy(), 0, {}, true}, generator).empty());
    CHECK(generate(model, prompt, {greedy(), 1000, {}, true}, generator).size() == 60);

    CHECK_THROWS_WITH_AS(generate(model, {}, {greedy(), 3, {}, true}, generator),
                         "generate: there is no token to begin with", ShapeError);
    for (const std::size_t count : {0, 3}) {
        CHECK_THROWS_AS(generate(model, {17}, {greedy(), count, {}, true}, generator),
                        ShapeError);
        CHECK_THROWS_AS(generate(model, {}, {greedy(), count, {}, true}, generator),
                        ShapeError);
    }
    const std::size_t endless = static_cast<std::size_t>(-1);
    CHECK(generate(model, prompt, {greedy(), endless, {}, true}, generator).size() == 60);
    CHECK_THROWS_AS(generate(model, std::vector<Id>(65, 1), {greedy(), 3, {}, true}, generator),
                    ShapeError);
}

TEST_CASE("join_pairs: the lowest rank first, of equals the leftmost, until none is left") {
    // l 0, o 1, w 2, e 3, r 4; lo 5, low 6, er 7, ow 8
    const Merges merges{{{0, 1}, {0, 5}}, {{5, 2}, {1, 6}}, {{3, 4}, {2, 7}}, {{1, 2}, {3, 8}}};
    CHECK(join_pairs({0, 1, 2, 3, 4}, merges) == std::vector<Id>{6, 7});
    CHECK(join_pairs({2, 1, 2}, merges) == std::vector<Id>{2, 8});
    CHECK(join_pairs({4, 3, 3, 4, 3}, merges) == std::vector<Id>{4, 3, 7, 3});
    CHECK(join_pairs({}, merges).empty());
    CHECK(join_pairs({3}, merges) == std::vector<Id>{3});

    // With "ow" before "lo" the same word falls apart in another way.
    const Merges other{{{0, 1}, {1, 5}}, {{5, 2}, {2, 6}}, {{1, 2}, {0, 8}}};
    CHECK(join_pairs({0, 1, 2}, other) == std::vector<Id>{0, 8});

    // a a a: the left pair is joined.
    CHECK(join_pairs({9, 9, 9}, {{{9, 9}, {0, 10}}}) == std::vector<Id>{10, 9});
    CHECK(join_pairs({9, 9, 9, 9}, {{{9, 9}, {0, 10}}, {{10, 10}, {1, 11}}}) ==
          std::vector<Id>{11});
}

TEST_CASE("byte_alphabet: GPT-2's characters, all different") {
    CHECK(byte_alphabet('A') == "A");
    CHECK(byte_alphabet('~') == "~");
    CHECK(byte_alphabet('!') == "!");
    CHECK(byte_alphabet(' ') == "Ġ");
    CHECK(byte_alphabet('\n') == "Ċ");
    CHECK(byte_alphabet('\t') == "ĉ");
    CHECK(byte_alphabet(0) == "Ā");
    CHECK(byte_alphabet(0x7f) == "ġ");
    CHECK(byte_alphabet(0xa0) == "ł");
    CHECK(byte_alphabet(0xa1) == "¡");
    CHECK(byte_alphabet(0xad) == "Ń");
    CHECK(byte_alphabet(0xff) == "ÿ");
    std::set<std::string> alphabet;
    for (int byte = 0; byte < 256; ++byte)
        alphabet.insert(byte_alphabet(static_cast<unsigned char>(byte)));
    CHECK(alphabet.size() == 256);
    CHECK(byte_name(0x0a) == "<0x0A>");
    CHECK(byte_name(0xe2) == "<0xE2>");
}

TEST_CASE("tokenizers of six kinds encode and decode as Hugging Face's library does") {
    for (const std::string kind : {"gpt2", "llama3", "qwen", "smol", "llama2", "metaspace"}) {
        const std::string folder = fixture_path("11_generation/" + kind);
        const Tokenizer tokenizer = load_tokenizer(folder + "/tokenizer.json", 1000);
        const auto cases = JsonFile(folder + "/encodings.json").objects("cases");
        CHECK(cases.size() >= 35);
        for (const JsonFile& expected : cases) {
            INFO(kind, ": ", expected.text("text"));
            const std::vector<Id> ids = tokenizer.encode(expected.text("text"));
            CHECK(ids == expected.ids("ids"));
            CHECK(tokenizer.decode(ids) == expected.text("decoded"));
        }
    }
}

namespace {

// a 0, b 1, ab 2, unknown 3; no merges.
Tokenizer small_tokenizer() {
    Tokenizer tokenizer;
    tokenizer.ids = {{"a", 0}, {"b", 1}, {"ab", 2}};
    tokenizer.pieces = {"a", "b", "ab", "?"};
    tokenizer.unknown = 3;
    return tokenizer;
}

}  // namespace

TEST_CASE("a word that is a token is taken apart, unless whole words go first") {
    Tokenizer tokenizer = small_tokenizer();
    CHECK(tokenizer.encode("ab") == std::vector<Id>{0, 1});
    tokenizer.whole_words_first = true;
    CHECK(tokenizer.encode("ab") == std::vector<Id>{2});
    CHECK(tokenizer.encode("abb") == std::vector<Id>{0, 1, 1});
}

TEST_CASE("unknown characters become one token each, or one for all in a row, or an error") {
    Tokenizer tokenizer = small_tokenizer();
    CHECK(tokenizer.encode("xyax") == std::vector<Id>{3, 3, 0, 3});
    tokenizer.fuse_unknown = true;
    CHECK(tokenizer.encode("xyax") == std::vector<Id>{3, 0, 3});
    tokenizer.byte_fallback = true;  // of ü there is the first byte only
    tokenizer.ids["<0xC3>"] = 4;
    CHECK(tokenizer.encode("aü") == std::vector<Id>{0, 3});
    tokenizer.ids["<0xBC>"] = 5;
    CHECK(tokenizer.encode("aüx") == std::vector<Id>{0, 4, 5, 3});
    tokenizer.unknown = -1;
    CHECK_THROWS_WITH_AS(tokenizer.encode("ax"), "there is no token for 'x'", TextError);
}

TEST_CASE("of two added tokens that begin at one place the longer one is found") {
    Tokenizer tokenizer = small_tokenizer();
    for (const bool longer_first : {true, false}) {
        tokenizer.added = {{"<a", 7}, {"<ab>", 8}};
        if (longer_first) std::swap(tokenizer.added[0], tokenizer.added[1]);
        CHECK(tokenizer.encode("a<ab><a<b") == std::vector<Id>{0, 8, 7, 3, 1});
    }
}

TEST_CASE("steps: only the first word of a text stands at its start") {
    Tokenizer tokenizer = small_tokenizer();
    using Words = std::vector<std::string>;
    tokenizer.steps = {
        {"letters", [](const std::string& word, bool) { return characters(word); }},
        {"mark", [](const std::string& word, bool at_start) {
             return Words{(at_start ? "^" : "") + word};
         }}};
    CHECK(tokenizer.stages("abc", true) ==
          std::vector<Words>{{"abc"}, {"a", "b", "c"}, {"^a", "b", "c"}});
    CHECK(tokenizer.stages("abc", false).back() == Words{"a", "b", "c"});
}

TEST_CASE("tokenizer.json: variants that the six kinds do not have") {
    using Words = std::vector<std::string>;
    const Scratch scratch;
    const std::string gpt2 = scratch.copy_of("11_generation/gpt2") + "/tokenizer.json";
    const Tokenizer plain = load_tokenizer(gpt2, 1000);
    edit(gpt2, "\"add_prefix_space\": false", "\"add_prefix_space\": true");
    const Tokenizer with_prefix = load_tokenizer(gpt2, 1000);
    CHECK(with_prefix.encode("the cat") == plain.encode(" the cat"));
    CHECK(with_prefix.encode(" the cat") == plain.encode(" the cat"));

    // What is not said: ByteLevel cuts and puts a space in front, a token is not special.
    const std::string terse = (scratch.folder / "terse.json").string();
    overwrite(terse, replaced(replaced(content(gpt2), "use_regex", "-"), "special", "-"));
    CHECK(load_tokenizer(terse, 1000).encode("a\u00a0b") == with_prefix.encode("a\u00a0b"));
    CHECK(plain.decode(plain.encode("<|endoftext|>")).empty());
    CHECK(load_tokenizer(terse, 1000).decode(plain.encode("<|endoftext|>")) == "<|endoftext|>");
    overwrite(terse, replaced(replaced(content(gpt2), "<|endoftext|>", "<|the end|>"),
                              "special", "-"));
    const Tokenizer spaced = load_tokenizer(terse, 1000);  // a space is not in the alphabet
    CHECK(spaced.decode(spaced.encode("a<|the end|>")) == " a<|the end|>");
    overwrite(terse, replaced(content(gpt2), "add_prefix_space", "-"));
    CHECK(load_tokenizer(terse, 1000).encode("the") == with_prefix.encode("the"));

    // Nothing is put in front of nothing.
    const Tokenizer prepending =
        load_tokenizer(fixture_path("11_generation/llama2/tokenizer.json"), 1000);
    CHECK(prepending.stages("", true).back() == std::vector<std::string>{""});

    // Without bytes to fall back on, unknown characters become one <unk>, or one each.
    const std::string llama2 = scratch.copy_of("11_generation/llama2") + "/tokenizer.json";
    edit(llama2, "\"byte_fallback\": true", "\"byte_fallback\": false");
    const std::vector<Id> fused = load_tokenizer(llama2, 1000).encode("中文");
    edit(llama2, "\"fuse_unk\": true", "\"fuse_unk\": false");
    CHECK(fused.size() + 1 == load_tokenizer(llama2, 1000).encode("中文").size());

    // Removed and inverted: matches stay, gaps go. The pattern of Qwen leaves no gaps.
    const std::string qwen = scratch.copy_of("11_generation/qwen") + "/tokenizer.json";
    const std::vector<Id> expected = load_tokenizer(qwen, 1000).encode("It's 12 cats!\n");
    edit(qwen, "\"Isolated\"", "\"Removed\"");
    CHECK_THROWS_AS(load_tokenizer(qwen, 1000), FileError);
    edit(qwen, "\"invert\": false", "\"invert\": true");
    edit(qwen, "\\\\s+(?!\\\\S)|\\\\s+", "x");
    CHECK(load_tokenizer(qwen, 1000).stages("a  b", true)[2] == Words{"a", " b"});
    edit(qwen, "[\\\\r\\\\n]+|x", "[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+");
    CHECK(load_tokenizer(qwen, 1000).encode("It's 12 cats!\n") == expected);

    // Tokens that are looked for in the normalized text: ▁<s> at the beginning only.
    overwrite(terse, replaced(content(fixture_path("11_generation/llama2/tokenizer.json")),
                              "\"normalized\": false", "\"normalized\": true"));
    const Tokenizer late = load_tokenizer(terse, 1000);
    using Ids = std::vector<Id>;  // as Hugging Face's library has them
    CHECK(late.encode("<s>the") == Ids{1, 1, 261, 310});
    CHECK(late.encode("the<s>") == Ids{1, 314, 63, 268, 65});
    CHECK(late.encode("the <s>x") == Ids{1, 314, 1, 305});
    CHECK(late.encode("<s><s>") == Ids{1, 1, 63, 268, 65});
    CHECK(prepending.encode("the<s>").size() == 3);
    overwrite(terse, replaced(content(fixture_path("11_generation/llama2/tokenizer.json")),
                              "\"normalized\": false,", ""));  // that is the default
    CHECK(load_tokenizer(terse, 1000).encode("the<s>") == prepending.encode("the<s>"));
    overwrite(terse, replaced(content(gpt2), "\"normalized\": false", "\"normalized\": true"));
    CHECK(load_tokenizer(terse, 1000).encode("a<|endoftext|>").size() == 2);

    // Digits together instead of one by one; no dropout is no dropout.
    const std::string smol = scratch.copy_of("11_generation/smol") + "/tokenizer.json";
    edit(smol, "\"individual_digits\": true", "\"individual_digits\": false");
    edit(smol, "\"dropout\": null", "\"dropout\": 0.0");
    CHECK(load_tokenizer(smol, 1000).stages("ab12", true)[1] == Words{"ab", "12"});

    // A pair that is named twice has its later place.
    overwrite(terse, R"({"model": {"vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4},
        "merges": ["a b", "b c", "a b"]}, "decoder": {"type": "Fuse"}})");
    CHECK(load_tokenizer(terse, 5).encode("abc") == std::vector<Id>{0, 4});

    // Metaspace: always a mark in front, never, or cut into words.
    const std::string meta = scratch.copy_of("11_generation/metaspace") + "/tokenizer.json";
    const auto words = [&](const std::string& text) {
        return load_tokenizer(meta, 1000).stages(text, false).back();
    };
    CHECK(words("a b") == Words{"a▁b"});
    edit(meta, "\"first\"", "\"always\"");
    CHECK(words("a b") == Words{"▁a▁b"});
    CHECK(words(" b") == Words{"▁b"});
    edit(meta, "\"split\": false", "\"-\": false");
    CHECK(words("a b  c") == Words{"▁a", "▁b", "▁", "▁c"});
    edit(meta, "\"always\"", "\"never\"");
    CHECK(words("a b") == Words{"a", "▁b"});
}

TEST_CASE("half a character decodes to half its bytes, and an unknown id to nothing") {
    const Tokenizer tokenizer =
        load_tokenizer(fixture_path("11_generation/gpt2/tokenizer.json"), 1000);
    const std::vector<Id> ids = tokenizer.encode("\u4e2d");  // 中, three bytes, no merges
    REQUIRE(ids.size() == 3);
    CHECK(tokenizer.decode({ids[0]}) == "\xe4");
    CHECK(tokenizer.decode({ids[0], 999, 5000, -1}) == "\xe4");
    CHECK_THROWS_WITH_AS(tokenizer.encode("abc\xff"), "the text is not UTF-8 at byte 3",
                         TextError);
}

TEST_CASE("bytes as tokens: whatever the text is, and back") {
    const Tokenizer tokenizer = bytes_as_tokens();
    CHECK(tokenizer.decode({1, 2}).empty());
    CHECK(tokenizer.decode({3, 68}) == std::string("\0A", 2));
    CHECK(tokenizer.pieces.size() == 259);
    CHECK(tokenizer.ends == std::vector<Id>{1, 2});
    CHECK(tokenizer.encode("aü") == std::vector<Id>{1, 3 + 'a', 3 + 0xc3, 3 + 0xbc});
    CHECK(tokenizer.decode(tokenizer.encode("a<0x41> ü\n")) == "a<0x41> ü\n");
}

TEST_CASE("config.json and generation_config.json say what begins and ends a text") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("11_generation/qwen");
    const auto load = [&] { return load_tokenizer(folder + "/tokenizer.json", 1000); };
    CHECK(load().ends.empty());
    CHECK(load().encode("").empty());
    overwrite(folder + "/config.json", R"({"eos_token_id": 7, "bos_token_id": 5})");
    CHECK(load().ends == std::vector<Id>{7});
    CHECK(load().encode("") == std::vector<Id>{5});
    CHECK(load().encode("a").front() != 5);
    CHECK(load().encode("").size() == 1);
    overwrite(folder + "/config.json", R"({"eos_token_id": 7, "bos_token_id": 0})");
    CHECK(load().encode("") == std::vector<Id>{0});
    overwrite(folder + "/config.json", R"({"eos_token_id": 7, "bos_token_id": 5})");
    overwrite(folder + "/generation_config.json", R"({"eos_token_id": [8, 9]})");
    CHECK(load().ends == std::vector<Id>{8, 9});
    CHECK(load().encode("") == std::vector<Id>{5});

    // A tokenizer that puts a token in front of every text keeps to it.
    const std::string llama3 = scratch.copy_of("11_generation/llama3");
    overwrite(llama3 + "/config.json", R"({"bos_token_id": 5})");
    CHECK(load_tokenizer(llama3 + "/tokenizer.json", 1000).encode("") == std::vector<Id>{406});
}

namespace {

// A tokenizer file of llama2.c: a score, a length and the bytes of each piece.
std::string llama2c_tokenizer(const std::vector<std::pair<float, std::string>>& pieces) {
    std::string file(4, '\0');
    for (const auto& [score, piece] : pieces) {
        std::array<char, 8> head;
        const auto length = static_cast<std::int32_t>(piece.size());
        std::memcpy(head.data(), &score, 4);
        std::memcpy(head.data() + 4, &length, 4);
        file.append(head.data(), head.size()) += piece;
    }
    return file;
}

const std::vector<std::pair<float, std::string>> small_pieces = {
    {0, "<unk>"},  {0, "\n<s>\n"}, {0, "\n</s>\n"}, {0, "<0xC3>"}, {0, "<0xBC>"},
    {0, "<0x0A>"}, {-9, " "},      {-9, "a"},       {-9, "b"},     {-3, "ab"},
    {-2, "ba"},    {-1, " ab"},    {-0.5f, "aba"}};

}  // namespace

TEST_CASE("a llama2.c tokenizer joins what has the highest score, and falls back to bytes") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "tok13.bin").string();
    overwrite(file, llama2c_tokenizer(small_pieces));
    const Tokenizer tokenizer = load_tokenizer(file, 13);
    using Ids = std::vector<Id>;
    CHECK(tokenizer.encode("") == Ids{1});
    CHECK(tokenizer.encode("ab") == Ids{1, 11});
    // "ba" has a better score than "ab", so " ab" has no chance.
    CHECK(tokenizer.encode("aba") == Ids{1, 6, 12});
    CHECK(tokenizer.encode("abab") == Ids{1, 6, 12, 8});
    CHECK(tokenizer.encode(" ab") == Ids{1, 6, 11});
    CHECK(tokenizer.encode("ü") == Ids{1, 6, 3, 4});
    CHECK(tokenizer.encode("\n") == Ids{1, 6, 5});
    CHECK(tokenizer.encode("é") == Ids{1, 6, 0});
    CHECK(tokenizer.decode({1, 11, 6, 7, 3, 4, 5, 2}) == "ab aü\n");
    CHECK(tokenizer.decode({6, 6, 7}) == " a");
    CHECK(tokenizer.ends == Ids{1, 2});
}

TEST_CASE("a tokenizer is found beside its model, or its lack is said") {
    const Scratch scratch;
    const std::string model = (scratch.folder / "model.bin").string();
    overwrite(model, "");
    CHECK_THROWS_AS(tokenizer_beside(model, 13), FileError);
    overwrite(scratch.folder / "tokenizer.bin", "");
    CHECK(tokenizer_beside(model, 13) == (scratch.folder / "tokenizer.bin").string());
    overwrite(scratch.folder / "tok13.bin", "");
    CHECK(tokenizer_beside(model, 13) == (scratch.folder / "tok13.bin").string());
    CHECK(tokenizer_beside(scratch.folder.string(), 13) ==
          (scratch.folder / "tokenizer.json").string());
}

namespace {

// The one line with which a tokenizer is refused.
std::string refusal(const std::string& file, std::size_t vocab_size = 1000) try {
    load_tokenizer(file, vocab_size);
    return "it was accepted";
} catch (const FileError& error) {
    const std::string line = error.what();
    CHECK(line.find(file) != line.npos);
    CHECK(line.find('\n') == line.npos);
    return line;
}

}  // namespace

TEST_CASE("a tokenizer.json that asks for what is not here is refused by name") {
    const std::vector<std::array<std::string, 4>> cases = {
        {"gpt2", "\"BPE\"", "\"WordPiece\"", "model.type WordPiece is not supported"},
        {"gpt2", "\"dropout\": null", "\"dropout\": 0.1", "model.dropout is not supported"},
        {"gpt2", "\"end_of_word_suffix\": \"\"", "\"end_of_word_suffix\": \"</w>\"",
         "model.end_of_word_suffix is not supported"},
        {"gpt2", "\"merges\"", "\"other\"", "model.merges is missing"},
        {"gpt2", "\"lstrip\": false", "\"lstrip\": true",
         "added_tokens.0.lstrip is not supported"},
        {"gpt2", "\"rstrip\": false", "\"rstrip\": true", "0.rstrip is not supported"},
        {"gpt2", "\"single_word\": false", "\"single_word\": true", "0.single_word is not"},
        {"gpt2", "\"continuing_subword_prefix\": \"\"", "\"continuing_subword_prefix\": \"##\"",
         "continuing_subword_prefix is not supported"},
        {"gpt2", "\"post_processor\": {\n  \"type\": \"ByteLevel\"",
         "\"post_processor\": {\n  \"type\": \"BertProcessing\"",
         "BertProcessing is not supported"},
        {"qwen", "\"Regex\"", "\"String\"", "a pattern that is no Regex is not supported"},
        {"llama2", "\"String\": \" \"", "\"String\": \"\"", "pattern.String must not be empty"},
        {"llama2", "\"type\": \"Fuse\"", "\"type\": \"ByteFallback\"", "this Strip is not"},
        {"llama2", "\"Strip\"", "\"Metaspace\"", "type Metaspace is not supported"},
        {"metaspace", "\"replacement\": \"▁\"", "\"replacement\": \"\"",
         "replacement must not be empty"},
        {"metaspace", "\"normalized\": false", "\"normalized\": true", "accepted"},
        {"gpt2", "\"normalizer\": null", "\"normalizer\": {\"type\": \"Lowercase\"}",
         "normalizer.type Lowercase is not supported"},
        {"qwen", "\"NFC\"", "\"NFKC\"", "normalizer.type NFKC is not supported"},
        {"qwen", "\"Isolated\"", "\"MergedWithNext\"",
         "pre_tokenizer.pretokenizers.0.behavior MergedWithNext is not supported"},
        {"qwen", "\"Regex\": \"", "\"Regex\": \"(", "the pattern '("},
        {"smol", "\"Digits\"", "\"Punctuation\"", "type Punctuation is not supported"},
        {"llama2", "\"Prepend\"", "\"Strip\"", "normalizer.normalizers.0.type Strip"},
        {"llama2", "\"unk_token\": \"<unk>\"", "\"unk_token\": \"<none>\"",
         "model.there is no token <none>"},
        {"metaspace", "\"first\"", "\"last\"", "prepend_scheme last is not supported"},
        {"llama3", "\"TemplateProcessing\"", "\"RobertaProcessing\"",
         "post_processor.processors.1.type RobertaProcessing is not supported"},
        {"llama2", "\"start\": 1", "\"start\": 2", "this Strip is not supported"},
        {"llama3", "\"single\": [", "\"single\": [{\"Sequence\": {\"id\": \"A\"}}, ",
         "a token behind the text is not supported"},
    };
    for (const auto& [kind, old_text, new_text, message] : cases) {
        const Scratch scratch;
        const std::string file = scratch.copy_of("11_generation/" + kind) + "/tokenizer.json";
        CHECK(mentions(refusal(file, 1000), "accepted"));
        edit(file, old_text, new_text);
        CHECK(mentions(refusal(file), message));
    }
}

TEST_CASE("a damaged tokenizer, one for another model, and a missing one are refused") {
    const Scratch scratch;
    const std::string json = scratch.copy_of("11_generation/gpt2") + "/tokenizer.json";
    CHECK(mentions(refusal(json, 402), "the model knows 402 tokens"));
    CHECK(mentions(refusal(json, 403), "accepted"));
    const std::string good = content(json);
    overwrite(json, good.substr(0, good.size() / 2));
    CHECK(mentions(refusal(json), "not a JSON object"));
    overwrite(json, "{}");
    CHECK(mentions(refusal(json), "model is missing"));
    overwrite(json, R"({"model": {"vocab": {"a": -1}, "merges": []}})");
    CHECK(mentions(refusal(json), "model.vocab must hold whole numbers"));
    overwrite(json, R"({"model": {"vocab": {"a": 1}, "merges": ["a a"]}})");
    CHECK(mentions(refusal(json), "there is no token aa"));
    overwrite(json, R"({"model": {"vocab": {"a": 1}, "merges": ["a"]}})");
    CHECK(mentions(refusal(json), "a merge must name two tokens"));
    overwrite(json, R"({"model": {"vocab": {"a": 1}, "merges": [["a", 1]]}})");
    CHECK(mentions(refusal(json), "model.merges must hold texts"));
    overwrite(json, R"({"model": {"vocab": {"a": 1}, "merges": []}})");
    CHECK(mentions(refusal(json), "without decoder"));
    CHECK(mentions(refusal((scratch.folder / "nothing.json").string()), "cannot read"));

    const std::string file = (scratch.folder / "tokenizer.bin").string();
    const std::string bytes = llama2c_tokenizer(small_pieces);
    const auto after = [&](const std::string& damaged, std::size_t vocab_size = 13) {
        overwrite(file, damaged);
        return refusal(file, vocab_size);
    };
    CHECK(mentions(after(bytes), "accepted"));
    CHECK(mentions(after(bytes, 14), "too short for a llama2.c tokenizer of 14 tokens"));
    CHECK(mentions(after(bytes, 12), "more than 12 tokens"));
    CHECK(mentions(after(bytes.substr(0, bytes.size() - 1)), "token 12 is damaged"));
    CHECK(mentions(after(std::string(200, '\xff')), "token 0 is damaged"));
    CHECK(mentions(after(std::string(200, '\x7f')), "token 0 is damaged"));
    CHECK(mentions(after(""), "is empty"));
    CHECK(mentions(after(llama2c_tokenizer({{0, std::string(513, 'a')}}), 1), "is damaged"));
    CHECK(mentions(after(llama2c_tokenizer({{0, std::string(512, 'a')}}), 1), "accepted"));
    CHECK(mentions(after(llama2c_tokenizer({{std::nanf(""), "a"}}), 1), "is damaged"));
}

TEST_CASE("STORIES260K: a trained model writes llama2.c's story, with and without a cache") {
    const std::string file = stories260k();
    if (file.empty()) {
        MESSAGE(
            "skipped: karpathy's stories260K.bin lies neither here nor where STORIES260K says");
        return;
    }
    const Model model = load_model(file);
    const Tokenizer tokenizer = load_tokenizer(tokenizer_beside(file, 512), 512);
    Generator generator(1);
    const std::vector<Id> ids =
        generate(model, tokenizer.encode(""), {greedy(), 200, tokenizer.ends, true}, generator);
    const std::vector<Id> without_cache =
        generate(model, tokenizer.encode(""), {greedy(), 60, tokenizer.ends, false}, generator);
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
