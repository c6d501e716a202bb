// Chapter 04 — How does attention know the positions of tokens? The program rotates one pair
// and two words, computes RoPE's frequencies and tables, rotates queries and keys, shows what a
// rotation preserves, compares the two layouts, and scales the frequencies.
#include <cmath>
#include <complex>
#include <numeric>

#include "chapters/01_masking/masking.hpp"
#include "chapters/02_projections/projections.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/demo/layouts.hpp"
#include "chapters/04_rope/demo/scaling.hpp"
#include "chapters/04_rope/demo/worked_example.hpp"
#include "chapters/04_rope/rope.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

// Over all elements of two tensors of the same shape.
template <class T>
Real dot_product(const T& a, const T& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), Real(0));
}
template <class T>
Real norm_of(const T& a) {
    return std::sqrt(dot_product(a, a));
}
template <class T>
Real cosine_similarity(const T& a, const T& b) {
    return dot_product(a, b) / (norm_of(a) * norm_of(b));
}

// 0, 1, 2, ... as the x values of a curve.
std::vector<double> x_values(std::size_t count) {
    return numbers_of(Vector(xt::arange<Real>(static_cast<Real>(count))));
}

RotaryTable rotary_tables(const Config& config, const RopeScaling& scaling,
                          const Vector& frequencies, std::size_t seq_len) {
    step("Inverse frequencies: the rotation of each pair per position");
    show("inverse_frequencies", frequencies);
    const std::string pair_0 = "Pair 0 rotates by 1 radian per position, about 57 degrees; the";
    say("In radians. " + (frequencies(0) == 1 ? pair_0 : "The") +
        " last pair has the lowest frequency.");

    step("Angle = position * inverse frequency");
    const Matrix positions =
        reshape(Vector(xt::arange<Real>(static_cast<Real>(seq_len))), {seq_len, 1});
    const Matrix angles = positions * reshape(frequencies, {1, frequencies.size()});
    show("angles", angles);

    step("Cosine and sine of each angle, computed once for all positions");
    const RotaryTable table = make_rotary_table(frequencies, config.max_position_embeddings);
    show("cos", table.cos);
    show("sin", table.sin);

    const RotaryTable wide =
        make_rotary_table(scaled_frequencies(scaling, 64, config.rope_theta), 64);
    plot("rotations",
         {Heatmap{"Cosine of each pair, head_dim 64", "pair", "position", wide.cos},
          Heatmap{"Sine of each pair", "pair", "position", wide.sin}});
    return table;
}

void tables_of_other_implementations(const RotaryTable& table, std::size_t seq_len) {
    step("Hugging Face repeats the halves, to multiply a whole head at once");
    show("cos_repeated", repeat_halves(table.cos));
    show("sin_repeated", repeat_halves(table.sin));

    step("Meta stores one complex number of magnitude 1 per pair: cos + j sin");
    const std::complex<Real> rotation(table.cos(seq_len - 1, 0), table.sin(seq_len - 1, 0));
    show("real part at the last position, pair 0", rotation.real());
    show("imaginary part", rotation.imag());
}

void hugging_face_formula(const Vector& frequencies,      // (D/2)
                          const Tensor4& queries,         // (B, H, T, D)
                          const Tensor4& query_states) {  // (B, H, T, D), after RoPE
    step("The same by Hugging Face's formula: x * cos + rotate_half(x) * sin");
    const std::size_t seq_len = queries.shape(2), head_dim = queries.shape(3);
    const RotaryTable rows = make_rotary_table(frequencies, seq_len);
    const Tensor4 cos = reshape(repeat_halves(rows.cos), {1, 1, seq_len, head_dim});
    const Tensor4 sin = reshape(repeat_halves(rows.sin), {1, 1, seq_len, head_dim});
    const Tensor4 by_formula = queries * cos + rotate_half(queries) * sin;
    show("largest difference", largest_difference(by_formula, query_states));
}

