#include "chapters/11_generation/demo.hpp"
#include "chapters/11_generation/inspection.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// A token of the vocabulary and its probability.
struct Prediction {
    std::string token;
    Real probability;
};
Prediction most_likely(const Tokenizer& tokenizer, const Vector& probabilities) {
    const Id id = argmax_token(probabilities);
    return {token_texts(tokenizer, std::array{id})[0],
            probabilities(static_cast<std::size_t>(id))};
}

void show_probabilities(const Model& model, const Tokenizer& tokenizer,
                        const std::vector<Id>& ids, std::size_t prompt_len,
                        const Tensor3& last_hidden_states) {
    step("Probability of each generated token, from the unprocessed logits");
    const std::vector<std::string> tokens = token_texts(tokenizer, ids);
    std::vector<TableRow> rows;
    BarChart chart{"Probability of each token", "probability", {}, {{"", {}}}};
    for (std::size_t t = prompt_len; t < ids.size(); ++t) {
        Vector probabilities = logit_lens(model, last_hidden_states, t - 1);
        const Real p = std::exchange(probabilities(static_cast<std::size_t>(ids[t])), Real(-1));
        const Prediction other = most_likely(tokenizer, probabilities);
        rows.push_back(
            {to_text(t), tokens[t], fixed(p, 3), other.token, fixed(other.probability, 3)});
        chart.names.push_back(tokens[t]);
        chart.series[0].values.push_back(p);
    }
    show_table({"position", "token", "p", "best other token", "p"}, rows);
    plot("probabilities", {chart});
}

// One row per key, labeled with its token, and one column per head.
Heatmap heatmap_of(const std::string& title, const Matrix& weights,  // (H, S)
                   const std::vector<std::string>& tokens) {
    Heatmap map{title, "head", "", xt::transpose(weights)};  // (S, H)
    map.y_names = tokens;
    return map;
}

void show_attentions(const std::vector<std::string>& tokens,
                     const std::vector<Tensor4>& attentions, std::size_t t) {
    step("Attention weights of query position " + to_text(t) + " (" + tokens[t] +
         "), whose logits predict " + tokens[t + 1]);
    const std::vector<std::string> keys(tokens.begin(),
                                        tokens.begin() + static_cast<std::ptrdiff_t>(t) + 1);
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < attentions.size(); ++n) {
        const Matrix weights = attentions_of_query(attentions[n], t);  // (H, t + 1)
        const auto largest = static_cast<std::size_t>(
            std::max_element(weights.begin(), weights.end()) - weights.begin());
        const std::size_t h = largest / keys.size(), s = largest % keys.size();
        rows.push_back({to_text(n), to_text(h), keys[s], to_text(s), fixed(weights(h, s), 2)});
        if (n == attentions.size() / 2)  // plot the layer in the middle
            plot("attention", {heatmap_of("Layer " + to_text(n), weights, keys)});
    }
    show_table({"layer", "head", "key token", "position", "largest weight"}, rows);
}

void show_logit_lens(const Model& model, const Tokenizer& tokenizer, const std::vector<Id>& ids,
                     const std::vector<Tensor3>& hidden_states, std::size_t t) {
    step("Logit lens: the same prediction computed after each layer");
    const std::size_t hidden_size = model.config.hidden_size;
    std::vector<TableRow> rows;
    Line probability;
    for (std::size_t n = 0; n < hidden_states.size(); ++n) {
        const Vector probabilities = logit_lens(model, hidden_states[n], t);
        const Prediction best = most_likely(tokenizer, probabilities);
        const Real p = probabilities(static_cast<std::size_t>(ids[t + 1]));
        const Real* row = hidden_states[n].data() + t * hidden_size;
        const double row_rms = root_mean_square({row, hidden_size});
        rows.push_back({to_text(n), fixed(row_rms, 2), best.token, fixed(best.probability, 3),
                        fixed(p, 3)});
        probability.x.push_back(double(n));
        probability.y.push_back(p);
    }
    show_table({"layers", "RMS of the residual stream", "most likely", "p",
                "p of the generated token"},
               rows);
    plot("logit_lens",
         {LinePlot{
             "Probability of the generated token", "layers", "probability", {probability}}});
}

}  // namespace

std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const Id> ids) {
    std::vector<std::string> texts;
    for (const Id id : ids) texts.push_back(tokenizer.token_text(id));
    return texts;
}

void inspect_generation(const Model& model, const Tokenizer& tokenizer,
                        const std::vector<Id>& ids, std::size_t prompt_len,
                        std::size_t position) {
    const ModelOutput output =
        model.forward(one_sequence(ids), {.logits_to_keep = LogitsToKeep::last,
                                          .output_hidden_states = true,
                                          .output_attentions = true});
    show_probabilities(model, tokenizer, ids, prompt_len, output.hidden_states.back());

    // The logits of a position predict the token at the next position.
    const std::size_t query = position - 1;
    show_attentions(token_texts(tokenizer, ids), output.attentions, query);
    show_logit_lens(model, tokenizer, ids, output.hidden_states, query);
}

}  // namespace llm
