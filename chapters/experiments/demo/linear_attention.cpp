// Linear attention with each of its updates, softmax attention and a hybrid.
#include <algorithm>
#include <map>

#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "chapters/experiments/hybrid_decoder.hpp"
#include "chapters/experiments/passkey.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

const HybridLayer softmax_layer = std::nullopt;
const HybridLayer linear_layer = LinearVariant{UpdateRule::additive, false, false};
const HybridLayer decay_layer = LinearVariant{UpdateRule::additive, false, true};
const HybridLayer delta_layer = LinearVariant{UpdateRule::delta, true, false};
const HybridLayer gated_delta_layer = LinearVariant{UpdateRule::delta, true, true};

struct Variant {
    std::string name;
    std::vector<HybridLayer> layers;  // L
};
// The last layer of the hybrid has softmax attention.
std::vector<Variant> make_variants(std::size_t num_layers) {
    const auto all = [&](const std::string& name, const HybridLayer& layer) {
        return Variant{name, std::vector<HybridLayer>(num_layers, layer)};
    };
    Variant hybrid = all("hybrid", gated_delta_layer);
    hybrid.layers.back() = softmax_layer;
    return {all("softmax", softmax_layer),
            all("linear", linear_layer),
            all("decay", decay_layer),
            all("delta rule", delta_layer),
            all("gated delta rule", gated_delta_layer),
            hybrid};
}

// Two layers with four heads of 8 features: a state has room for 8 orthogonal keys.
const PasskeyVocabulary vocabulary{8, 16, 0};
const std::vector<std::size_t> numbers_of_pairs = {2, 4, 8, 16};

Config recall_config() {
    Config config = small_config(vocabulary.size(), 64);
    config.num_hidden_layers = 2;
    config.num_key_value_heads = config.num_attention_heads;
    config.head_dim = 8;
    return validate_model(config);
}

ResponseBatch recall_batch(std::size_t batch_size, std::size_t num_pairs,
                           Generator& generator) {
    return passkey_batch(batch_size, 4 * num_pairs - 1, num_pairs, generator, vocabulary);
}

// The fraction of the asked keys whose value is the most likely token.
double recall_accuracy(const HybridDecoder& model, const ResponseBatch& batch) {
    const Tensor3 logits = model(batch.input_ids);
    const auto [batch_size, seq_len, vocab_size] = dims(logits);
    double num_correct = 0, num_asked = 0;
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t) {
            if (batch.response_mask(b, t) == 0) continue;
            const Real* row = &logits(b, t, 0);
            num_correct += std::max_element(row, row + vocab_size) - row == batch.targets(b, t);
            ++num_asked;
        }
    return num_correct / num_asked;
}

// What knows the values of a text but not their keys can reach: the percentage of the asked
// values that are those of a random pair, and the most common value of the text.
struct RecallControls {
    double random_pair = 0, most_common = 0;
};
RecallControls recall_controls(const ResponseBatch& batch) {
    RecallControls sums;
    double num_asked = 0;
    const auto [batch_size, seq_len] = dims(batch.targets);
    for (std::size_t b = 0; b < batch_size; ++b) {
        std::map<Id, double> counts;  // each pair of the text is asked once
        double num_pairs = 0;
        for (std::size_t t = 0; t < seq_len; ++t)
            if (batch.response_mask(b, t) != 0) ++counts[batch.targets(b, t)], ++num_pairs;
        double largest = 0;
        for (const auto& [value, count] : counts) {
            sums.random_pair += count * count / num_pairs;
            largest = std::max(largest, count);
        }
        sums.most_common += largest;
        num_asked += num_pairs;
    }
    return {100 * sums.random_pair / num_asked, 100 * sums.most_common / num_asked};
}

// The accuracy for each number of pairs, after training on all of them in turn.
std::vector<double> run_recall(const Variant& variant, std::size_t num_steps,
                               std::uint32_t seed) {
    Generator generator(seed);
    HybridDecoder model = make_hybrid_decoder(recall_config(), variant.layers, generator);
    initialize(model, generator);
    TrainingArguments args = small_run_arguments(64, num_steps, seed);
    args.lr_schedule.learning_rate = Real(0.01);
    args.lr_schedule.min_learning_rate = Real(0.001);
    run_training_loop<HybridDecoder>(model, args, [&](HybridDecoder& gradient) {
        const std::size_t choice = generator.next_32_bits() % numbers_of_pairs.size();
        // Fewer sequences of more pairs: as many questions in each batch.
        const std::size_t num_pairs = numbers_of_pairs[choice];
        return forward_backward_of_values(
            model, recall_batch(128 / num_pairs, num_pairs, generator), gradient);
    });
    std::vector<double> accuracies;
    Generator test_generator(1000 + seed);
    for (const std::size_t num_pairs : numbers_of_pairs)
        accuracies.push_back(
            100 *
            recall_accuracy(model, recall_batch(1024 / num_pairs, num_pairs, test_generator)));
    return accuracies;
}

