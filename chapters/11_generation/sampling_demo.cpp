#include "chapters/11_generation/demo.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

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
    Vector logits = last_logits(model.forward(one_sequence(ids), {.last_logits_only = true}));
    Candidates candidates{{}, xt::zeros<Real>({count}), {}};
    for (std::size_t i = 0; i < count; ++i) {
        const Id id = argmax_token(logits);
        candidates.tokens.push_back(token_texts(tokenizer, std::array{id})[0]);
        candidates.logits(i) = std::exchange(logits(static_cast<std::size_t>(id)), -infinity);
        if (std::find(ids.begin(), ids.end(), id) != ids.end())
            candidates.input_ids.push_back(static_cast<Id>(i));
    }
    return candidates;
}

// The logits after each function of sampling.hpp alone.
std::vector<std::pair<std::string, Vector>> processed(const Candidates& candidates) {
    const Vector& logits = candidates.logits;
    return {{"temp. 0.5", apply_temperature(logits, 0.5f)},
            {"temp. 2", apply_temperature(logits, 2)},
            {"top-k 4", apply_top_k(logits, 4)},
            {"top-p 0.7", apply_top_p(logits, 0.7f)},
            {"min-p 0.25", apply_min_p(logits, 0.25f)},
            {"penalty 1.3", apply_repetition_penalty(logits, candidates.input_ids, 1.3f)}};
}

std::string percent(double probability) {
    return probability == 0 ? "-" : fixed(100 * probability, 1);
}

void show_processed(const Candidates& candidates) {
    show("logits", candidates.logits);
    const Vector probabilities = softmax(candidates.logits);
    show("probabilities", probabilities);

    step("Probabilities after each function in percent, renormalized over these 12 tokens");
    TableRow headings = {"token", "unchanged"};
    std::vector<TableRow> rows;
    for (std::size_t token = 0; token < candidates.tokens.size(); ++token)
        rows.push_back({candidates.tokens[token], percent(probabilities(token))});
    const Series before{"unchanged", numbers_of(probabilities)};
    std::vector<Panel> panels;
    for (const auto& [name, logits] : processed(candidates)) {
        const Vector changed = softmax(logits);
        headings.push_back(name);
        for (std::size_t token = 0; token < rows.size(); ++token)
            rows[token].push_back(percent(changed(token)));
        panels.push_back(BarChart{name,
                                  "probability",
                                  candidates.tokens,
                                  {before, {name, numbers_of(changed)}},
                                  0.4});
    }
    show_table(headings, rows);
    plot("sampling", panels);
}

}  // namespace

void show_sampling(const Model& model, const Tokenizer& tokenizer, const std::string& text,
                   const SamplingConfig& config, Generator& generator) {
    step("The 12 most likely next tokens after \"" + text + "\"");
    const Candidates candidates = most_likely(model, tokenizer, tokenizer.encode(text), 12);
    show_processed(candidates);

    step("1000 samples with the sampling options (default: temperature 0.8, top-p 0.9)");
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
