// Random crops, a first token and learned sinks.
#include "chapters/experiments/attention_sinks.hpp"

#include "chapters/17_long_context/loss_by_position.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

constexpr std::size_t seq_len = 128, window = 32;

enum class TrainingSetup { crops, first_token, learned_sinks };
struct Variant {
    std::string name;
    TrainingSetup setup;
};
const std::vector<Variant> variants = {{"crops", TrainingSetup::crops},
                                       {"first token", TrainingSetup::first_token},
                                       {"learned sinks", TrainingSetup::learned_sinks}};

// What is measured on held-out text, of each head or of the targets from `window` on.
struct Measurement {
    double first_key = 0, largest_first_key = 0, learned_sink = 0;
    double loss = 0, loss_with_window = 0, loss_with_first_key = 0;
    Matrix attention = xt::zeros<Real>({1, 1});  // (T, T): the head that attends to key 0 most
};

double loss_with(const PatternDecoder& decoder, const AttentionPattern& pattern,
                 const Batch& batch) {
    const Tensor3 logits = with_pattern(decoder, pattern)(batch.input_ids);
    return mean_loss_from(loss_by_position(logits, batch.targets), window);
}

Measurement measure(const PatternDecoder& decoder, const Batch& batch) {
    const ModelOutput output = decoder.forward(batch.input_ids, {.output_attentions = true});
    const SinkWeights weights = mean_sink_weights(output.attentions, window);
    const Real num_heads = static_cast<Real>(weights.first_key.size());
    const auto largest = std::max_element(weights.first_key.begin(), weights.first_key.end());
    const auto index = static_cast<std::size_t>(largest - weights.first_key.begin());
    const std::size_t H = weights.first_key.shape(1);
    Measurement result;
    for (std::size_t i = 0; i < weights.first_key.size(); ++i) {
        result.first_key += double(weights.first_key.data()[i] / num_heads);
        result.learned_sink += double(weights.sink.data()[i] / num_heads);
    }
    result.largest_first_key = double(*largest);
    result.loss = mean_loss_from(loss_by_position(output.logits, batch.targets), window);
    result.loss_with_window = loss_with(decoder, SlidingWindow{window}, batch);
    result.loss_with_first_key = loss_with(decoder, SinksAndWindow{1, window}, batch);
    result.attention = xt::view(output.attentions[index / H], 0, index % H,
                                xt::range(0, 2 * window), xt::range(0, 2 * window));
    return result;
}

Measurement train_and_measure(const Dataset& dataset, const Config& config, TrainingSetup setup,
                              const TrainingArguments& args) {
    Generator generator(args.seed);
    PatternDecoder decoder = make_pattern_decoder(make_model_for_training(config, generator),
                                                  setup == TrainingSetup::learned_sinks);
    std::optional<Id> first_token_id;
    if (setup == TrainingSetup::first_token)
        first_token_id = static_cast<Id>(config.vocab_size - 1);
    train_decoder(decoder, args, dataset.train, first_token_id, generator);
    Batch batch = evaluation_batches(dataset.validation, 64, seq_len, 1).front();
    if (first_token_id) batch = with_first_token(std::move(batch), *first_token_id);
    return measure(decoder, batch);
}

}  // namespace

void compare_attention_sinks(const std::vector<Id>& tokens, std::size_t vocab_size,
                             std::size_t num_steps, std::size_t num_seeds) {
    const Dataset dataset = train_validation_split(tokens, seq_len);
    step("Three models: random crops, a first token, learned sinks");
    // One more token, for the beginning of a text.
    const Config config = small_config(vocab_size + 1, seq_len);
    std::vector<Measurement> runs(variants.size() * num_seeds);
    run_all(runs.size(), [&](std::size_t i) {
        runs[i] = train_and_measure(
            dataset, config, variants[i / num_seeds].setup,
            small_run_arguments(seq_len, num_steps, std::uint32_t(1 + i % num_seeds)));
    });
    std::vector<TableRow> weights, losses;
    std::vector<Panel> panels;
    for (std::size_t v = 0; v < variants.size(); ++v) {
        const std::span<const Measurement> of_variant{runs.data() + v * num_seeds, num_seeds};
        const auto cell = [&](double Measurement::*member, double factor, int decimals) {
            return mean_and_spread(of_variant, member, factor, decimals);
        };
        weights.push_back({variants[v].name, cell(&Measurement::first_key, 100, 1),
                           cell(&Measurement::largest_first_key, 100, 1),
                           cell(&Measurement::learned_sink, 100, 1)});
        losses.push_back({variants[v].name, cell(&Measurement::loss, 1, 3),
                          cell(&Measurement::loss_with_window, 1, 3),
                          cell(&Measurement::loss_with_first_key, 1, 3)});
        panels.push_back(
            Heatmap{variants[v].name, "key", "query", of_variant[0].attention, {}, {}, 0, 0.2});
    }
    show_table({"trained on", "% on key 0", "% of the largest head", "% on the learned sink"},
               weights);
    show_table({"loss", "full attention", "window of 32", "window and key 0"}, losses);
    plot("sinks", panels);
}

}  // namespace llm
