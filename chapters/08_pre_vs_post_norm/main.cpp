// Chapter 08 — Where does the norm stand? The walk: one block opened up, five ways to arrange
// it with the same weights, and what each of them does to a stream of 48 layers.
#include "chapters/08_pre_vs_post_norm/block.hpp"

#include <cmath>

#include "common/numbers/statistics.hpp"
#include "common/system/options.hpp"
#include "common/system/parallel.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

using namespace llm;

struct Named {
    std::string name;
    Arrangement arrangement;
};
const std::vector<Named> arrangements = {{"pre-norm", Arrangement::pre_norm},
                                         {"post-norm", Arrangement::post_norm},
                                         {"res-post-norm", Arrangement::res_post_norm},
                                         {"sandwich", Arrangement::sandwich},
                                         {"parallel", Arrangement::parallel}};

double length(const Tensor3& states) {
    return root_mean_square(states) * std::sqrt(static_cast<double>(states.size()));
}

// The cosine of the angle between two streams: 1 for the same direction, 0 for no relation.
double similarity(const Tensor3& a, const Tensor3& b) {
    double products = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        products += double(a.data()[i]) * double(b.data()[i]);
    return products / (length(a) * length(b));
}

// The stream before the first layer and after each layer.
using Stream = std::vector<Tensor3>;
Stream run(Arrangement arrangement, const std::vector<Sublayers>& layers, const Tensor3& input,
           const Placement& placement) {
    Stream stream = {input};
    for (const Sublayers& sublayers : layers)
        stream.push_back(arranged(arrangement, sublayers)(stream.back(), placement));
    return stream;
}

void one_block(const Sublayers& sublayers, const Tensor3& hidden_states,
               const Placement& placement) {
    const Config& config = sublayers.self_attn.config;
    const RMSNorm norm = make_rms_norm(config.hidden_size, config.rms_norm_eps);

    step("A pre-norm block, opened: attention turns off the road and joins it again");
    show("hidden_states", hidden_states);
    const Tensor3 attention_output = sublayers.attend(norm(hidden_states), placement);
    show("attention_output", attention_output);
    const Tensor3 after_attention = hidden_states + attention_output;
    show("after_attention", after_attention);

    step("Then the MLP does the same");
    const Tensor3 mlp_output = sublayers.mlp(norm(after_attention));
    show("mlp_output", mlp_output);
    const Tensor3 block_output = after_attention + mlp_output;
    show("block_output", block_output);
    show_table({"", "size"},
               {{"the stream", fixed(root_mean_square(hidden_states), 3)},
                {"attention adds", fixed(root_mean_square(attention_output), 3)},
                {"the MLP adds", fixed(root_mean_square(mlp_output), 3)},
                {"the stream behind the block", fixed(root_mean_square(block_output), 3)}});
}

void five_arrangements(const Sublayers& sublayers, const Tensor3& hidden_states,
                       const Placement& placement) {
    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, const Tensor3& output) {
        rows.push_back({name});
        for (std::size_t i = 0; i < 4; ++i)  // from the start of token 0
            rows.back().push_back(fixed(output.data()[i % output.size()], 4));
        rows.back().push_back(fixed(root_mean_square(output), 3));
    };
    step("Five arrangements of the same weights");
    for (const auto& [name, arrangement] : arrangements)
        row(name, arranged(arrangement, sublayers)(hidden_states, placement));
    show_table({"token 0 of the output", "0", "1", "2", "3", "size"}, rows);

    step("Wrong: two blocks that look right");
    const Config& config = sublayers.self_attn.config;
    const RMSNorm norm = make_rms_norm(config.hidden_size, config.rms_norm_eps);
    const Tensor3 normalized = norm(hidden_states);
    const Tensor3 after_attention = hidden_states + sublayers.attend(normalized, placement);
    const Tensor3 skip_after_norm = normalized + sublayers.attend(normalized, placement);
    rows.clear();
    row("right: pre-norm", after_attention + sublayers.mlp(norm(after_attention)));
    row("wrong: second skip from the input",
        hidden_states + sublayers.mlp(norm(after_attention)));
    row("wrong: skip taken behind the norm",
        norm(skip_after_norm) + sublayers.mlp(norm(skip_after_norm)));
    show_table({"token 0 of the output", "0", "1", "2", "3", "size"}, rows);
    say("In the first wrong one, what attention found reaches the next block only through the "
        "MLP. In the second, there is no road: every block normalises what it passes on.");
}

