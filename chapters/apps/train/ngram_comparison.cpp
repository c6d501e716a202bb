#include "chapters/apps/train/ngram_comparison.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/13_training/ngram.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm::runs {
namespace {

// Bits per character on these tokens.
double bits_per_character(const Model& model, const TrainingTask& task,
                          const std::vector<Id>& tokens) {
    const double loss = evaluate_loss(model, tokens, task.args, tokens.size());
    const std::size_t num_characters = characters(task.tokenizer.decode(tokens)).size();
    return loss / std::log(2.0) * double(tokens.size()) / double(num_characters);
}

}  // namespace

NgramBaseline ngram_baseline(const TrainingTask& task, std::vector<Id> validation_tokens,
                             double time_limit) {
    const std::string text = task.tokenizer.decode(task.dataset.train);
    const Tokenizer character_tokenizer = train_bpe(text, 0);
    Dataset dataset{character_tokenizer.encode(text),
                    character_tokenizer.encode(task.tokenizer.decode(validation_tokens))};
    const auto losses_of = [&](const Dataset& part) {
        return ngram_losses(part, character_tokenizer.vocab_size(), 6, {1, 4, 16, 64});
    };
    std::vector<Id>& train = dataset.train;
    if (train.size() > 500'000 && time_limit < infinity) {
        // Measure a 20th of the text. Larger tables are slower, by about a half.
        const Dataset part{{train.begin(), train.begin() + std::ptrdiff_t(train.size() / 20)},
                           {}};
        const double expected = 1.5 * 20 * fastest_seconds(1, [&] { losses_of(part); });
        const double share = std::min(1.0, time_limit / expected);
        train.resize(std::max<std::size_t>(1, std::size_t(share * double(train.size()))));
        if (share < 1)
            show("n-grams are counted in the first",
                 fixed(100 * share, 0) + " % of the training set, to save time");
    }
    return {std::move(validation_tokens), losses_of(dataset)};
}

void compare_with_ngrams(const TrainingTask& task, const Model& model,
                         const NgramBaseline& baseline) {
    const auto& [tokens, losses] = baseline;
    const std::vector<std::string> names = {"uniform", "unigram", "bigram", "trigram",
                                            "4-gram",  "5-gram",  "6-gram"};
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < names.size(); ++n)
        rows.push_back({names[n], fixed(losses[n] / std::log(2.0), 3)});
    rows.push_back({"this model", fixed(bits_per_character(model, task, tokens), 3)});
    show_table({"characters", "bits per character"}, rows);
}

}  // namespace llm::runs
