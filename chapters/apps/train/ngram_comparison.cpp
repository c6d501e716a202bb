#include "chapters/apps/train/ngram_comparison.hpp"

#include <cmath>

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/13_training/ngram.hpp"
#include "chapters/apps/train/training_run.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm::runs {
namespace {

// Bits per character on these tokens.
double bits_per_character(const Model& model, const TrainingTask& task,
                          const std::vector<Id>& tokens) {
    const double loss = evaluate_loss(model, tokens, task.args, tokens.size());
    const std::size_t num_characters = characters(task.tokenizer.decode(tokens)).size();
    return loss / std::log(2.0) * double(tokens.size()) / double(num_characters);
}

// The tokens of so many batches that are evenly spaced, or all.
std::vector<Id> tokens_of_batches(const std::vector<Id>& all, const TrainingArguments& args,
                                  std::size_t max_batches) {
    if (all.size() <= max_batches * args.batch_size * args.seq_len) return all;
    std::vector<Id> tokens;
    for (const Batch& batch :
         evaluation_batches(all, args.batch_size, args.seq_len, max_batches))
        tokens.insert(tokens.end(), batch.input_ids.begin(), batch.input_ids.end());
    show("tokens for the comparison with n-gram models",
         with_commas(tokens.size()) + " of the validation set, to save time");
    return tokens;
}

void limit(std::vector<Id>& characters, std::size_t count) {
    if (characters.size() <= count) return;
    show("n-grams are counted in the first",
         fixed(100 * double(count) / double(characters.size()), 0) +
             " % of the training set, to save time");
    characters.resize(count);
}

}  // namespace

NgramBaseline ngram_baseline(const TrainingTask& task, std::optional<double> minutes) {
    const std::string text = task.tokenizer.decode(task.dataset.train);
    const Tokenizer tokenizer = train_bpe(text, 0);  // of characters
    std::vector<Id> train = tokenizer.encode(text), tokens = task.dataset.validation;
    if (minutes) {
        tokens = tokens_of_batches(tokens, task.args,
                                   std::size_t(num_evaluation_batches * (1 + *minutes)));
        limit(train, std::size_t(4e6 * *minutes));
    }
    const Dataset dataset{train, tokenizer.encode(task.tokenizer.decode(tokens))};
    return {tokens, ngram_losses(dataset, tokenizer.vocab_size(), 6, {1, 4, 16, 64})};
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