// Layers whose weights are gain times as large as PyTorch starts them. With the root of 3 a
// matrix keeps the size of what it multiplies.
std::vector<Sublayers> random_layers(std::size_t count, Real gain, Generator& generator) {
    std::vector<Sublayers> layers;
    for (std::size_t layer = 0; layer < count; ++layer) {
        Sublayers sublayers = make_sublayers(complete(Config{}, 10), 352, generator);
        auto& [q_proj, k_proj, v_proj, o_proj] = sublayers.self_attn.projections;
        GatedMlp& mlp = sublayers.mlp;
        for (Linear* linear :
             {&q_proj, &k_proj, &v_proj, &o_proj, &mlp.gate_proj, &mlp.up_proj, &mlp.down_proj})
            linear->weight = linear->weight * gain;
        layers.push_back(std::move(sublayers));
    }
    return layers;
}

// One input, the same a little changed, and 48 layers to send them through, in every
// arrangement. The sizes are always those of the walk, whatever the options say.
struct Experiment {
    std::vector<Sublayers> layers;
    Placement placement = causal_placement(complete(Config{}, 10), 1, 10);
    Tensor3 input, change;
    std::vector<Stream> streams, changed;  // of each arrangement

    Experiment(Real gain, std::uint32_t seed)
        : streams(arrangements.size()), changed(arrangements.size()) {
        Generator generator(seed);
        input = randn({1, 10, 128}, generator);
        change = randn({1, 10, 128}, generator) * Real(0.001);
        layers = random_layers(48, gain, generator);
        const Tensor3 changed_input = input + change;
        in_parallel(2 * arrangements.size(), [&](std::size_t i) {
            const Arrangement arrangement = arrangements[i / 2].arrangement;
            if (i % 2 == 0)
                streams[i / 2] = run(arrangement, layers, input, placement);
            else
                changed[i / 2] = run(arrangement, layers, changed_input, placement);
        });
    }

    // By what factor the change has grown after each layer, in proportion to the stream.
    std::vector<double> response(std::size_t which) const {
        const Stream& stream = streams[which];
        std::vector<double> factors;
        for (std::size_t layer = 0; layer < stream.size(); ++layer)
            factors.push_back(length(changed[which][layer] - stream[layer]) / length(change) *
                              length(input) / length(stream[layer]));
        return factors;
    }
};

// Two or three digits: more would differ from processor to processor.
std::string factor(double number) {
    return number > 1000 ? ">1000" : fixed(number, number < 10 ? 2 : 0);
}

const Real root_of_3 = std::sqrt(Real(3));

void through_48_layers(const Experiment& experiment) {
    step("48 layers of random weights that keep sizes: what becomes of the stream?");
    std::vector<Line> sizes, changes, similarities, responses;
    std::vector<TableRow> rows;
    for (std::size_t which = 0; which < arrangements.size(); ++which) {
        const std::string& name = arrangements[which].name;
        const Stream& stream = experiment.streams[which];
        const std::vector<double> response = experiment.response(which);
        for (std::vector<Line>* lines : {&sizes, &changes, &similarities, &responses})
            lines->push_back({name, {}, {}});
        for (std::size_t layer = 1; layer < stream.size(); ++layer) {
            for (std::vector<Line>* lines : {&sizes, &changes, &similarities, &responses})
                lines->back().x.push_back(static_cast<double>(layer));
            sizes.back().y.push_back(root_mean_square(stream[layer]));
            changes.back().y.push_back(length(stream[layer] - stream[layer - 1]) /
                                       length(stream[layer - 1]));
            similarities.back().y.push_back(similarity(stream[layer], stream[layer - 1]));
            responses.back().y.push_back(response[layer]);
            if (layer == 1 || layer == 12 || layer == 48)
                rows.push_back(
                    {name, std::to_string(layer), fixed(sizes.back().y.back(), 2),
                     fixed(changes.back().y.back(), 2), fixed(similarities.back().y.back(), 2),
                     fixed(similarity(stream[layer], stream[0]), 2), factor(response[layer])});
        }
    }
    show_table({"", "layer", "size", "change", "like before", "like the input", "response"},
               rows);
    say("size: root mean square. change: length of what the layer changed, over the length of "
        "the "
        "stream before it. like before, like the input: cosine of the angle to the stream one "
        "layer before, and to the input. response: how much a small change of the input has "
        "grown, in proportion to the stream.");
    plot("depth", {LinePlot{"Size of the stream", "layer", "", sizes},
                   LinePlot{"Change by each layer", "layer", "", changes},
                   LinePlot{"Likeness to the layer before", "layer", "", similarities}});
    plot("response",
         {LinePlot{"Growth of a small change of the input", "layer", "", responses, true}});
}

