#include "chapters/04_rope/demo/layouts.hpp"

#include <cmath>
#include <numbers>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/04_rope/rope.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// An arc between the two features of a pair, with a dot at each end.
Line arc(const std::string& label, double first, double second) {
    Line line{label, {}, {}};
    const double center = (first + second) / 2, radius = (second - first) / 2;
    const auto ellipse = [&](double middle, double width, double height, double from,
                             double to) {
        for (int i = 0; i <= 40; ++i) {
            const double angle = std::numbers::pi * (from + (to - from) * i / 40);
            line.x.push_back(middle + width * std::cos(angle));
            line.y.push_back(height * std::sin(angle));
        }
    };
    ellipse(first, 0.12, 0.12, 0.5, 2.5);
    ellipse(center, radius, 1.5 * radius, 1, 0);
    ellipse(second, 0.12, 0.12, 0.5, 2.5);
    return line;
}

LinePlot arcs(const std::string& title, const Matrix& pair_of_feature) {  // (1, D)
    LinePlot drawing{title, "feature of the head", "", {}};
    const std::size_t head_dim = pair_of_feature.size();
    for (std::size_t pair = 0; pair < head_dim / 2; ++pair) {
        std::vector<double> features;
        for (std::size_t d = 0; d < head_dim; ++d)
            if (pair_of_feature(0, d) == static_cast<Real>(pair))
                features.push_back(static_cast<double>(d));
        drawing.lines.push_back(arc("pair " + to_text(pair), features.at(0), features.at(1)));
    }
    drawing.same_scale = true;
    return drawing;
}

}  // namespace

void pairs_of_both_layouts() {
    step("Which features of a head of 8 form a pair?");
    const Matrix split_half{{0, 1, 2, 3, 0, 1, 2, 3}};
    const Matrix interleaved{{0, 0, 1, 1, 2, 2, 3, 3}};
    show("pair_of_feature_split_half", split_half);
    show("pair_of_feature_interleaved", interleaved);
    plot("layouts", {arcs("Split halves", split_half), arcs("Interleaved", interleaved)});
}

void convert_between_layouts(const Config& config, const Vector& frequencies,
                             const Tensor3& hidden_states, Generator& generator) {
    const std::size_t num_heads = config.num_attention_heads,
                      width = num_heads * config.head_dim;
    const Linear q_proj = make_linear(config.hidden_size, width, false, generator);
    const Linear k_proj = make_linear(config.hidden_size, width, false, generator);
    const auto [batch_size, seq_len, hidden_size] = dims(hidden_states);
    const IdMatrix positions = position_ids(batch_size, seq_len);
    const RotaryTable table = make_rotary_table(frequencies, seq_len);

    // The scores of head 0 of sequence 0, (T, T).
    const auto scores = [&](const Linear& q, const Linear& k, RopeLayout layout) -> Matrix {
        const auto rotated = [&](const Linear& projection) {
            return apply_rotary_embedding(split_heads(projection(hidden_states), num_heads),
                                          table, positions, layout);
        };
        const Linear dot_with_keys{xt::view(rotated(k), 0, 0), std::nullopt};  // x Kᵀ
        return dot_with_keys(Matrix(xt::view(rotated(q), 0, 0)));
    };

    step("Weights trained with interleaved pairs, RoPE with interleaved pairs");
    const Matrix trained = scores(q_proj, k_proj, RopeLayout::interleaved);
    show("scores_interleaved", trained);

    step("Wrong: the same weights, RoPE with split halves");
    const Matrix wrong = scores(q_proj, k_proj, RopeLayout::split_half);
    show("scores_wrong_layout", wrong);
    show("largest difference", largest_difference(wrong, trained));
    say("All shapes match, and the values look plausible. Only a comparison with reference "
        "values shows the mistake.");

    step("Right: convert the weights to split halves first, by reordering rows");
    const Matrix converted =
        scores(interleaved_to_split_half(q_proj, num_heads),
               interleaved_to_split_half(k_proj, num_heads), RopeLayout::split_half);
    show("scores_converted", converted);
    show("largest difference", largest_difference(converted, trained));
}

}  // namespace llm