void rotate_queries_and_keys(const Config& config, const Vector& frequencies,
                             const RotaryTable& table, const Tensor3& hidden_states,
                             Generator& generator) {
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
    const Projections projections = make_projections(config, generator);
    const Tensor4 queries =
        split_heads(projections.q_proj(hidden_states), config.num_attention_heads);
    const Tensor4 keys =
        split_heads(projections.k_proj(hidden_states), config.num_key_value_heads);
    const IdMatrix positions = position_ids(batch_size, seq_len);

    step("Queries and keys before RoPE");
    show("query_states_before_rope", queries);
    show("key_states_before_rope", keys);

    step("Queries and keys after RoPE; position 0 is unchanged");
    const Tensor4 query_states = apply_rotary_embedding(queries, table, positions);
    const Tensor4 key_states = apply_rotary_embedding(keys, table, positions);
    show("query_states", query_states);
    show("key_states", key_states);
    say("Values are not rotated: positions influence the attention weights, not the values "
        "that are averaged.");
    hugging_face_formula(frequencies, queries, query_states);
}

void what_a_rotation_preserves(Generator& generator) {
    const Tensor4 query = randn({1, 1, 1, 8}, generator);
    const Tensor4 key = randn({1, 1, 1, 8}, generator);
    const RotaryTable table = make_rotary_table(inverse_frequencies(8, 10000), 8192);
    const auto at = [&](Id position, const Tensor4& vector) {
        return apply_rotary_embedding(vector, table, IdMatrix{{position}});
    };

    step("A rotation preserves the norm of a vector");
    show("norm of a query at position 0", norm_of(at(0, query)));
    show("norm at position 7", norm_of(at(7, query)));
    show("norm at position 4000", norm_of(at(4000, query)));

    step("The score depends on the relative position only");
    const auto score = [&](Id m, Id n) { return dot_product(at(m, query), at(n, key)); };
    show("query at 5, key at 2", score(5, 2));
    show("query at 205, key at 202", score(205, 202));
    show("query at 4005, key at 4002", score(4005, 4002));
    show("query at 5, key at 3", score(5, 3));
    say("The first three have the same relative position. They differ by rounding errors, "
        "which grow with the angle: a float32 of about 4000 has fewer digits after the point.");
    show("rounding error at 200", std::abs(score(205, 202) - score(5, 2)));
    show("rounding error at 4000", std::abs(score(4005, 4002) - score(5, 2)));
}

void score_by_distance(Generator& generator) {
    step("Score of a query and an equal key, by distance");
    constexpr std::size_t head_dim = 128, distances = 512, samples = 64;
    const RotaryTable table =
        make_rotary_table(inverse_frequencies(head_dim, 10000), distances);
    Vector mean_score = xt::zeros<Real>({distances});
    for (std::size_t sample = 0; sample < samples; ++sample) {
        const Tensor4 vector = randn({1, 1, 1, head_dim}, generator);
        const Tensor4 zeros =
            xt::zeros<Real>({std::size_t{1}, std::size_t{1}, distances, head_dim});
        const Tensor4 rotated =
            apply_rotary_embedding(zeros + vector, table, position_ids(1, distances));
        for (std::size_t distance = 0; distance < distances; ++distance)
            for (std::size_t d = 0; d < head_dim; ++d)
                mean_score(distance) +=
                    rotated(0, 0, distance, d) * vector(0, 0, 0, d) / Real(head_dim * samples);
    }
    for (const std::size_t distance : {0, 10, 100, 500})
        show("score at distance " + to_text(distance), mean_score(distance));
    say("The mean over 64 random vectors of 128 features, each used as query and as key.");
    plot("distance", {LinePlot{"Score of a query and an equal key, by distance",
                               "distance between query and key",
                               "score / D",
                               {Line{"", x_values(distances), numbers_of(mean_score)}}}});
}

