#include "chapters/12_gradients/demo/worked_example.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/output/show.hpp"
#include "common/tensors/argsort.hpp"

namespace llm {
namespace {

constexpr std::size_t num_words = 5, after_lord = 2;

// What the shipped model predicts after each of the words "And the LORD said unto".
struct Predictions {
    std::vector<std::string> inputs, next_words;  // T
    IdVector targets;                             // (T)
    Matrix logits, probabilities;                 // (T, V)
    std::vector<std::string> vocabulary;          // V
};

Predictions predictions_of_words() {
    const std::string path = asset("king_james");
    const Model model = models::load_model(path);
    const Tokenizer tokenizer =
        models::load_tokenizer_of_model(path, "", model.config.vocab_size);
    const std::vector<Id> ids = tokenizer.encode("And the LORD said unto Moses");
    const Tensor3 logits = model(one_sequence(std::span(ids).first(num_words)));  // (1, T, V)

    Predictions words;
    words.logits = xt::view(logits, 0);
    words.probabilities = softmax(words.logits);
    for (std::size_t v = 0; v < model.config.vocab_size; ++v) {
        const std::string token = tokenizer.decode({Id(v)});
        words.vocabulary.push_back(
            token.substr(std::min(token.find_first_not_of(' '), token.size())));
    }
    words.targets = xt::zeros<Id>({num_words});
    for (std::size_t t = 0; t < num_words; ++t) {
        words.targets(t) = ids[t + 1];
        words.inputs.push_back(words.vocabulary[std::size_t(ids[t])]);
        words.next_words.push_back(words.vocabulary[std::size_t(ids[t + 1])]);
    }
    return words;
}

void show_losses(const Predictions& words) {
    step("Five words: the loss of each prediction");
    std::vector<TableRow> rows;
    for (std::size_t t = 0; t < num_words; ++t) {
        const Real p = words.probabilities(t, std::size_t(words.targets(t)));
        rows.push_back({words.inputs[t], words.next_words[t], fixed(double(p), 4),
                        fixed(-std::log(double(p)), 4)});
    }
    show_table({"after", "target", "probability p", "-ln p"}, rows);
    show("mean", fixed(cross_entropy(words.logits, words.targets), 4));
}

// One row of logits: the five most likely tokens, and the sum of all others.
void show_gradient_of_row(const Predictions& words) {
    step("The word after \"LORD\": the gradient with respect to its logits");
    const Matrix logits = xt::view(words.logits, xt::range(after_lord, after_lord + 1));
    const IdVector target{words.targets(after_lord)};
    const Vector probabilities = xt::view(words.probabilities, after_lord);
    const Matrix gradient = cross_entropy_backward(logits, target);  // (1, V)

    std::vector<TableRow> rows;
    double p_rest = 1, gradient_rest = 0;
    for (const Real element : gradient) gradient_rest += double(element);
    for (const std::size_t v : argsort_descending(probabilities, 5)) {
        p_rest -= double(probabilities(v));
        gradient_rest -= double(gradient(0, v));
        rows.push_back({words.vocabulary[v], fixed(double(logits(0, v)), 2),
                        fixed(double(probabilities(v)), 4), Id(v) == target(0) ? "1" : "0",
                        fixed(double(gradient(0, v)), 4)});
    }
    rows.push_back({with_commas(probabilities.size() - 5) + " others", "", fixed(p_rest, 4),
                    "0", fixed(gradient_rest, 4)});
    show_table({"token", "logit", "p", "target", "gradient"}, rows);
}

// The logits of one row, one step of gradient descent with a learning rate of 1 later.
void show_step_of_row(const Predictions& words) {
    const Matrix logits = xt::view(words.logits, xt::range(after_lord, after_lord + 1));
    const IdVector target{words.targets(after_lord)};
    const auto v = std::size_t(target(0));
    Matrix above = logits, below = logits;
    above(0, v) += Real(0.01);
    below(0, v) -= Real(0.01);
    const double difference = cross_entropy(above, target) - cross_entropy(below, target);
    show("finite difference for the target", fixed(difference / 0.02, 4));

    const Matrix moved = logits - cross_entropy_backward(logits, target);
    show("loss", fixed(cross_entropy(logits, target), 4));
    show("loss after logits -= gradient", fixed(cross_entropy(moved, target), 4));
}

}  // namespace

void show_chain_rule() {
    step("The chain rule on one number: y = w x, loss = (y - 1)²");
    const double w = 2, x = 3, y = w * x;
    const double y_gradient = 2 * (y - 1);     // derivative of the loss with respect to y
    const double w_gradient = y_gradient * x;  // y changes x times as fast as w
    const auto loss = [&](double weight) { return (weight * x - 1) * (weight * x - 1); };
    const double h = 0.001;
    show("loss", loss(w));
    show("dloss/dy", y_gradient);
    show("dloss/dw = dloss/dy * x", w_gradient);
    show("finite difference", (loss(w + h) - loss(w - h)) / (2 * h));
    show("loss after w -= 0.01 * dloss/dw", loss(w - 0.01 * w_gradient));
}

void show_loss_of_words() {
    const Predictions words = predictions_of_words();
    show_losses(words);
    show_gradient_of_row(words);
    show_step_of_row(words);
}

}  // namespace llm
