#include "chapters/11_generation/demo/sampling.hpp"

#include <array>
#include <cmath>

#include "chapters/11_generation/cached_sequence.hpp"
#include "chapters/11_generation/demo/inspection.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/tensors/argsort.hpp"

namespace llm {
namespace {

// The K most likely next tokens, renumbered as ids 0 to K - 1.
struct Candidates {
    std::vector<std::string> tokens;
    Vector logits;              // (K)
    std::vector<Id> input_ids;  // the candidates that occur in the text
};

Candidates most_likely(const Model& model, const Tokenizer& tokenizer,
                       const std::vector<Id>& ids, std::size_t count) {
    const Vector logits =
        last_logits(model.forward(one_sequence(ids), {.logits_to_keep = LogitsToKeep::last}));
    Candidates candidates{{}, xt::zeros<Real>({count}), {}};
    for (std::size_t i = 0; const std::size_t token : argsort_descending(logits, count)) {
        const Id id = static_cast<Id>(token);
        candidates.tokens.push_back(token_texts(tokenizer, std::array{id})[0]);
        candidates.logits(i) = logits(token);
        if (std::find(ids.begin(), ids.end(), id) != ids.end())
            candidates.input_ids.push_back(static_cast<Id>(i));
        ++i;
    }
    return candidates;
}

// The logits after each function of sampling.hpp alone.
std::vector<std::pair<std::string, Vector>> processed(const Candidates& candidates) {
    const Vector& logits = candidates.logits;
    return {{"T = 0.5", apply_temperature(logits, 0.5f)},
            {"T = 2", apply_temperature(logits, 2)},
            {"top-k 4", apply_top_k(logits, 4)},
            {"top-p 0.7", apply_top_p(logits, 0.7f)},
            {"min-p 0.25", apply_min_p(logits, 0.25f)},
            {"penalty 1.3", apply_repetition_penalty(logits, candidates.input_ids, 1.3f)}};
}

std::string percent(double probability) {
    return probability == 0 ? "-" : fixed(100 * probability, 1);
}

// Shows the softmax step by step for the most likely tokens, and the sum over all others.
void show_softmax(const Tokenizer& tokenizer, const Vector& logits,
                  const std::vector<std::size_t>& tokens) {
    const Vector unchanged = softmax(logits),
                 sharper = softmax(apply_temperature(logits, 0.5f));
    const Vector flatter = softmax(apply_temperature(logits, 2));
    const Real highest = logits(tokens[0]);
    std::vector<TableRow> rows;
    std::array<double, 4> rest = {1 / double(unchanged(tokens[0])), 1, 1, 1};
    for (const std::size_t token : tokens) {
        const std::array<double, 4> values = {std::exp(logits(token) - highest),
                                              unchanged(token), sharper(token), flatter(token)};
        for (std::size_t i = 0; i < 4; ++i) rest[i] -= values[i];
        rows.push_back({tokenizer.token_text(static_cast<Id>(token)), fixed(logits(token), 2),
                        fixed(values[0], 3), percent(values[1]), percent(values[2]),
                        percent(values[3])});
    }
    rows.push_back({to_text(logits.size() - tokens.size()) + " others", "", fixed(rest[0], 3),
                    percent(rest[1]), percent(rest[2]), percent(rest[3])});
    show_table({"token", "logit", "exp(logit - max)", "percent", "T = 0.5", "T = 2"}, rows);
}

// Shows which tokens top-p 0.75 keeps and the interval of [0, 1) that each of them gets.
void show_top_p(const Tokenizer& tokenizer, const Vector& logits,
                const std::vector<std::size_t>& tokens) {
    const Vector before = softmax(logits), after = softmax(apply_top_p(logits, 0.75f));
    std::vector<TableRow> rows;
    double cumulative = 0, begin = 0;
    for (const std::size_t token : tokens) {
        const bool kept = after(token) > 0;
        const double end = begin + after(token);
        rows.push_back({tokenizer.token_text(static_cast<Id>(token)), percent(before(token)),
                        fixed(100 * cumulative, 1), kept ? "yes" : "no", percent(after(token)),
                        kept ? fixed(begin, 3) + " to " + fixed(end, 3) : "-"});
        cumulative += before(token);
        begin = end;
    }
    show_table({"token", "percent", "sum before", "kept", "top-p 0.75", "interval"}, rows);
}

void show_processed(const Candidates& candidates) {
    show("logits", candidates.logits);
    const Vector probabilities = softmax(candidates.logits);
    show("probabilities", probabilities);

    step("Probabilities after each function, in percent of these 12 tokens");
    TableRow headings = {"token", "unchanged"};
    std::vector<TableRow> rows;
    for (std::size_t token = 0; token < candidates.tokens.size(); ++token)
        rows.push_back({candidates.tokens[token], percent(probabilities(token))});
    for (const auto& [name, logits] : processed(candidates)) {
        const Vector changed = softmax(logits);
        headings.push_back(name);
        for (std::size_t token = 0; token < rows.size(); ++token)
            rows[token].push_back(percent(changed(token)));
    }
    show_table(headings, rows);
}

// Plots the probabilities of these tokens and of all others, before and after two functions.
void plot_next_word(const Tokenizer& tokenizer, const Vector& logits,
                    const std::vector<std::size_t>& tokens) {
    std::vector<std::string> names;
    for (const std::size_t token : tokens)
        names.push_back(tokenizer.token_text(static_cast<Id>(token)));
    names.push_back("others");
    const auto series = [&](const std::string& label, const Vector& processed) {
        const Vector probabilities = softmax(processed);
        Series result{label, {}};
        double rest = 1;
        for (const std::size_t token : tokens) {
            result.values.push_back(probabilities(token));
            rest -= result.values.back();
        }
        result.values.push_back(rest);
        return result;
    };
    const Series before = series("unchanged", logits);
    const Series flatter = series("temperature 2", apply_temperature(logits, 2));
    const Series kept = series("top-p 0.75", apply_top_p(logits, 0.75f));
    plot("temperature",
         {BarChart{"Temperature 2", "probability", names, {before, flatter}, 1}});
    plot("top_p", {BarChart{"Top-p 0.75", "probability", names, {before, kept}, 1}});
}

}  // namespace

void show_next_word(const Model& model, const Tokenizer& tokenizer, const std::string& text) {
    const std::vector<Id> ids = tokenizer.encode(text);
    const Vector logits =
        last_logits(model.forward(one_sequence(ids), {.logits_to_keep = LogitsToKeep::last}));
    std::vector<std::size_t> tokens;
    for (Vector rest = logits; tokens.size() < 5; rest(tokens.back()) = -infinity)
        tokens.push_back(static_cast<std::size_t>(argmax_token(rest)));

    step("The word after \"" + text + "\": from logits to probabilities");
    show("next_word_logits", logits);
    show_softmax(tokenizer, logits, tokens);

    step("Top-p 0.75, by hand");
    show_top_p(tokenizer, logits, tokens);
    plot_next_word(tokenizer, logits, tokens);
}

void show_sampling(const Model& model, const Tokenizer& tokenizer, const std::string& text,
                   const SamplingConfig& config, Generator& generator) {
    step("Most likely after \"" + text + "\": 12 tokens");
    const Candidates candidates = most_likely(model, tokenizer, tokenizer.encode(text), 12);
    show_processed(candidates);

    step("1000 samples with the sampling options (defaults: 0.8, top-p 0.9)");
    std::vector<int> counts(candidates.tokens.size());
    for (int i = 0; i < 1000; ++i)
        ++counts[static_cast<std::size_t>(
            sample_next_token(candidates.logits, candidates.input_ids, config, generator))];
    std::vector<TableRow> rows;
    for (std::size_t token = 0; token < counts.size(); ++token)
        rows.push_back({candidates.tokens[token], to_text(counts[token])});
    show_table({"token", "sampled"}, rows);
}

}  // namespace llm
