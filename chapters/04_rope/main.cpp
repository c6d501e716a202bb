// Chapter 04 — How does a token know where it stands? The walk: from frequencies to rotated
// queries and keys, what the rotation leaves alone, the two layouts, and longer contexts.
#include "chapters/04_rope/rope.hpp"

#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

#include "common/tensors/half.hpp"
#include "common/numbers/statistics.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

using namespace llm;

// Of two tensors of the same shape, number by number.
template <class T>
Real dot_product(const T& a, const T& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), Real(0));
}
template <class T>
Real length_of(const T& a) {
    return std::sqrt(dot_product(a, a));
}

// 0, 1, 2, ... as the x values of a curve.
std::vector<double> counted(std::size_t count) {
    return numbers_of(Vector(xt::arange<Real>(static_cast<Real>(count))));
}

RotaryTable tables(const Config& config, std::size_t seq_len) {
    step("How far does each pair turn from one position to the next?");
    const Vector frequencies = inverse_frequencies(config.head_dim, config.rope_theta);
    show("inverse_frequencies", frequencies);
    say("Pair 0 turns by 1 radian per position, about 57 degrees. The last pair hardly moves.");

    step("Angle = position * inverse frequency");
    const RotaryTable table = make_rotary_table(frequencies, config.max_position_embeddings);
    const Matrix positions =
        reshape(Vector(xt::arange<Real>(static_cast<Real>(seq_len))), {seq_len, 1});
    const Matrix angles = positions * reshape(frequencies, {1, frequencies.size()});
    show("angles", angles);

    step("Cosines and sines for every position, computed once");
    show("cos", table.cos);
    show("sin", table.sin);

    const RotaryTable wide = make_rotary_table(inverse_frequencies(64, config.rope_theta), 64);
    plot("turning",
         {Heatmap{"Cosine of each pair of a head of 64", "pair", "position", wide.cos},
          Heatmap{"Sine", "pair", "position", wide.sin}});

    step("Hugging Face repeats the halves to multiply a whole head at once");
    show("cos_repeated", repeat_halves(table.cos));
    show("sin_repeated", repeat_halves(table.sin));

    step("Meta keeps one complex number of length 1 per pair: cos + i sin");
    const std::complex<Real> turn = std::polar(Real(1), angles(seq_len - 1, 0));
    show("real part at the last position, pair 0", turn.real());
    show("imaginary part", turn.imag());
    return table;
}

void one_pair_by_hand() {
    step("One pair by hand: the point (1, 0), turned by a quarter per position");
    const Real quarter = std::numbers::pi_v<Real> / 2;
    const RotaryTable table = make_rotary_table(Vector{quarter}, 4);
    const Tensor4 points = reshape(Vector{1, 0, 1, 0, 1, 0, 1, 0}, {1, 1, 4, 2});
    const Tensor4 turned = rotate_split_half(points, table, position_ids(1, 4));
    Matrix rounded = reshape(turned, {4, 2});
    for (Real& number : rounded) number = std::round(number) + Real(0);  // not -4e-8, not -0
    show("point_at_positions_0_to_3", rounded);
}

void rotate_the_walk(const Config& config, const RotaryTable& table,
                     const Tensor3& hidden_states, Generator& generator) {
    const Projections projections = make_projections(config, generator);
    const Tensor4 queries =
        split_heads(projections.q_proj(hidden_states), config.num_attention_heads);
    const Tensor4 keys =
        split_heads(projections.k_proj(hidden_states), config.num_key_value_heads);
    const IdMatrix positions = position_ids(hidden_states.shape(0), hidden_states.shape(1));

    step("Queries and keys before the rotation");
    show("query_states_unrotated", queries);
    show("key_states_unrotated", keys);

    step("And after it. Row 0 stands at position 0: it is unchanged");
    const Tensor4 query_states = rotate_split_half(queries, table, positions);
    const Tensor4 key_states = rotate_split_half(keys, table, positions);
    show("query_states", query_states);
    show("key_states", key_states);
    say("Values are not rotated. Position decides who listens to whom, not what is said.");

    step("The same in Hugging Face's words: x * cos + rotate_half(x) * sin");
    const std::size_t seq_len = hidden_states.shape(1), head_dim = config.head_dim;
    const RotaryTable rows =
        make_rotary_table(inverse_frequencies(head_dim, config.rope_theta), seq_len);
    const Tensor4 cos = reshape(repeat_halves(rows.cos), {1, 1, seq_len, head_dim});
    const Tensor4 sin = reshape(repeat_halves(rows.sin), {1, 1, seq_len, head_dim});
    const Tensor4 as_formula = queries * cos + rotate_half(queries) * sin;
    show("largest difference", largest_difference(as_formula, query_states));
}

