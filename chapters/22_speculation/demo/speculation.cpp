#include "chapters/22_speculation/demo/speculation.hpp"

#include "chapters/22_speculation/speculative_decoding.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The words of a text, separated by spaces, and their ids: numbered as they come.
struct WordIds {
    std::vector<std::string> names;
    std::vector<Id> ids;
};
WordIds words_of_text(const std::string& text) {
    WordIds words;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        const auto found = std::find(words.names.begin(), words.names.end(), word);
        words.ids.push_back(found - words.names.begin());
        if (found == words.names.end()) words.names.push_back(word);
        begin = end + 1;
    }
    return words;
}

std::string text_of(const WordIds& words, std::span<const Id> ids) {
    std::string text;
    for (const Id id : ids) text += (text.empty() ? "" : " ") + words.names[std::size_t(id)];
    return text.empty() ? "-" : text;
}

const std::string mtp_name = "MTP, 1 layer";

std::string layers_name(const FastModel& draft) {
    return "first " + to_text(draft.layers.size()) + " of 4 layers";
}

// The drafts of the steps below: n-grams, the first layers of the model itself, and a module
// that reads the hidden states of the target sequence.
struct NamedDraft {
    std::string name;
    std::function<std::unique_ptr<Proposer>(TargetSequence&)> make;
};
std::vector<NamedDraft> all_drafts(const FastMtpModule& mtp,
                                   const std::vector<FastModel>& draft_models) {
    std::vector<NamedDraft> drafts = {{"n-gram lookup", [](TargetSequence& target) {
                                           return std::make_unique<NgramProposer>(
                                               target.model.config.vocab_size);
                                       }}};
    for (const FastModel& draft : draft_models)
        drafts.push_back({layers_name(draft), [&](TargetSequence& target) {
                              return std::make_unique<DraftModel>(draft,
                                                                  target.cached.num_positions);
                          }});
    drafts.push_back({mtp_name, [&](TargetSequence& target) {
                          return std::make_unique<MtpDraft>(mtp, target);
                      }});
    return drafts;
}

// The models of 1, 2 and 3 of its layers.
std::vector<FastModel> truncated_models(const FastModel& model) {
    std::vector<FastModel> result;
    for (std::size_t count = 1; count < model.layers.size(); ++count)
        result.push_back(first_layers(model, count));
    return result;
}

const std::string psalm =
    "The LORD is my shepherd; I shall not want.\n"
    "He maketh me to lie down in green pastures: he leadeth me beside the still waters.\n"
    "He restoreth my soul: he leadeth me in the paths of righteousness for his name's sake.\n"
    "Yea, though I walk through the valley of the shadow of death, I will fear no evil: for "
    "thou art with me; thy rod and thy staff they comfort me.\n";

// The distributions q of a draft at each position of a text, (V); empty where it proposes none.
using DraftDistributions = std::function<Vector(std::size_t t, const SamplingConfig& config)>;

// The mean probability that a proposed token is accepted, in percent.
double mean_acceptance(const Matrix& target,  // (T, V), logits
                       const DraftDistributions& draft, const SamplingConfig& config) {
    double sum = 0, count = 0;
    for (std::size_t t = 0; t < target.shape(0); ++t) {
        const Vector logits = xt::view(target, t), q = draft(t, config);  // (V)
        if (q.size() == 0) continue;
        sum += acceptance_probability(token_probabilities(logits, {}, config), q);
        ++count;
    }
    return 100 * sum / count;
}

Matrix logits_of_text(const FastModel& model, const std::vector<Id>& ids) {  // (T) -> (T, V)
    RunState state = make_run_state(model, ids.size());
    const ConstMatrixView rows = compute_logits(model, ids, state, LogitsToKeep::all);
    Matrix logits = xt::zeros<Real>({rows.num_rows, rows.num_columns});
    for (std::size_t t = 0; t < rows.num_rows; ++t) std::ranges::copy(rows[t], &logits(t, 0));
    return logits;
}

}  // namespace

