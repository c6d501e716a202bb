#include "chapters/18_experts/demo/specialization.hpp"

#include <algorithm>
#include <map>

#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
using namespace models;

namespace {

constexpr std::size_t seq_len = 128;

// Sequences of 128 tokens from the beginning of the text, at most 64 of them.
IdMatrix sequences_of(const std::vector<Id>& tokens) {
    const std::size_t count = std::min<std::size_t>(64, tokens.size() / seq_len);
    IdMatrix ids(std::array{count, seq_len});  // (B, T)
    std::copy_n(tokens.begin(), ids.size(), ids.begin());
    return ids;
}

// How often each token id chose each expert as its first one.
std::map<Id, Vector> choices_by_token(const IdMatrix& input_ids, const RoutedTokens& routed,
                                      std::size_t num_experts) {
    std::map<Id, Vector> choices;  // (E) each
    for (std::size_t n = 0; n < input_ids.size(); ++n) {
        Vector& counts =
            choices.try_emplace(input_ids.data()[n], xt::zeros<Real>({num_experts}))
                .first->second;
        counts(static_cast<std::size_t>(routed.experts(n, 0))) += 1;
    }
    return choices;
}

// The fraction of the first choices that equal the most frequent one of the other occurrences
// of the same token id. A token id that occurs once predicts nothing.
double predicted_by_token_id(const std::map<Id, Vector>& choices) {
    double predicted = 0, total = 0;
    for (const auto& [id, counts] : choices)
        for (std::size_t e = 0; e < counts.size(); ++e) {
            Vector others = counts;  // (E), without one occurrence that chose e
            others(e) -= 1;
            const bool is_largest = others(e) > 0 && others(e) == xt::amax(others)();
            if (is_largest) predicted += double(counts(e));
            total += double(counts(e));
        }
    return predicted / total;
}

// The fraction of the first choices that equal the most frequent one of all tokens.
double predicted_by_load(const std::map<Id, Vector>& choices) {
    Vector sums = xt::zeros<Real>({choices.begin()->second.size()});  // (E)
    for (const auto& [id, counts] : choices) sums += counts;
    return double(xt::amax(sums)() / xt::sum(sums)());
}

// The text of a token, in which a space is visible.
std::string text_of(const Tokenizer& tokenizer, Id id) {
    std::string text = tokenizer.decode_bytes({id});
    if (text == "\n") return "newline";
    std::replace(text.begin(), text.end(), ' ', '_');
    return text;
}

}  // namespace

void load_of_layers(const FamilyModel& model, const std::vector<Id>& tokens) {
    step("A trained model: the load of its experts on held-out text");
    const std::size_t E = first_moe(model.config)->sizes.num_experts;
    const IdMatrix input_ids = sequences_of(tokens);  // (B, T)
    const std::vector<RoutedTokens> routed = routed_tokens(model, input_ids);
    TableRow headings = {"layer, expert"};
    for (std::size_t e = 0; e < E; ++e) headings.push_back(to_text(e));
    headings.push_back("MaxVio");
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < routed.size(); ++n) {
        const Vector load = expert_load(routed[n].experts, E);  // (E)
        TableRow row = {to_text(n)};
        for (const Real part : load) row.push_back(fixed(double(part), 2));
        row.push_back(fixed(max_violation(load), 2));
        rows.push_back(row);
    }
    show_table(headings, rows);
}

void words_of_experts(const FamilyModel& model, const Tokenizer& tokenizer,
                      const std::vector<Id>& tokens) {
    step("Which tokens each expert processes");
    const std::size_t E = first_moe(model.config)->sizes.num_experts;
    const IdMatrix input_ids = sequences_of(tokens);  // (B, T)
    const std::vector<RoutedTokens> routed = routed_tokens(model, input_ids);
    std::vector<TableRow> layers;
    for (std::size_t n = 0; n < routed.size(); ++n) {
        const auto choices = choices_by_token(input_ids, routed[n], E);
        layers.push_back({to_text(n), fixed(100 * predicted_by_token_id(choices), 1),
                          fixed(100 * predicted_by_load(choices), 1)});
    }

    // For each expert of the first layer, the tokens of which most occurrences choose it.
    const auto choices = choices_by_token(input_ids, routed[0], E);
    std::vector<TableRow> rows;
    for (std::size_t e = 0; e < E; ++e) {
        std::vector<std::pair<Real, Id>> frequent;
        for (const auto& [id, counts] : choices)
            if (2 * counts(e) > xt::sum(counts)()) frequent.push_back({counts(e), id});
        std::sort(frequent.rbegin(), frequent.rend());
        std::string list;
        for (std::size_t i = 0; i < std::min<std::size_t>(9, frequent.size()); ++i)
            list += (i > 0 ? " " : "") + text_of(tokenizer, frequent[i].second);
        rows.push_back({to_text(e), list});
    }
    show_table({"expert", "its most frequent tokens, in layer 0"}, rows);
    show_table({"layer", "% of choices that the token id predicts", "without it"}, layers);

    // The most frequent tokens, and how their occurrences are distributed over the experts.
    std::vector<std::pair<Real, Id>> by_count;
    for (const auto& [id, counts] : choices) by_count.push_back({xt::sum(counts)(), id});
    std::sort(by_count.rbegin(), by_count.rend());
    const std::size_t num_words = std::min<std::size_t>(12, by_count.size());
    std::vector<std::string> names;
    std::vector<Panel> panels;
    for (std::size_t i = 0; i < num_words; ++i)
        names.push_back(text_of(tokenizer, by_count[i].second));
    for (const std::size_t n : {std::size_t{0}, routed.size() - 1}) {
        const auto of_layer = choices_by_token(input_ids, routed[n], E);
        Matrix shares(std::array{num_words, E});
        for (std::size_t i = 0; i < num_words; ++i) {
            const Vector& counts = of_layer.at(by_count[i].second);
            const Real total = xt::sum(counts)();
            for (std::size_t e = 0; e < E; ++e) shares(i, e) = counts(e) / total;
        }
        panels.push_back(Heatmap{"Layer " + to_text(n), "expert", "token", shares, {}, names});
    }
    plot("words", panels);
}

}  // namespace llm