void what_a_rotation_keeps(Generator& generator) {
    const Tensor4 query = randn({1, 1, 1, 8}, generator);
    const Tensor4 key = randn({1, 1, 1, 8}, generator);
    const RotaryTable table = make_rotary_table(inverse_frequencies(8, 10000), 8192);
    const auto at = [&](Id position, const Tensor4& vector) {
        return rotate_split_half(vector, table, IdMatrix{{position}});
    };

    step("Lengths stay");
    show("length of a query at position 0", length_of(at(0, query)));
    show("length at position 7", length_of(at(7, query)));
    show("length at position 4000", length_of(at(4000, query)));

    step("The score depends on the distance alone");
    const auto score = [&](Id m, Id n) { return dot_product(at(m, query), at(n, key)); };
    show("query at 5, key at 2", score(5, 2));
    show("query at 205, key at 202", score(205, 202));
    show("query at 4005, key at 4002", score(4005, 4002));
    show("query at 5, key at 3", score(5, 3));
    say("The first three have the same distance. They drift apart in the last digits only: an "
        "angle of 4000 radians leaves a float fewer digits behind the point.");
    show("drift at 200", std::abs(score(205, 202) - score(5, 2)));
    show("drift at 4000", std::abs(score(4005, 4002) - score(5, 2)));
}

void score_against_distance(Generator& generator) {
    step("Scores against distance: the same content fits best nearby");
    constexpr std::size_t head_dim = 128, distances = 512, samples = 64;
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(head_dim, 10000), distances);
    Vector mean_score = xt::zeros<Real>({distances});
    for (std::size_t sample = 0; sample < samples; ++sample) {
        const Tensor4 content = randn({1, 1, 1, head_dim}, generator);
        const Tensor4 nothing =
            xt::zeros<Real>({std::size_t{1}, std::size_t{1}, distances, head_dim});
        const Tensor4 turned =
            rotate_split_half(nothing + content, table, position_ids(1, distances));
        for (std::size_t distance = 0; distance < distances; ++distance)
            for (std::size_t d = 0; d < head_dim; ++d)
                mean_score(distance) +=
                    turned(0, 0, distance, d) * content(0, 0, 0, d) / Real(head_dim * samples);
    }
    show("score at distance 0", mean_score(0));
    show("score at distance 10", mean_score(10));
    show("score at distance 100", mean_score(100));
    show("score at distance 500", mean_score(500));
    say("Content that is its own key: the average over 64 random vectors of 128 numbers.");
    plot("distance", {LinePlot{"Score of equal content against distance",
                               "distance of query and key",
                               "score / D",
                               {Line{"", counted(distances), numbers_of(mean_score)}}}});
}

void pairs_of_both_layouts() {
    step("Which numbers of a head of 8 make a pair?");
    const Matrix split_half{{0, 1, 2, 3, 0, 1, 2, 3}};
    const Matrix interleaved{{0, 0, 1, 1, 2, 2, 3, 3}};
    show("pair_of_place_split_half", split_half);
    show("pair_of_place_interleaved", interleaved);
    plot(
        "layouts",
        {Heatmap{"Split-half: the pair of each place", "place in the head", "", split_half},
         Heatmap{"Interleaved: the pair of each place", "place in the head", "", interleaved}});
}

