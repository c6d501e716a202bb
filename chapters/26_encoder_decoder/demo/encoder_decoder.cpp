#include "chapters/26_encoder_decoder/demo/encoder_decoder.hpp"

#include "chapters/11_generation/generation.hpp"
#include "chapters/26_encoder_decoder/demo/small_t5.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The buckets of all distances from -length to length.
Line buckets_of(const std::string& label, bool bidirectional, int length) {
    Line line{label, {}, {}};
    for (int distance = -length; distance <= length; ++distance) {
        line.x.push_back(distance);
        line.y.push_back(double(relative_position_bucket(distance, bidirectional)));
    }
    return line;
}

// A table of biases for two heads: one wants near keys, one those before the query.
Matrix biases_by_hand(bool bidirectional) {
    Matrix weight = xt::zeros<Real>({32, 2});
    for (std::size_t bucket = 0; bucket < 32; ++bucket) {
        const bool is_after = bidirectional && bucket >= 16;
        weight(bucket, 0) = 0 - Real(is_after ? bucket - 16 : bucket);
        weight(bucket, 1) = is_after ? -4 : 0;
    }
    return weight;
}

// The source text and what the decoder has read. Word by word, "das Ufer des Flusses" needs
// the, bank, the and river.
const std::vector<std::string> source_words = {"the", "river", "bank"},
                               read_words = {"<start>", "das", "Ufer", "des"},
                               next_words = {"das", "Ufer", "des", "Flusses"};
const Tensor3 source_states = {
    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};  // (1, 3, 3): one feature each
const Tensor3 read_states = {{{1, 0, 0}, {0, 0, 1}, {1, 0, 0}, {0, 1, 0}}};  // (1, 4, 3)

// Queries are four times the feature that is looked for; keys and values are the source words.
Matrix cross_weights(const Tensor4& mask) {
    const Matrix identity = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    const Linear same{identity, std::nullopt}, four_times{identity * 4, std::nullopt};
    const T5Attention cross{AttentionLayer{1, 1, {four_times, same, same, same}}};
    const auto output = cross(read_states, {mask, std::nullopt, source_states});
    return head_of(output.attentions, 0, 0);  // (4, 3)
}

std::string most_attended(const Matrix& weights, std::size_t t) {
    std::string words;
    for (std::size_t s = 0; s < weights.shape(1); ++s)
        if (weights(t, s) > Real(0.4)) words += (words.empty() ? "" : " or ") + source_words[s];
    return words;
}

// Multiply-adds of a decoder of T5-small's sizes for one token after 20 others, without logits.
struct TokenCost {
    std::uint64_t with_cache, without_cache;
};
TokenCost cost_of_token(std::uint64_t text_len) {
    const std::uint64_t C = 512, width = 512, F = 2048, L = 6, past_len = 20;
    const std::uint64_t projections = 6 * C * width;  // q, k, v, o; and q, o of cross-attention
    const std::uint64_t attention = 2 * width * (past_len + 1 + text_len);
    const std::uint64_t with_cache = L * (projections + attention + 2 * C * F);
    return {with_cache, with_cache + L * 2 * text_len * C * width};
}

}  // namespace

void relative_positions() {
    step("T5: distances of query and key in 32 buckets");
    std::vector<TableRow> rows;
    for (const int distance : {-200, -128, -64, -32, -16, -9, -8, -7, -1, 0, 1, 7, 8, 200})
        rows.push_back(
            {to_text(distance), to_text(relative_position_bucket(distance, true)),
             distance > 0 ? "masked" : to_text(relative_position_bucket(distance, false))});
    show_table({"key minus query", "encoder", "decoder"}, rows);

    const Tensor4 bias = RelativePositionBias{biases_by_hand(true)}(10, 10);  // (1, 2, 10, 10)
    Line decoder = buckets_of("decoder", false, 200);
    decoder.x.resize(201);  // up to distance 0
    decoder.y.resize(201);
    plot("buckets", {LinePlot{"Buckets",
                              "key minus query",
                              "bucket",
                              {buckets_of("encoder", true, 200), decoder}},
                     Heatmap{"A head for near keys", "key", "query", head_of(bias, 0, 0)},
                     Heatmap{"A head for keys before", "key", "query", head_of(bias, 0, 1)}});
}

void cross_attention_by_hand() {
    step("Cross-attention: which word of the source does the next word need?");
    const Tensor4 all = xt::zeros<Real>({1, 1, 4, 3});
    Tensor4 causal = all;
    for (std::size_t t = 0; t < 4; ++t)
        for (std::size_t s = t + 1; s < 3; ++s) causal(0, 0, t, s) = -infinity;
    const Matrix right = cross_weights(all), wrong = cross_weights(causal);  // (4, 3)
    show("right", right, read_words, source_words);
    show("wrong_causal_mask", wrong, read_words, source_words);
    std::vector<TableRow> rows;
    for (std::size_t t = 0; t < 4; ++t)
        rows.push_back(
            {read_words[t], next_words[t], most_attended(right, t), most_attended(wrong, t)});
    show_table({"after", "comes", "looks at", "with a causal mask"}, rows);
}

void cost_of_cross_attention(std::uint32_t seed) {
    step("What the cache of cross-attention saves in T5-small's decoder");
    std::vector<TableRow> rows;
    for (const std::uint64_t text_len : {16, 128, 512}) {
        const auto [with_cache, without_cache] = cost_of_token(text_len);
        rows.push_back({to_text(text_len), with_commas(without_cache), with_commas(with_cache),
                        fixed(double(without_cache) / double(with_cache), 1)});
    }
    show_table({"tokens of the text", "multiply-adds without", "with", "ratio"}, rows);

    // The same tokens, with random weights.
    Generator generator(seed);
    const T5Model model = random_t5({}, generator);
    const EncodedTexts encoded = model.encode(pad({{3, 4, 5, 6, 7, 8, 9}}, 0));
    std::vector<T5DecoderCache> caches(model.decoder_layers.size());
    const IdMatrix ids = {{1, 15, 16, 17, 2}};
    const Tensor3 together = model.decode(ids, encoded);  // (1, 5, C)
    Real largest = 0;
    for (std::size_t t = 0; t < 5; ++t) {
        const IdMatrix one = {{ids(0, t)}};
        const Tensor3 alone = model.decode(one, encoded, &caches);  // (1, 1, C)
        const Tensor3 expected = xt::view(together, xt::all(), xt::range(t, t + 1), xt::all());
        const Tensor3 difference = xt::abs(alone - expected);
        largest = std::max(largest, Real(xt::amax(difference)()));
    }
    show("largest difference with and without caches < 0.0001", largest < Real(0.0001));
    const Tensor3 logits = model.logits(together);  // (1, 5, V)
    show("with these random weights, the first logit is", fixed(double(logits(0, 4, 0)), 4));
}

}  // namespace llm
