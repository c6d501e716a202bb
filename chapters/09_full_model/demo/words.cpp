#include "chapters/09_full_model/demo/words.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "chapters/01_masking/masking.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "common/files/words.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/tensors/argsort.hpp"

namespace llm {
namespace {

// The tokens that the program names; chapter 10 reads all of them from tokenizer.json.
std::string name_of(std::size_t id) {
    static const std::map<std::size_t, std::string> names = {
        {7, ","},        {66, "the"},       {96, "to"},     {116, "he"},    {127, "unto"},
        {139, "him"},    {148, "LORD"},     {176, "me"},    {195, "said"},  {243, "when"},
        {272, "people"}, {299, "children"}, {494, "Moses"}, {628, "spake"}, {734, "commanded"}};
    const auto name = names.find(id);
    return name == names.end() ? "id " + to_text(id) : name->second;
}

// The first features of the residual stream of one word, and its RMS over all features.
Matrix stream_of(const std::vector<Tensor3>& hidden_states,  // L + 1 times (1, T, C)
                 std::size_t t, std::size_t num_features) {
    Matrix rows = xt::zeros<Real>({hidden_states.size(), num_features + 1});
    for (std::size_t n = 0; n < hidden_states.size(); ++n) {
        const Vector state = xt::view(hidden_states[n], 0, t);
        for (std::size_t c = 0; c < num_features; ++c) rows(n, c) = state(c);
        rows(n, num_features) = static_cast<Real>(root_mean_square(state));
    }
    return rows;
}

void show_final_norm(const Model& model, const Vector& last) {  // (C)
    const Real rms = static_cast<Real>(root_mean_square(last));
    Matrix rows = xt::zeros<Real>({4, 4});
    for (std::size_t c = 0; c < 4; ++c) {
        rows(0, c) = last(c);
        rows(1, c) = last(c) / rms;
        rows(2, c) = model.norm.weight(c);
        rows(3, c) = rows(1, c) * rows(2, c);
    }
    step("The final norm of \"unto\": divide by its RMS, multiply by the weight");
    show("word_final_norm", rows, {"after layer 3", "/ RMS", "weight", "normalized"},
         {"feature 0", "feature 1", "feature 2", "feature 3"});
}

// The best logits of the last word, and the softmax over all V of them.
void show_logits(const Matrix& logits) {  // (T, V)
    const std::size_t last = logits.shape(0) - 1;
    const auto best = argsort_descending(Vector(xt::view(logits, last)), 3);
    const double highest = double(logits(last, best[0]));
    double sum = 0;
    for (std::size_t v = 0; v < logits.shape(1); ++v)
        sum += std::exp(double(logits(last, v)) - highest);

    step("The logits of the token after \"unto\", and their softmax");
    std::vector<TableRow> rows;
    for (const std::size_t id : best) {
        const double power = std::exp(double(logits(last, id)) - highest);
        rows.push_back({name_of(id), to_text(id), fixed(logits(last, id), 2), fixed(power, 3),
                        fixed(power / sum, 3)});
    }
    show_table({"next", "id", "logit", "exp(logit - highest)", "p"}, rows);
    show("sum of the exponentials of all 1024 tokens", fixed(sum, 3));
}

// The probability of some tokens (columns) after each word (rows).
void plot_probabilities(const Matrix& probabilities, const std::vector<std::string>& words) {
    const std::array<std::size_t, 6> ids = {66, 148, 628, 195, 127, 494};
    Matrix values = xt::zeros<Real>({words.size(), ids.size()});
    std::vector<std::string> names;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        names.push_back(name_of(ids[i]));
        for (std::size_t t = 0; t < words.size(); ++t) values(t, i) = probabilities(t, ids[i]);
    }
    plot("next", {Heatmap{"Probability of the next token", "next token", "after", values, names,
                          words}});
}

void show_next_tokens(const Matrix& logits, const std::vector<std::string>& words) {
    const Matrix probabilities = softmax(logits);  // (T, V)
    step("One forward pass predicts the next token after every word");
    std::vector<TableRow> rows;
    for (std::size_t t = 0; t < words.size(); ++t) {
        rows.push_back({words[t]});
        for (const std::size_t id : argsort_descending(Vector(xt::view(probabilities, t)), 3)) {
            rows.back().push_back(name_of(id));
            rows.back().push_back(fixed(probabilities(t, id), 2));
        }
    }
    show_table({"after", "most likely", "p", "second", "p", "third", "p"}, rows);
    plot_probabilities(probabilities, words);
}

}  // namespace

void show_words_through_model() {
    const std::vector<std::string> words = load_words().tokens;
    const Model model = models::load_model(asset("king_james"));
    const IdMatrix word_ids{{103, 66, 148, 195, 127}};
    const ModelOutput output = model.forward(word_ids, {.output_hidden_states = true});
    const std::vector<Tensor3>& hidden_states = output.hidden_states;
    std::vector<std::string> columns = {"feature 0", "feature 1", "feature 2", "feature 3"};
    step("Five words: each id selects a row of the embedding matrix");
    show("word_ids", word_ids);
    show_shape("word_embed_tokens", model.embed_tokens);
    show("word_embeddings", Matrix(xt::view(hidden_states[0], 0)), words, columns);

    step("The residual stream of \"unto\": each layer adds its updates");
    columns.push_back("RMS");
    const std::size_t last = words.size() - 1;
    show("word_stream", stream_of(hidden_states, last, 4),
         {"embedding", "after layer 0", "after layer 1", "after layer 2", "after layer 3"},
         columns);

    show_final_norm(model, xt::view(hidden_states.back(), 0, last));
    const Matrix logits = xt::view(output.logits, 0);  // (T, V)
    show_logits(logits);
    show_next_tokens(logits, words);
}

}  // namespace llm