void larger_and_smaller_weights(std::uint32_t seed) {
    step("Weights gain times as large as PyTorch starts them: response after 48 layers");
    std::vector<TableRow> rows;
    for (const Real gain : {Real(1), root_of_3, Real(3)}) {
        const Experiment experiment(gain, seed);
        rows.push_back({fixed(gain, 2)});
        for (std::size_t which = 0; which < arrangements.size(); ++which)
            rows.back().push_back(factor(experiment.response(which).back()));
    }
    TableRow headings = {"gain"};
    for (const auto& [name, arrangement] : arrangements) headings.push_back(name);
    show_table(headings, rows);
}

void residual_scaling(const Experiment& experiment) {
    step("GPT-2's remedy: what joins the road shrinks by the root of 2 L");
    std::vector<Sublayers> scaled;
    for (const Sublayers& sublayers : experiment.layers)
        scaled.push_back(scaled_for_depth(sublayers, experiment.layers.size()));
    std::vector<TableRow> rows;
    for (const bool scale : {false, true}) {
        const Stream stream = run(Arrangement::pre_norm, scale ? scaled : experiment.layers,
                                  experiment.input, experiment.placement);
        rows.push_back(
            {scale ? "pre-norm, scaled" : "pre-norm", fixed(root_mean_square(stream[1]), 3),
             fixed(root_mean_square(stream[12]), 3), fixed(root_mean_square(stream[48]), 3),
             fixed(similarity(stream[48], stream[0]), 3)});
    }
    show_table({"size after layer", "1", "12", "48", "48: like the input"}, rows);
}

void final_norm(const Experiment& experiment) {
    step("The last norm: pre-norm needs one, post-norm has it");
    std::vector<TableRow> rows;
    const RMSNorm norm = make_rms_norm(128, Real(1e-5));
    for (std::size_t which = 0; which < arrangements.size(); ++which) {
        const Tensor3& output = experiment.streams[which].back();
        rows.push_back({arrangements[which].name, fixed(root_mean_square(output), 3),
                        fixed(root_mean_square(norm(output)), 3)});
    }
    show_table({"after 48 layers", "size", "with a final norm"}, rows);
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10, intermediate_size = 0;
    Options options("08_pre_vs_post_norm", "Where does the norm stand?");
    options.sizes(batch_size, seq_len, config);
    options.size("--intermediate-size", intermediate_size);

    return options.run(argc, argv, [&] {
        const Config checked = complete(config, seq_len);
        const std::size_t width = intermediate_size > 0
                                      ? intermediate_size
                                      : llama_intermediate_size(checked.hidden_size, 32);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        const Sublayers sublayers = make_sublayers(checked, width, generator);
        const Placement placement = causal_placement(checked, batch_size, seq_len);

        one_block(sublayers, hidden_states, placement);
        five_arrangements(sublayers, hidden_states, placement);
        const Experiment experiment(root_of_3, options.seed());
        through_48_layers(experiment);
        larger_and_smaller_weights(options.seed());
        residual_scaling(experiment);
        final_norm(experiment);
    });
}