void speculative_sampling_by_hand(Generator& generator) {
    step("Speculative sampling by hand: \"The sky is\", and three words");
    const std::vector<std::string> words = {"blue", "green", "red"};
    const Vector p = {0.5f, 0.3f, 0.2f}, q = {0.2f, 0.7f, 0.1f};  // (V)
    const Vector residual = residual_distribution(p, q);          // (V)
    const double alpha = acceptance_probability(p, q);

    // Propose and verify 10,000 times.
    std::vector<int> counts(words.size());
    for (int i = 0; i < 10000; ++i) {
        const Proposal proposal{{sample_from(q, generator)}, {q}};
        const auto target = [&](std::size_t) { return p; };
        ++counts[std::size_t(accept_proposal(proposal, target, generator)[0])];
    }
    std::vector<TableRow> rows;
    Series target{"p", {}}, draft{"q", {}}, both{"accepted: min(p, q)", {}};
    for (std::size_t x = 0; x < words.size(); ++x) {
        const double accepted = std::min(p(x), q(x)), resampled = (1 - alpha) * residual(x);
        target.values.push_back(p(x)), draft.values.push_back(q(x));
        both.values.push_back(accepted);
        rows.push_back({words[x], fixed(p(x), 2), fixed(q(x), 2), fixed(accepted, 2),
                        fixed(residual(x), 2), fixed(resampled, 2),
                        fixed(accepted + resampled, 2), with_commas(std::uint64_t(counts[x]))});
    }
    show_table({"word", "p", "q", "accepted", "residual", "resampled", "sum", "of 10,000"},
               rows);
    show("accepted_in_all", fixed(alpha, 2));
    plot("accepted",
         {BarChart{"After \"The sky is\"", "probability", words, {target, draft, both}, 1}});
}

std::vector<Id> prompt_ids(const FastModel& model, const Tokenizer& tokenizer,
                           const VerificationDemo& demo) {
    const std::vector<Id> ids = models::encode_prompt(tokenizer, demo.prompt);
    const std::size_t max_len = model.config.max_position_embeddings - demo.num_proposals;
    require(ids.size() <= max_len,
            "--prompt has {} tokens, but with {} proposals at most {} fit into the context",
            ids.size(), demo.num_proposals, max_len);
    return ids;
}

void one_verification_step(const FastModel& model, const Tokenizer& tokenizer,
                           const VerificationDemo& demo, const std::vector<Id>& prompt) {
    step("One step of the target verifies the tokens that a draft proposes");
    say("the prompt: " + demo.prompt);
    const SamplingConfig greedy{.temperature = 0};
    Generator unused(1);
    const FastModel draft_model = first_layers(model, demo.draft_layers);
    DraftModel draft(draft_model, model.config.max_position_embeddings);
    const Proposal proposal = draft.propose(prompt, demo.num_proposals, greedy, unused);

    // Row k: what the target predicts after the prompt and the first k proposals.
    std::vector<Id> ids = prompt;
    ids.insert(ids.end(), proposal.ids.begin(), proposal.ids.end());
    const Matrix logits = logits_of_text(model, ids);  // (T + K, V)
    std::vector<TableRow> rows;
    bool reached = true;
    for (std::size_t k = 0; k <= proposal.size(); ++k) {
        const Vector row = xt::view(logits, prompt.size() - 1 + k);  // (V)
        const Id best = argmax_token(row);
        const bool bonus = k == proposal.size(), same = !bonus && best == proposal.ids[k];
        const auto name = [&](Id id) { return tokenizer.token_text(id); };
        rows.push_back({to_text(k + 1), bonus ? "-" : name(proposal.ids[k]), name(best),
                        !reached ? "not used"
                        : bonus  ? "bonus token"
                        : same   ? "accepted"
                                 : "replaced"});
        reached = reached && same;
    }
    show_table({"position", "draft", "target", "result"}, rows);
}

void ngram_proposals() {
    step("N-gram lookup: what followed the last words before?");
    const WordIds words = words_of_text("the cat sat on the mat and the dog sat on the");
    say(text_of(words, words.ids) + " ...");
    std::vector<TableRow> rows;
    for (std::size_t n = 1; n <= 3; ++n)
        rows.push_back({to_text(n), text_of(words, std::span(words.ids).last(n)),
                        text_of(words, lookup_ngram(words.ids, n, 4))});
    show_table({"at most", "longest suffix that occurred", "4 proposed words"}, rows);
}