void layouts(const Config& config, const Tensor3& hidden_states, Generator& generator) {
    const std::size_t heads = config.num_attention_heads, seq_len = hidden_states.shape(1);
    const Linear q_proj =
        make_linear(config.hidden_size, heads * config.head_dim, false, generator);
    const Linear k_proj =
        make_linear(config.hidden_size, heads * config.head_dim, false, generator);
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(config.head_dim, config.rope_theta), seq_len);
    const IdMatrix positions = position_ids(hidden_states.shape(0), seq_len);
    // The scores of sequence 0, head 0.
    const auto scores = [&](const Linear& q, const Linear& k, auto rotate) -> Matrix {
        const Tensor4 queries = rotate(split_heads(q(hidden_states), heads), table, positions);
        const Tensor4 keys = rotate(split_heads(k(hidden_states), heads), table, positions);
        const Linear fits_to_keys{xt::view(keys, 0, 0), std::nullopt};  // x Kᵀ: a score per key
        return fits_to_keys(Matrix(xt::view(queries, 0, 0)));
    };

    step("Weights trained with interleaved pairs");
    const Matrix trained = scores(q_proj, k_proj, rotate_interleaved);
    show("scores_interleaved", trained);

    step("Wrong: the same weights, rotated in split halves");
    const Matrix garbage = scores(q_proj, k_proj, rotate_split_half);
    show("scores_wrong_layout", garbage);
    show("largest difference", largest_difference(garbage, trained));
    say("Every shape fits and no number is strange. A loaded model would write nonsense.");

    step("Right: reorder the rows of W_q and W_k first, then rotate in split halves");
    const Matrix bridged = scores(interleaved_to_split_half(q_proj, heads),
                                  interleaved_to_split_half(k_proj, heads), rotate_split_half);
    show("scores_reordered", bridged);
    show("largest difference", largest_difference(bridged, trained));
}

void wavelengths() {
    step("Positions per full turn, for heads of 128 numbers");
    std::vector<Line> lines;
    for (const Real theta : {10000, 500000, 1000000}) {
        const Vector frequencies = inverse_frequencies(128, theta);
        Vector lengths = frequencies;
        for (Real& length : lengths) length = 2 * std::numbers::pi_v<Real> / length;
        show("theta", theta);
        show("  fastest pair", lengths(0));
        show("  middle pair", lengths(32));
        show("  slowest pair", lengths(63));
        const std::string label = "theta " + to_text(static_cast<std::size_t>(theta));
        lines.push_back({label, counted(64), numbers_of(lengths)});
    }
    lines.push_back({"context of 8192", {0, 63}, {8192, 8192}});
    say("A pair that never completes a turn within the context tells absolute order; a fast "
        "one tells near distances precisely and repeats itself.");
    plot("wavelengths", {LinePlot{"Positions per turn", "pair", "positions", lines, true}});
}

// What is left of a signal in the residual stream: the cosine between the two.
Real cosine(const Matrix& a, const Matrix& b) {
    return dot_product(a, b) / (length_of(a) * length_of(b));
}

// The share of the positions in a stream, before the first layer and after each one.
Vector share_by_layer(const Matrix& content, const Matrix& positions, std::size_t layers) {
    Generator generator(1);
    Matrix stream = content + positions;
    Vector shares = xt::zeros<Real>({layers + 1});
    shares(0) = cosine(stream, positions);
    for (std::size_t layer = 1; layer <= layers; ++layer) {
        // A random layer stands for whatever a layer does, at the size of the content.
        const std::size_t width = stream.shape(1);
        const Matrix change = make_linear(width, width, false, generator)(stream);
        const Real size = length_of(change) / std::sqrt(static_cast<Real>(change.size()));
        stream = stream + change / size;
        shares(layer) = cosine(stream, positions);
    }
    return shares;
}

