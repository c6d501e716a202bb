// Chapter 01 — Which tokens may a token attend to? The program computes the attention of one
// head over five words, builds position ids and the causal mask for a sample input, and shows
// what the mask does to a softmax.
#include <cmath>

#include "chapters/01_masking/config.hpp"
#include "chapters/01_masking/masking.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/words.hpp"
#include "common/numbers/random.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

void attention_over_words(const Words& words) {
    const std::vector<std::string>& tokens = words.tokens;
    const auto [seq_len, head_dim] = dims(words.head_queries);

    step(words.count() + ": scores, the dot products of queries and keys / sqrt(D)");
    const Matrix products = xt::linalg::dot(words.head_queries, xt::transpose(words.head_keys));
    const Matrix word_scores = products / std::sqrt(static_cast<Real>(head_dim));
    show("word_scores", word_scores, tokens, tokens);  // (T, T)

    step(words.count() + ": add the causal mask");
    const Matrix masked_scores = word_scores + causal_mask(seq_len, seq_len);
    show("word_scores_masked", masked_scores, tokens, tokens);

    step(words.count() + ": the softmax of each row gives the attention weights");
    const Matrix weights = softmax(masked_scores);
    show("word_weights", weights, tokens, tokens);

    step(words.count() + ": the output is the weighted sum of the values");
    const std::vector<std::string> features = {"feature 0", "feature 1", "feature 2"};
    show("word_values", words.head_values, tokens, features);  // (T, D)
    const Matrix output = xt::linalg::dot(weights, words.head_values);
    show("word_output", output, tokens, features);  // (T, D)

    step("Wrong: no mask, so that each word attends to the words after it");
    const Matrix unmasked = softmax(word_scores);
    show("word_weights_unmasked", unmasked, tokens, tokens);
    plot("words", {Heatmap{"Without the mask", "key", "query", unmasked, tokens, tokens},
                   Heatmap{"With the causal mask", "key", "query", weights, tokens, tokens}});
}

void show_head_sizes(const Config& config) {
    show("hidden_size", config.hidden_size);
    show("num_attention_heads", config.num_attention_heads);
    show("num_key_value_heads", config.num_key_value_heads);
    show("head_dim", config.head_dim);
}

void show_configuration(const Config& config) {
    step("Configuration");
    show_head_sizes(config);
    show("max_position_embeddings", config.max_position_embeddings);
    show("rope_theta", config.rope_theta);
    show("rms_norm_eps", config.rms_norm_eps);
    show("attention_bias", config.attention_bias != AttentionBias::none);
    show("attention_dropout", config.attention_dropout);
    show("use_qk_norm", config.qk_norm != QKNormType::none);
}

IdMatrix build_position_ids(std::size_t batch_size, std::size_t seq_len) {
    step("Position ids in three steps: arange, unsqueeze, repeat");
    const IdVector arange = xt::arange<Id>(static_cast<Id>(seq_len));
    show("position_ids_arange", arange);  // (T)
    show("position_ids_unsqueezed", reshape(arange, {1, seq_len}));
    const IdMatrix ids = position_ids(batch_size, seq_len);
    show("position_ids", ids);  // (B, T)
    return ids;
}

Tensor4 build_attention_mask(std::size_t batch_size, std::size_t seq_len) {
    step("Causal mask 1: -inf everywhere");
    const Matrix ones = xt::ones<Real>({seq_len, seq_len});
    const Matrix all_masked = ones * -infinity;
    show("attention_mask_all_masked", all_masked);

    step("Causal mask 2: keep -inf above the diagonal, 0 elsewhere");
    const Matrix square = causal_mask(seq_len, seq_len);
    show("attention_mask_square", square);  // (T, T)

    step("Causal mask 3: add two axes, for the sequences and the heads");
    show("attention_mask_unsqueezed", reshape(square, {1, 1, seq_len, seq_len}));

    step("Causal mask 4: one copy per sequence");
    const Tensor4 attention_mask = expand_mask(square, batch_size);
    show("attention_mask", attention_mask);  // (B, 1, T, T)

    plot("causal_mask",
         {Heatmap{"Causal mask, added to the scores", "key", "query", square},
          Heatmap{"Softmax of equal scores with this mask", "key", "query", softmax(square)}});
    return attention_mask;
}

void check_shapes(const Config& config, const Tensor3& hidden_states, const IdMatrix& ids,
                  const Tensor4& attention_mask) {
    step("Check: the shapes so far");
    say("Configuration");
    show_head_sizes(config);
    say("Sample input shapes");
    show_shape("hidden_states", hidden_states);
    show_shape("position_ids", ids);
    show_shape("attention_mask", attention_mask);
}

const Matrix scores{{2, 1, 0.5, 3}};  // (1, S): one query, four keys

