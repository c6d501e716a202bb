// Chapter 01 — Which tokens may a token look at? The walk: from a configuration and a sample
// input to the causal mask, and what that mask does to a softmax.
#include "chapters/01_masking/masking.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/numbers/random.hpp"
#include "common/output/show.hpp"

using namespace llm;

void show_config(const Config& config) {
    show("hidden_size", config.hidden_size);
    show("num_attention_heads", config.num_attention_heads);
    show("num_key_value_heads", config.num_key_value_heads);
    show("head_dim", config.head_dim);
}

void configuration(const Config& config) {
    step("Configuration");
    show_config(config);
    show("max_position_embeddings", config.max_position_embeddings);
    show("rope_theta", config.rope_theta);
    show("rms_norm_eps", config.rms_norm_eps);
    show("attention_bias", config.attention_bias);
    show("attention_dropout", config.attention_dropout);
    show("use_qk_norm", config.use_qk_norm);
}

IdMatrix ids_in_three_steps(std::size_t batch_size, std::size_t seq_len) {
    step("Position ids in three steps: count, add an axis, repeat per sequence");
    const IdVector counted = xt::arange<Id>(static_cast<Id>(seq_len));
    show("position_ids_counted", counted);  // (T)
    show("position_ids_one_row", reshape(counted, {1, seq_len}));
    const IdMatrix ids = position_ids(batch_size, seq_len);
    show("position_ids", ids);  // (B, T)
    return ids;
}

Tensor4 mask_in_four_steps(std::size_t batch_size, std::size_t seq_len) {
    step("Causal mask 1: hide everything");
    const Matrix ones = xt::ones<Real>({seq_len, seq_len});
    const Matrix all_hidden = ones * -infinity;
    show("attention_mask_all_hidden", all_hidden);

    step("Causal mask 2: keep -inf above the diagonal, 0 elsewhere");
    const Matrix square = causal_mask(seq_len, seq_len);
    show("attention_mask_square", square);  // (T, T)

    step("Causal mask 3: two more axes, for the sequences and the heads");
    show("attention_mask_one", reshape(square, {1, 1, seq_len, seq_len}));

    step("Causal mask 4: one copy per sequence");
    const Tensor4 attention_mask = expand_mask(square, batch_size);
    show("attention_mask", attention_mask);  // (B, 1, T, T)

    plot("causal_mask",
         {Heatmap{"Causal mask, added to the scores", "key", "query", square},
          Heatmap{"Softmax of equal scores under it", "key", "query", softmax(square)}});
    return attention_mask;
}

void the_shapes_so_far(const Config& config, const Tensor3& hidden_states, const IdMatrix& ids,
                       const Tensor4& attention_mask) {
    step("Check: the shapes so far");
    say("Configuration");
    show_config(config);
    say("Sample input shapes");
    show_shape("hidden_states", hidden_states);
    show_shape("position_ids", ids);
    show_shape("attention_mask", attention_mask);
}

const Matrix scores{{2, 1, 0.5, 3}};  // (1, S): a query and four keys

void what_the_mask_does() {
    step("What the mask does: token 1 of 4 may look at tokens 0 and 1");
    const Matrix mask_row{{0, 0, -infinity, -infinity}};
    const Matrix masked_scores = scores + mask_row;
    show("scores", scores);
    show("masked_scores", masked_scores);
    show("weights_unmasked", softmax(scores));
    show("weights", softmax(masked_scores));
    say("exp(-inf) is exactly 0, so the two visible weights add up to 1.");

    step("Wrong: a mask that multiplies by 0");
    const Matrix visible{{1, 1, 0, 0}};
    const Matrix zeroed_scores = scores * visible;
    show("weights_zeroed", softmax(zeroed_scores));
    say("A score of 0 is a score like any other: exp(0) = 1. The future leaks in.");
}

void rows_that_see_nothing() {
    step("Wrong: -1e9 instead of -inf, in a row where nothing is visible");
    const Matrix large_negative = scores + Real(-1e9);
    show("scores_minus_1e9", large_negative);
    show("weights_minus_1e9", softmax(large_negative));
    const Matrix nothing_visible = scores - infinity;
    show("weights_nothing_visible", softmax(nothing_visible));
    say("Next to 1e9 a float cannot hold the scores: all four become equal, and every hidden "
        "token gets a quarter. Under -inf nothing is visible and nothing is taken.");

    step("Wrong: a softmax that divides by the sum, whatever it is");
    const Matrix powers = xt::exp(nothing_visible);           // exp(-inf) is 0,
    const Matrix sums = xt::sum(powers, {1}, xt::keep_dims);  // and so is their sum
    const Matrix quotients = powers / sums;
    show("weights_divided_by_zero", quotients);
    say("0 / 0 is NaN, and NaN spreads through every later layer. PyTorch's softmax gives NaN "
        "for such a row; ours gives zeros.");

    step("Wrong: 0 * -inf");
    const Matrix future{{0, 1}, {0, 0}};
    const Matrix product = future * -infinity;
    show("future_times_inf", product);
    say("ones * -inf is fine, but 0 * -inf is NaN: choose between 0 and -inf, never multiply.");
}

void queries_and_keys_differ() {
    step("3 queries, 5 keys: the queries are the last 3 of 5 positions");
    const Matrix aligned = causal_mask(3, 5);
    show("mask_3_of_5", aligned);

    step("Wrong: the same mask aligned to the top left");
    const Matrix ones = xt::ones<Real>({3, 5});
    const Matrix all_hidden = ones * -infinity;
    const Matrix top_left = xt::triu(all_hidden, 1);
    show("mask_3_of_5_top_left", top_left);
    say("Query 0 stands at position 2, yet this mask shows it position 0 alone.");

    step("One new query, 5 keys, as when text is generated: it sees all");
    show("mask_1_of_5", causal_mask(1, 5));
    plot("alignment", {Heatmap{"Right: aligned to the bottom right", "key", "query", aligned},
                       Heatmap{"Wrong: aligned to the top left", "key", "query", top_left}});
}

void padding() {
    step("Sentences of 5 and 3 tokens: the shorter one is padded on the left");
    const IdMatrix token_mask{{1, 1, 1, 1, 1}, {0, 0, 1, 1, 1}};
    show("token_mask", token_mask);
    show("position_ids_padded", position_ids(token_mask));

    step("Now each sequence needs its own mask: hence the batch axis");
    const Tensor4 decoder_mask = hide_padding(expand_mask(causal_mask(5, 5), 2), token_mask);
    show("decoder_mask", decoder_mask);

    step("Encoder: everybody sees everybody, padding is still hidden");
    const Matrix nothing_hidden = xt::zeros<Real>({5, 5});
    const Tensor4 encoder_mask = hide_padding(expand_mask(nothing_hidden, 2), token_mask);
    show("encoder_mask", encoder_mask);

    step("Padding itself sees nothing: a row of zeros, not of NaN");
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
    Options options("01_masking", "Which tokens may a token look at?");
    options.sizes(batch_size, seq_len, config);

    return options.run(argc, argv, [&] {
        const Config checked = complete(config, seq_len);
        Generator generator(options.seed());
        configuration(checked);
        step("Sample input: a vector of hidden_size numbers for every token");
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        show("hidden_states", hidden_states);  // (B, T, C)
        const IdMatrix ids = ids_in_three_steps(batch_size, seq_len);
        const Tensor4 attention_mask = mask_in_four_steps(batch_size, seq_len);
        the_shapes_so_far(checked, hidden_states, ids, attention_mask);
        what_the_mask_does();
        rows_that_see_nothing();
        queries_and_keys_differ();
        padding();
    });
}