void once_or_in_every_layer(Generator& generator) {
    step("Positions added once: what is left of them 24 layers later?");
    constexpr std::size_t layers = 24, seq_len = 32, hidden_size = 128;
    const Matrix content = randn({seq_len, hidden_size}, generator);
    const Matrix learned =
        randn({seq_len, hidden_size}, generator);  // GPT-2's table, untrained
    const Matrix sinusoidal = sinusoidal_positions(seq_len, hidden_size);
    show("sinusoidal_positions", sinusoidal);

    const Vector learned_share = share_by_layer(content, learned, layers);
    const Vector sinusoidal_share = share_by_layer(content, sinusoidal, layers);
    show("share_of_learned_positions", learned_share);
    show("share_of_sinusoidal_positions", sinusoidal_share);
    say("The layers here are random, so this shows dilution only: a trained model can keep "
        "positions alive, but it has to spend weights on it. A rotation is applied to queries "
        "and keys anew in every layer, so its share is the same in the first and the last.");
    const auto depth = counted(layers + 1);
    plot("depth",
         {LinePlot{"Share of the position signal",
                   "layer",
                   "cosine between stream and positions",
                   {Line{"learned, added once", depth, numbers_of(learned_share)},
                    Line{"sinusoidal, added once", depth, numbers_of(sinusoidal_share)}}}});
}

void longer_contexts() {
    step("A model trained on 8192 positions, used on 8 times as many");
    constexpr std::size_t head_dim = 128;
    const Real theta = 500000, factor = 8;
    const Vector plain = inverse_frequencies(head_dim, theta);
    const Vector interpolated = interpolate_positions(plain, factor);
    const Vector ntk = inverse_frequencies(head_dim, ntk_theta(theta, factor, head_dim));
    const Vector llama3 = scale_like_llama3(plain, Llama3Scaling{});
    show("ntk_theta", ntk_theta(theta, factor, head_dim));

    say("How many times slower than before do pairs 0, 16, 32, 48 and 63 turn? Columns: "
        "interpolation, NTK, Llama 3.1.");
    const Vector by_interpolation = plain / interpolated;
    const Vector by_ntk = plain / ntk;
    const Vector by_llama3 = plain / llama3;
    Matrix slowdown = xt::zeros<Real>({5, 3});
    for (std::size_t row = 0; row < 5; ++row) {
        const std::size_t pair = std::min<std::size_t>(16 * row, 63);
        slowdown(row, 0) = by_interpolation(pair);
        slowdown(row, 1) = by_ntk(pair);
        slowdown(row, 2) = by_llama3(pair);
    }
    show("slowdown", slowdown);
    const auto pairs = counted(head_dim / 2);
    plot("scaling", {LinePlot{"How much slower each pair turns (factor 8)",
                              "pair",
                              "times slower",
                              {Line{"interpolation", pairs, numbers_of(by_interpolation)},
                               Line{"NTK", pairs, numbers_of(by_ntk)},
                               Line{"Llama 3.1", pairs, numbers_of(by_llama3)}}}});
}

void half_precision() {
    step("Wrong: angles in half precision");
    const Vector frequencies = inverse_frequencies(8, 10000);
    const Real position = 4001;
    Matrix cosines = xt::zeros<Real>({2, 4});
    for (std::size_t i = 0; i < 4; ++i) {
        cosines(0, i) = std::cos(position * frequencies(i));
        const Half angle = Half(position) * Half(frequencies(i));
        cosines(1, i) = std::cos(static_cast<Real>(angle));
    }
    show("cos_at_4001_float_and_half", cosines);
    show("4001 in half precision", static_cast<Real>(Half(position)));
    show("4002 in half precision", static_cast<Real>(Half(4002)));
    say("float16 has no odd numbers above 2048, bfloat16 none above 256. So tables are "
        "computed in float32, even for "
        "models whose weights are half as wide.");
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    Options options("04_rope", "How does a token know where it stands?");
    options.sizes(batch_size, seq_len, config);

    return options.run(argc, argv, [&] {
        const Config checked = complete(config, seq_len);
        require(checked.head_dim % 2 == 0,
                "rope: a head of {} numbers cannot be cut into pairs", checked.head_dim);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        const RotaryTable table = tables(checked, seq_len);
        one_pair_by_hand();
        rotate_the_walk(checked, table, hidden_states, generator);
        what_a_rotation_keeps(generator);
        pairs_of_both_layouts();
        layouts(checked, hidden_states, generator);
        score_against_distance(generator);
        wavelengths();
        once_or_in_every_layer(generator);
        longer_contexts();
        half_precision();
    });
}