void mask_one_row_of_scores() {
    step("One row of scores: query 1 of 4 may attend to keys 0 and 1");
    const Matrix mask_row{{0, 0, -infinity, -infinity}};
    const Matrix masked_scores = scores + mask_row;
    show("scores", scores);
    show("masked_scores", masked_scores);
    show("weights_unmasked", softmax(scores));
    show("weights", softmax(masked_scores));
    say("exp(-inf) is exactly 0, so the weights of the two unmasked keys sum to 1.");

    step("Wrong: a mask that multiplies the scores by 0");
    const Matrix zero_one_mask{{1, 1, 0, 0}};
    const Matrix zeroed_scores = scores * zero_one_mask;
    show("weights_zeroed", softmax(zeroed_scores));
    say("A score of 0 is an ordinary score: exp(0) = 1. Future keys still get weight.");
}

void fully_masked_rows() {
    step("Wrong: -1e9 instead of -inf, in a row where every key is masked");
    const Matrix large_negative = scores + Real(-1e9);
    show("scores_minus_1e9", large_negative);
    show("weights_minus_1e9", softmax(large_negative));
    const Matrix fully_masked = scores - infinity;
    show("weights_fully_masked", softmax(fully_masked));
    say("At -1e9 neighboring floats are 64 apart, so all four scores round to the same value "
        "and every masked key gets a weight of 0.25. With -inf all weights are 0.");

    step("Wrong: a softmax that divides by the sum even if the sum is 0");
    const Matrix exponentials = xt::exp(fully_masked);  // exp(-inf) is 0
    const Matrix sums = xt::sum(exponentials, {1}, xt::keep_dims);
    const Matrix quotients = exponentials / sums;
    show("weights_divided_by_zero", quotients);
    say("0 / 0 is NaN, and NaN propagates through all later layers. PyTorch's softmax gives "
        "NaN for a fully masked row; this one gives zeros.");

    step("Wrong: 0 * -inf");
    const Matrix future{{0, 1}, {0, 0}};
    const Matrix product = future * -infinity;
    show("mask_with_nan", product);
    say("1 * -inf is -inf, but 0 * -inf is NaN. Build the mask by selecting 0 or -inf for each "
        "element, not by multiplying.");
}

void more_keys_than_queries() {
    step("3 queries, 5 keys: the queries have the last 3 of 5 positions");
    const Matrix lower_right = causal_mask(3, 5);
    show("mask_3_of_5", lower_right);

    step("Wrong: the upper-left aligned mask, of the same shape");
    const Matrix ones = xt::ones<Real>({3, 5});
    const Matrix all_masked = ones * -infinity;
    const Matrix upper_left = xt::triu(all_masked, 1);
    show("mask_3_of_5_upper_left", upper_left);
    say("Query 0 has position 2, but this mask lets it attend to position 0 only.");

    step("One new query, 5 keys, as with a KV cache: nothing is masked");
    show("mask_1_of_5", causal_mask(1, 5));
    plot("alignment", {Heatmap{"Right: lower-right aligned", "key", "query", lower_right},
                       Heatmap{"Wrong: upper-left aligned", "key", "query", upper_left}});
}

void mask_padded_batch() {
    step("Sequences of 5 and 3 tokens: the shorter one is padded on the left");
    const IdMatrix padding_mask{{1, 1, 1, 1, 1}, {0, 0, 1, 1, 1}};
    show("padding_mask", padding_mask);
    show("position_ids_padded", position_ids(padding_mask));

    step("Decoder: with padding, each sequence needs a mask of its own");
    const Tensor4 decoder_mask = mask_padding(expand_mask(causal_mask(5, 5), 2), padding_mask);
    show("decoder_mask", decoder_mask);

    step("Encoder: no causal mask, only padding is masked");
    const Matrix no_mask = xt::zeros<Real>({5, 5});
    const Tensor4 encoder_mask = mask_padding(expand_mask(no_mask, 2), padding_mask);
    show("encoder_mask", encoder_mask);

    step("The row of a padding query is fully masked: its weights are 0, not NaN");
    const Tensor4 weights = softmax(decoder_mask);
    show("decoder_weights", weights);
    const auto sequence = [](const Tensor4& mask, std::size_t b) -> Matrix {
        return xt::view(mask, b, 0);
    };
    plot("padding",
         {Heatmap{"Decoder, 5 tokens", "key", "query", sequence(decoder_mask, 0)},
          Heatmap{"Decoder, 2 padding + 3 tokens", "key", "query", sequence(decoder_mask, 1)},
          Heatmap{"Encoder, 2 padding + 3 tokens", "key", "query", sequence(encoder_mask, 1)}});
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    std::string words = asset("words");
    Options options("01_masking", "Which tokens may a token attend to?");
    options.sizes(batch_size, seq_len, config);
    options.path("--words", words,
                 "other words: a folder written by 11_generation --words DIR --prompt TEXT");

    return options.run(argc, argv, [&] {
        const Config checked = validate(config, seq_len);
        Generator generator(options.seed());
        attention_over_words(load_words(words));
        show_configuration(checked);
        step("Sample input: a vector of hidden_size features for each token");
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        show("hidden_states", hidden_states);  // (B, T, C)
        const IdMatrix ids = build_position_ids(batch_size, seq_len);
        const Tensor4 attention_mask = build_attention_mask(batch_size, seq_len);
        check_shapes(checked, hidden_states, ids, attention_mask);
        mask_one_row_of_scores();
        fully_masked_rows();
        more_keys_than_queries();
        mask_padded_batch();
    });
}
