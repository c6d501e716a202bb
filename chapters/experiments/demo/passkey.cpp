// A value that stands somewhere in a text, and is asked for at its end.
#include "chapters/experiments/passkey.hpp"

#include "chapters/17_long_context/rope_extension.hpp"
#include "chapters/experiments/demo/runs.hpp"
#include "chapters/experiments/experiments.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

constexpr std::size_t train_len = 64, batch_size = 8, num_batches = 2;
const std::vector<std::size_t> factors = {1, 2, 4, 8};  // the lengths of the tests
const std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};

struct Variant {
    std::string name;
    AttentionPattern pattern;
    RopeExtension extension;
};
std::vector<Variant> all_variants() {
    std::vector<Variant> variants;
    for (const auto& [name, extension] : rope_extensions())
        variants.push_back({name, FullAttention{}, extension});
    variants.push_back({"window of 32", SlidingWindow{32}, RopeExtension::none});
    variants.push_back({"4 sinks and a window", SinksAndWindow{4, 32}, RopeExtension::none});
    return variants;
}

PatternDecoder train_model(std::size_t num_steps, std::uint32_t seed) {
    Generator generator(seed);
    Model model =
        make_model_for_training(small_config(passkey_vocab_size, train_len), generator);
    TrainingArguments args = small_run_arguments(train_len, num_steps, seed);
    args.batch_size = 2 * batch_size;
    train_on_passkeys(model, args);
    return make_pattern_decoder(model, false);
}

// The accuracy at each depth.
Vector accuracies(const PatternDecoder& decoder, const Variant& variant, std::size_t factor,
                  std::uint32_t seed) {
    const RotaryTable table = extended_rotary_table(decoder.config, variant.extension, factor);
    const PatternDecoder with_its_pattern = with_pattern(decoder, variant.pattern);
    Generator generator(seed);
    Vector result = xt::zeros<Real>({depths.size()});
    for (std::size_t i = 0; i < depths.size() * num_batches; ++i) {
        const std::size_t depth = i / num_batches;
        const ResponseBatch batch =
            passkey_test(batch_size, factor * train_len, depths[depth], generator);
        result(depth) += static_cast<Real>(passkey_accuracy(with_its_pattern, table, batch) /
                                           double(num_batches));
    }
    return result;
}

// Of one variant: a row of the table, the mean over all depths at each length and its spread
// over the seeds; and the mean over the seeds at each depth and length.
struct Summary {
    TableRow row;
    Matrix means;  // (depths, lengths)
};
Summary summarize(const std::string& name, const std::vector<Vector>& results,  // (depths) each
                  std::size_t num_seeds) {
    Summary summary{{name}, xt::zeros<Real>({depths.size(), factors.size()})};
    for (std::size_t j = 0; j < factors.size(); ++j) {
        std::vector<double> of_seeds;
        for (std::size_t n = 0; n < num_seeds; ++n) {
            const Vector& at_depths = results[j * num_seeds + n];
            double sum = 0;
            for (std::size_t i = 0; i < depths.size(); ++i) {
                sum += double(at_depths(i));
                summary.means(i, j) += at_depths(i) / static_cast<Real>(num_seeds);
            }
            of_seeds.push_back(100 * sum / double(depths.size()));
        }
        summary.row.push_back(mean_and_spread(of_seeds, 0));
    }
    return summary;
}

}  // namespace

void compare_passkey_retrieval(std::size_t num_steps, std::size_t num_seeds) {
    step("Training: find the value of a key in 64 tokens");
    const std::vector<Variant> variants = all_variants();
    std::vector<PatternDecoder> decoders(num_seeds);
    run_all(num_seeds,
            [&](std::size_t n) { decoders[n] = train_model(num_steps, std::uint32_t(1 + n)); });

    step("Passkey: a value at any depth of a text, asked for at its end");
    const std::size_t num_lengths = factors.size(), of_variant = num_lengths * num_seeds;
    std::vector<Vector> results(variants.size() * of_variant);
    run_all(results.size(), [&](std::size_t i) {
        results[i] = accuracies(decoders[i % num_seeds], variants[i / of_variant],
                                factors[i / num_seeds % num_lengths],
                                std::uint32_t(1000 + i % of_variant));  // the same texts
    });
    TableRow headings = {"% correct, tokens"};
    std::vector<std::string> lengths, depth_names;
    for (const std::size_t factor : factors) lengths.push_back(to_text(factor * train_len));
    for (const double depth : depths) depth_names.push_back(brief(depth));
    headings.insert(headings.end(), lengths.begin(), lengths.end());
    std::vector<TableRow> rows;
    std::vector<Panel> panels;
    for (std::size_t v = 0; v < variants.size(); ++v) {
        const auto begin = results.begin() + std::ptrdiff_t(v * of_variant);
        const Summary summary =
            summarize(variants[v].name, {begin, begin + std::ptrdiff_t(of_variant)}, num_seeds);
        rows.push_back(summary.row);
        // The figure has room for six; Llama 3's row is in the table.
        if (variants[v].extension == RopeExtension::llama3) continue;
        panels.push_back(Heatmap{variants[v].name, "tokens", "depth", summary.means, lengths,
                                 depth_names, 0, 1});
    }
    show_table(headings, rows);
    plot("passkey", panels);
}

}  // namespace llm