void tokens_per_step(const FastModel& model, const FastMtpModule& mtp,
                     const Tokenizer& tokenizer) {
    step("Greedy tokens per step of the target, by draft and K");
    const std::vector<Id> prompt = tokenizer.encode("And the LORD said unto Moses");
    const GenerationConfig config{.sampling = {.temperature = 0}, .max_new_tokens = 120};
    const std::size_t num_positions = prompt.size() + config.max_new_tokens;
    Generator unused(1);
    CachedSequence cached = make_cached_sequence(model, num_positions);
    const std::vector<Id> expected = generate(cached, prompt, config, unused).ids;

    const std::vector<FastModel> draft_models = truncated_models(model);
    std::vector<TableRow> rows;
    bool same = true;
    for (const auto& [name, make] : all_drafts(mtp, draft_models)) {
        TableRow row = {name};
        double rate = 0;
        for (const std::size_t K : {1, 2, 4, 8}) {
            TargetSequence target = make_target_sequence(model, num_positions);
            const std::unique_ptr<Proposer> proposer = make(target);
            const auto [generated, statistics] =
                generate_speculatively(target, *proposer, K, prompt, config, unused);
            same = same && generated.ids == expected;
            row.push_back(fixed(double(generated.ids.size()) / double(statistics.steps), 2));
            if (K == 1) rate = double(statistics.accepted) / double(statistics.proposed);
        }
        row.push_back(fixed(100 * rate, 1));
        rows.push_back(row);
    }
    show_table({"draft", "K = 1", "2", "4", "8", "% accepted, K = 1"}, rows);
    show("same_tokens_as_generate", same);
}

namespace {

// The percentage of each draft's tokens that are accepted.
struct AcceptanceByTemperature {
    const Matrix& target;  // (T, V), logits
    std::vector<TableRow> rows{};
    std::vector<Line> lines{};

    void add(const std::string& name, const DraftDistributions& draft) {
        lines.push_back({name, {}, {}});
        TableRow row = {name};
        for (const Real temperature : {Real(0), Real(0.5), Real(1), Real(1.5), Real(2)}) {
            const double percent = mean_acceptance(target, draft, {.temperature = temperature});
            lines.back().x.push_back(temperature);
            lines.back().y.push_back(percent);
            row.push_back(fixed(percent, 1));
        }
        rows.push_back(row);
    }

    void show() const {
        show_table({"draft", "temp. 0", "0.5", "1", "1.5", "2"}, rows);
        LinePlot figure{"Tokens of a draft that are accepted", "temperature", "percent", lines};
        figure.low = 0, figure.high = 100;
        plot("acceptance", {figure});
    }
};

}  // namespace

void acceptance_by_temperature(const FastModel& model, const FastMtpModule& mtp,
                               const Tokenizer& tokenizer) {
    step("Psalm 23: percent of a draft's tokens that are accepted");
    const std::vector<Id> ids = tokenizer.encode(psalm);
    const Matrix target = logits_of_text(model, ids);  // (T, V)
    AcceptanceByTemperature results{target};
    const auto up_to = [&](std::size_t t) {
        return std::vector<Id>(ids.begin(), ids.begin() + std::ptrdiff_t(t) + 1);
    };
    results.add("n-gram lookup", [&](std::size_t t, const SamplingConfig&) {
        const std::vector<Id> next = lookup_ngram(up_to(t), 3, 1);
        return next.empty() ? Vector{} : one_hot(next[0], model.config.vocab_size);
    });
    for (const FastModel& draft_model : truncated_models(model)) {
        const Matrix draft = logits_of_text(draft_model, ids);  // (T, V)
        results.add(layers_name(draft_model), [&](std::size_t t, const SamplingConfig& config) {
            const Vector logits = xt::view(draft, t);  // (V)
            return token_probabilities(logits, {}, config);
        });
    }
    TargetSequence sequence = make_target_sequence(model, ids.size());
    MtpDraft draft(mtp, sequence);
    results.add(mtp_name, [&](std::size_t t, const SamplingConfig& config) {
        Generator unused(1);
        const Proposal proposal = draft.propose(up_to(t), 1, config, unused);
        return proposal.size() == 0 ? Vector{} : proposal.probabilities[0];
    });
    results.show();
}

}  // namespace llm