// Cosine similarity of the residual stream and the position embeddings, before the first layer
// and after each layer.
Vector similarity_by_layer(const Matrix& token_embeddings,     // (T, C)
                           const Matrix& position_embeddings,  // (T, C)
                           std::size_t num_layers) {           // L -> (L + 1)
    Generator generator(1);
    Matrix residual_stream = token_embeddings + position_embeddings;  // (T, C)
    Vector similarity = xt::zeros<Real>({num_layers + 1});
    similarity(0) = cosine_similarity(residual_stream, position_embeddings);
    for (std::size_t layer = 1; layer <= num_layers; ++layer) {
        // Add a random linear map of the residual stream, scaled to an RMS of 1.
        const std::size_t width = residual_stream.shape(1);
        const Matrix output = make_linear(width, width, false, generator)(residual_stream);
        const Real rms = norm_of(output) / std::sqrt(static_cast<Real>(output.size()));
        residual_stream = residual_stream + output / rms;
        similarity(layer) = cosine_similarity(residual_stream, position_embeddings);
    }
    return similarity;
}

void absolute_positions(Generator& generator) {
    step("Absolute position embeddings, added once: their part of the stream");
    constexpr std::size_t num_layers = 24, seq_len = 32, hidden_size = 128;
    const Matrix tokens = randn({seq_len, hidden_size}, generator);
    const Matrix learned = randn({seq_len, hidden_size}, generator);  // like GPT-2's, untrained
    const Matrix sinusoidal = sinusoidal_positions(seq_len, hidden_size);
    show("sinusoidal_positions", sinusoidal);

    const Vector with_learned = similarity_by_layer(tokens, learned, num_layers);
    const Vector with_sinusoidal = similarity_by_layer(tokens, sinusoidal, num_layers);
    show("similarity_to_learned_positions", with_learned);
    show("similarity_to_sinusoidal_positions", with_sinusoidal);
    say("Each layer adds its output to the residual stream, and the position embeddings become "
        "a smaller part of the sum. The layers are random here; a trained model can preserve "
        "the embeddings. RoPE rotates the queries and keys of every layer by the same angles.");
    const auto layers = x_values(num_layers + 1);
    plot("depth",
         {LinePlot{"Residual stream and position embeddings",
                   "layer",
                   "cosine similarity",
                   {Line{"learned, added once", layers, numbers_of(with_learned)},
                    Line{"sinusoidal, added once", layers, numbers_of(with_sinusoidal)}}}});
}

void add_options(Options& options, Config& config, RopeScaling& scaling,
                 WordPositions& positions) {
    options.number("--rope-theta", config.rope_theta, 1, 1e9, "base of the frequencies");
    options.choice("--rope-type", scaling.rope_type, rope_types, "scaling of the frequencies");
    options.number("--factor", scaling.factor, 1, 1000, "factor of the scaling");
    options.count("--query-position", positions.query, 0, 4095, "position of \"said\"");
    options.count("--key-position", positions.key, 0, 4095, "position of \"LORD\"");
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    RopeScaling scaling;
    WordPositions positions;
    Options options("04_rope", "How does attention know the positions of tokens?");
    options.sizes(batch_size, seq_len, config);
    add_options(options, config, scaling, positions);

    return options.run(argc, argv, [&] {
        config = validate(config, seq_len);
        const Vector frequencies =
            scaled_frequencies(scaling, config.head_dim, config.rope_theta);
        rotate_one_pair();
        positions.show_pairs =
            options.given("--query-position") || options.given("--key-position");
        rotate_words(positions);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, config.hidden_size}, generator);
        const RotaryTable table = rotary_tables(config, scaling, frequencies, seq_len);
        tables_of_other_implementations(table, seq_len);
        rotate_queries_and_keys(config, frequencies, table, hidden_states, generator);
        what_a_rotation_preserves(generator);
        pairs_of_both_layouts();
        convert_between_layouts(config, frequencies, hidden_states, generator);
        score_by_distance(generator);
        show_wavelengths();
        absolute_positions(generator);
        show_rope_scaling(scaling.factor);
        show_half_precision_angles();
    });
}
