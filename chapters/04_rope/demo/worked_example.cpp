#include "chapters/04_rope/demo/worked_example.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "chapters/04_rope/rope.hpp"
#include "common/files/words.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The vectors of one head, each rotated to its position.
Matrix rotate(const Matrix& head,              // (T, D)
              const RotaryTable& table,        // (P, D/2)
              const IdVector& position_ids) {  // (T) -> (T, D)
    const auto [seq_len, head_dim] = dims(head);
    const Tensor4 states = reshape(head, {1, 1, seq_len, head_dim});
    const IdMatrix ids = reshape(position_ids, {1, seq_len});
    return reshape(apply_rotary_embedding(states, table, ids), {seq_len, head_dim});
}

Matrix dot_products(const Matrix& queries,  // (T, D)
                    const Matrix& keys) {   // (S, D) -> (T, S)
    return xt::linalg::dot(queries, xt::transpose(keys));
}

// With the divisor sqrt(D).
Matrix scores(const Matrix& queries,  // (T, D)
              const Matrix& keys) {   // (S, D) -> (T, S)
    return dot_products(queries, keys) / std::sqrt(static_cast<Real>(queries.shape(1)));
}

// The vector (cos angle, sin angle) as one line: an arc that shows the angle, then an arrow.
Line arrow(std::size_t position, double angle) {
    const double degrees = std::round(angle * 180 / std::numbers::pi);
    const std::string label = "position " + to_text(position) + ": " + brief(degrees) + "°";
    Line line{label, {}, {}};
    const auto line_to = [&](double radius, double direction) {
        line.x.push_back(radius * std::cos(direction));
        line.y.push_back(radius * std::sin(direction));
    };
    const double arc_radius = 0.75 - 0.15 * static_cast<double>(position);
    for (int i = 0; i <= 50; ++i) line_to(arc_radius, angle * i / 50);
    line_to(0, 0);
    for (const double head : {0.0, 0.06, 0.0, -0.06})
        line_to(head == 0 ? 1 : 0.9, angle + head);
    return line;
}

LinePlot rotating_vector(const std::string& title, double frequency) {
    LinePlot drawing{title, "first feature", "second feature", {}};
    for (std::size_t position = 0; position < 4; ++position)
        drawing.lines.push_back(arrow(position, frequency * static_cast<double>(position)));
    // The circle on which the vector moves.
    Line circle;
    for (int i = 0; i <= 100; ++i) {
        circle.x.push_back(std::cos(2 * std::numbers::pi * i / 100));
        circle.y.push_back(std::sin(2 * std::numbers::pi * i / 100));
    }
    drawing.lines.insert(drawing.lines.end(), {Line{}, circle});  // Line{}: skip a color
    drawing.same_scale = true;
    return drawing;
}

// The score of two words at several pairs of positions: at the same distance, and farther
// apart.
void said_and_lord(const Matrix& said_query,  // (1, D), before RoPE
                   const Matrix& lord_key,    // (1, D), before RoPE
                   const RotaryTable& table, Id query, Id key) {
    const IdVector said_positions{query,     query + 100, query + 200,
                                  query + 1, query + 11,  query + 61};
    const IdVector lord_positions{key, key + 100, key + 200, key, key, key};
    Matrix rows = xt::zeros<Real>({6, 2});
    std::vector<std::string> names;
    for (std::size_t row = 0; row < 6; ++row) {
        const Id said_at = said_positions(row), lord_at = lord_positions(row);
        const Matrix said = rotate(said_query, table, IdVector{said_at});
        const Matrix lord = rotate(lord_key, table, IdVector{lord_at});
        rows(row, 0) = static_cast<Real>(said_at - lord_at);
        rows(row, 1) = scores(said, lord)(0, 0);
        names.push_back("said at " + to_text(said_at) + ", LORD at " + to_text(lord_at));
    }
    show("said_and_lord", rows, names, {"distance", "score"});
}

