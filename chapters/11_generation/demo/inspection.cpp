#include "chapters/11_generation/demo/inspection.hpp"

#include "chapters/11_generation/cached_sequence.hpp"
#include "chapters/11_generation/inspection.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/tensors/argsort.hpp"

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

// The probabilities from which a token was sampled: with temperature 0 that of one token is 1.
Vector sampled_probabilities(const Vector& logits, const std::vector<Id>& input_ids,
                             const SamplingConfig& sampling) {
    const Vector scores = process_logits(logits, input_ids, sampling);
    if (sampling.temperature > 0) return softmax(scores);
    Vector probabilities = xt::zeros_like(scores);
    probabilities(static_cast<std::size_t>(argmax_token(scores))) = 1;
    return probabilities;
}

// The 10 most likely tokens at each new position, with their probabilities before and after the
// sampling options.
void show_candidates(const Tokenizer& tokenizer, const std::vector<Id>& ids,
                     std::size_t prompt_len, const Tensor3& logits,  // (1, T, V)
                     const SamplingConfig& sampling) {
    step("Candidates for each new token, and their probabilities after the sampling options");
    const std::size_t count = std::min<std::size_t>(10, logits.shape(2));
    const std::array shape = {ids.size() - prompt_len, count};
    IdMatrix candidate_ids(shape);
    Matrix before(shape), after(shape);
    std::vector<TableRow> rows;
    for (std::size_t t = prompt_len; t < ids.size(); ++t) {
        const Vector row = xt::view(logits, 0, t - 1);
        const std::vector<Id> input_ids(ids.begin(), ids.begin() + std::ptrdiff_t(t));
        const Vector unprocessed = softmax(row);
        const Vector sampled = sampled_probabilities(row, input_ids, sampling);
        rows.push_back({to_text(t), tokenizer.token_text(ids[t]), ""});
        for (std::size_t rank = 0; const std::size_t id : argsort_descending(row, count)) {
            candidate_ids(t - prompt_len, rank) = static_cast<Id>(id);
            before(t - prompt_len, rank) = unprocessed(id);
            after(t - prompt_len, rank) = sampled(id);
            rows.back()[2] +=
                (rank++ > 0 ? " " : "") + tokenizer.token_text(static_cast<Id>(id));
        }
    }
    show_table({"position", "token", "candidates"}, rows);
    show("candidate_ids", candidate_ids);
    show("candidate_probabilities", before);
    show("sampled_probabilities", after);
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
    step("Attention weights of query " + to_text(t) + " (" + tokens[t] +
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
            plot("attention",
                 {heatmap_of("Layer " + to_text(n) + ": keys of the query " + tokens[t],
                             weights, keys)});
    }
    show_table({"layer", "head", "key token", "position", "largest weight"}, rows);
}

void show_all_attentions(const std::vector<Tensor4>& attentions) {
    step("Attention weights of the whole text");
    for (std::size_t n = 0; n < attentions.size(); ++n)
        show("attentions_of_layer_" + to_text(n), attentions[n]);  // (1, H, T, T)
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
                        const std::vector<Id>& ids, const Inspection& inspection,
                        const SamplingConfig& sampling) {
    const auto [prompt_len, position, with_details] = inspection;
    const ModelOutput output =
        model.forward(one_sequence(ids), {.logits_to_keep = LogitsToKeep::last,
                                          .output_hidden_states = true,
                                          .output_attentions = true});
    const Tensor3& last_hidden_states = output.hidden_states.back();
    show_probabilities(model, tokenizer, ids, prompt_len, last_hidden_states);
    if (with_details)
        show_candidates(tokenizer, ids, prompt_len, model.logits(last_hidden_states), sampling);

    // The logits of a position predict the token at the next position.
    const std::size_t query = position - 1;
    show_attentions(token_texts(tokenizer, ids), output.attentions, query);
    if (with_details) show_all_attentions(output.attentions);
    show_logit_lens(model, tokenizer, ids, output.hidden_states, query);
}

}  // namespace llm