// The parameters of the attention of all layers.
std::uint64_t attention_parameters(const Config& config, const Variant& variant) {
    Generator generator(1);
    HybridDecoder model = make_hybrid_decoder(config, variant.layers, generator);
    std::uint64_t count = 0;
    for (const Parameter& parameter : named_parameters(model))
        if (parameter.name.find("self_attn") != std::string::npos)
            count += parameter.values.size();
    return count;
}

}  // namespace

void compare_recall(std::size_t num_steps, std::size_t num_seeds) {
    step("Associative recall: the value of each of many keys");
    const std::vector<Variant> variants = make_variants(2);
    std::vector<std::vector<double>> accuracies(variants.size() * num_seeds);
    run_all(accuracies.size(), [&](std::size_t i) {
        accuracies[i] =
            run_recall(variants[i / num_seeds], num_steps, std::uint32_t(1 + i % num_seeds));
    });
    TableRow headings = {"% correct, pairs"};
    std::vector<TableRow> rows(variants.size() + 2);
    std::vector<Line> means;
    Line each_seed{"one seed", {}, {}, LineStyle::points};
    for (const Variant& variant : variants) means.push_back({variant.name, {}, {}});
    means.push_back({"most common value", {}, {}, LineStyle::reference});
    rows[variants.size()] = {"a random pair"};
    rows.back() = {means.back().label};
    Generator generator(1000);
    for (std::size_t p = 0; p < numbers_of_pairs.size(); ++p) {
        const std::size_t num_pairs = numbers_of_pairs[p];
        headings.push_back(to_text(num_pairs));
        const auto add = [&](Line& line, double percentage) {
            line.x.push_back(double(num_pairs));
            line.y.push_back(percentage);
        };
        for (std::size_t v = 0; v < variants.size(); ++v) {
            std::vector<double> of_seeds;
            for (std::size_t n = 0; n < num_seeds; ++n)
                of_seeds.push_back(accuracies[v * num_seeds + n][p]);
            if (p == 0) rows[v] = {variants[v].name};
            rows[v].push_back(mean_and_spread(of_seeds, 0));
            add(means[v], mean_of(of_seeds));
            for (const double accuracy : of_seeds) add(each_seed, accuracy);
        }
        const RecallControls controls =
            recall_controls(recall_batch(16384 / num_pairs, num_pairs, generator));
        rows[variants.size()].push_back(fixed(controls.random_pair, 0));
        rows.back().push_back(fixed(controls.most_common, 0));
        add(means.back(), controls.most_common);
    }
    show_table(headings, rows);
    means.push_back(each_seed);
    LinePlot figure{"Recall: two layers, four heads of 8 features", "pairs of key and value",
                    "% correct", means};
    figure.log_x = true;
    figure.high = 100;
    plot("recall", {figure});
}

void compare_linear_attention(const std::vector<Id>& tokens, std::size_t vocab_size,
                              std::size_t num_steps, std::size_t num_seeds) {
    constexpr std::size_t seq_len = 128;
    step("Linear and softmax attention on the same text, with equal parameters");
    const Dataset dataset = train_validation_split(tokens, seq_len);
    const std::vector<Variant> variants = make_variants(4);
    Config config = small_config(vocab_size, 256);
    config.num_key_value_heads = config.num_attention_heads;
    // The MLP of each variant makes its layers as large as those of the first.
    const auto config_of = [&](const Variant& variant) {
        Config result = config;
        const std::uint64_t largest = attention_parameters(config, variants.front());
        const std::uint64_t own = attention_parameters(config, variant);
        const std::uint64_t of_width = 3 * config.hidden_size * config.num_hidden_layers;
        result.intermediate_size -= (own - largest + of_width / 2) / of_width;
        return result;
    };
    std::vector<double> losses(variants.size() * num_seeds);
    run_all(losses.size(), [&](std::size_t i) {
        const Variant& variant = variants[i / num_seeds];
        const auto args =
            small_run_arguments(seq_len, num_steps, std::uint32_t(1 + i % num_seeds));
        Generator generator(args.seed);
        losses[i] = train_and_evaluate(
            make_hybrid_decoder(config_of(variant), variant.layers, generator), dataset, args,
            generator);
    });
    std::vector<TableRow> rows;
    for (std::size_t v = 0; v < variants.size(); ++v) {
        const auto begin = losses.begin() + std::ptrdiff_t(v * num_seeds);
        rows.push_back({variants[v].name,
                        with_commas(attention_parameters(config, variants[v])),
                        to_text(config_of(variants[v]).intermediate_size),
                        mean_and_spread({begin, begin + std::ptrdiff_t(num_seeds)})});
    }
    show_table({"attention", "its parameters", "F", "validation loss"}, rows);
}

}  // namespace llm