// Each pair of both vectors after the rotation: its angle, its two features, and what it
// contributes to the dot product.
void show_rotated_pairs(const Matrix& said_query,  // (1, D), before RoPE
                        const Matrix& lord_key,    // (1, D), before RoPE
                        const Vector& frequencies, const RotaryTable& table, Id query, Id key) {
    const Matrix said = rotate(said_query, table, IdVector{query});
    const Matrix lord = rotate(lord_key, table, IdVector{key});
    const std::size_t num_pairs = frequencies.size();
    Matrix rows = xt::zeros<Real>({num_pairs, std::size_t{7}});
    std::vector<std::string> names;
    for (std::size_t i = 0; i < num_pairs; ++i) {
        const Real degrees = frequencies(i) * 180 / std::numbers::pi_v<Real>;
        const Real qx = said(0, i), qy = said(0, i + num_pairs);
        const Real kx = lord(0, i), ky = lord(0, i + num_pairs);
        const std::array<Real, 7> row = {
            Real(query) * degrees, qx, qy, Real(key) * degrees, kx, ky, qx * kx + qy * ky};
        std::copy(row.begin(), row.end(), &rows(i, 0));
        names.push_back("pair " + to_text(i));
    }
    show("rotated_pairs", rows, names,
         {"degrees of q", "x of q", "y of q", "degrees of k", "x of k", "y of k", "q · k"});
    say("The score is the sum of the last column, divided by √32.");
}

}  // namespace

void rotate_one_pair() {
    step("One pair: the vector (1, 0), rotated by 1 radian per position");
    const RotaryTable table = make_rotary_table(Vector{1}, 4);  // (P, 1)
    const IdVector positions = xt::arange<Id>(4);
    const Matrix queries{{1, 0}, {1, 0}, {1, 0}, {1, 0}};
    const Matrix rotated_queries = rotate(queries, table, positions);
    Matrix vectors = xt::zeros<Real>({4, 3});
    for (std::size_t t = 0; t < 4; ++t) {
        vectors(t, 0) = static_cast<Real>(t) * 180 / std::numbers::pi_v<Real>;
        vectors(t, 1) = rotated_queries(t, 0);
        vectors(t, 2) = rotated_queries(t, 1);
    }
    show("pair_at_positions_0_to_3", vectors,
         {"position 0", "position 1", "position 2", "position 3"}, {"degrees", "cos", "sin"});

    step("One pair: the scores of q = (1, 0) and k = (1, 1) at all positions");
    const Matrix keys{{1, 1}, {1, 1}, {1, 1}, {1, 1}};
    const Matrix pair_scores = dot_products(rotated_queries, rotate(keys, table, positions));
    show("pair_scores", pair_scores, {"q at 0", "q at 1", "q at 2", "q at 3"},
         {"k at 0", "k at 1", "k at 2", "k at 3"});
    plot("vectors", {rotating_vector("Pair 0: 1 radian per position", 1),
                     rotating_vector("Pair 1: 0.1 radians per position", 0.1)});
}

void rotate_words(const WordPositions& word_positions) {
    const Words words = load_words();
    const std::size_t D = words.head_queries.shape(1);
    // Head 4 of the queries, and key head 1, which it uses, before RoPE.
    const Matrix queries = xt::view(words.queries, xt::all(), xt::range(4 * D, 5 * D));
    const Matrix keys = xt::view(words.keys, xt::all(), xt::range(D, 2 * D));
    const auto [query, key, show_pairs] = word_positions;
    const Vector frequencies = inverse_frequencies(D, 10000);
    const RotaryTable table = make_rotary_table(frequencies, std::max(query, key) + 201);

    step("Five words: the scores before RoPE and after it");
    show("word_scores_before_rope", scores(queries, keys), words.tokens, words.tokens);
    const IdVector positions = xt::arange<Id>(5);
    const Matrix rotated_queries = rotate(queries, table, positions);
    const Matrix rotated_keys = rotate(keys, table, positions);
    show("word_scores", scores(rotated_queries, rotated_keys), words.tokens, words.tokens);

    step("Two words: the score of the query of \"said\" and the key of \"LORD\"");
    const Matrix said = xt::view(queries, xt::range(3, 4));
    const Matrix lord = xt::view(keys, xt::range(2, 3));
    said_and_lord(said, lord, table, Id(query), Id(key));
    if (show_pairs) show_rotated_pairs(said, lord, frequencies, table, Id(query), Id(key));
}

}  // namespace llm
