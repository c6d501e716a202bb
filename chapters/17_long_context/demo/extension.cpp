#include "chapters/17_long_context/demo/extension.hpp"

#include <numbers>

#include "chapters/17_long_context/demo/loss_by_part.hpp"
#include "chapters/17_long_context/loss_by_position.hpp"
#include "chapters/17_long_context/rope_extension.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
void frequencies_of_pairs(const Config& config, std::size_t factor) {
    step("What each extension divides the frequencies by");
    const Vector original = inverse_frequencies(config.head_dim, config.rope_theta);  // (D/2)
    const double context = double(config.max_position_embeddings);
    std::vector<Line> lines;
    std::vector<TableRow> rows(original.size());
    for (std::size_t i = 0; i < original.size(); ++i)
        rows[i] = {to_text(i),
                   fixed(context * double(original(i)) / (2 * std::numbers::pi), 2)};
    for (const auto& [name, extension] : rope_extensions()) {
        if (extension == RopeExtension::none) continue;
        const Vector frequencies = extended_frequencies(config, extension, factor);  // (D/2)
        Line line{name, {}, {}};
        for (std::size_t i = 0; i < original.size(); ++i) {
            const double divisor = double(original(i) / frequencies(i));
            rows[i].push_back(fixed(divisor, 2));
            line.x.push_back(double(i));
            line.y.push_back(divisor);
        }
        lines.push_back(line);
    }
    show_table({"pair", "rotations", "interpolation", "NTK-aware", "Llama 3's", "YaRN"}, rows);
    plot("frequencies", {LinePlot{"Divisor of the frequency", "pair", "divisor", lines}});
}

void loss_beyond_the_context(const Model& model, const std::vector<Id>& tokens,
                             std::size_t factor, std::size_t num_sequences) {
    step("Loss by position, from 1 to " + to_text(factor) + " times the trained context");
    const std::size_t part_len = model.config.max_position_embeddings;
    LossByPart comparison;
    for (const auto& [name, extension] : rope_extensions())
        comparison.add(
            name, loss_by_part(model, extended_rotary_table(model.config, extension, factor),
                               tokens, part_len, num_sequences));
    comparison.show(part_len);
    plot("extension", {LinePlot{"Loss beyond the context", "position / trained context", "loss",
                                comparison.lines}});
}

}  // namespace llm
