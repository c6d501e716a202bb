#include "chapters/26_encoder_decoder/unigram.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "chapters/10_tokenizer/byte_level_training.hpp"
#include "common/files/unicode.hpp"

namespace llm {

Unigram::Unigram(const Vocabulary& vocab, std::vector<double> token_scores)
    : scores(std::move(token_scores)), max_token_size(0) {
    require(!scores.empty(), "Unigram: there is no token");
    unknown_score = *std::min_element(scores.begin(), scores.end()) - 10;
    for (const auto& [token, id] : vocab)
        max_token_size = std::max(max_token_size, token.size());
}

std::vector<LatticeEdge> lattice(const Unigram& model, const Vocabulary& vocab,
                                 const std::string& word) {
    std::vector<LatticeEdge> edges;
    const std::vector<std::string> letters = characters(word);
    std::size_t begin = 0;
    for (std::size_t first = 0; first < letters.size(); begin += letters[first++].size()) {
        std::string text;
        for (std::size_t last = first; last < letters.size(); ++last) {
            text += letters[last];
            if (text.size() > model.max_token_size && last > first) break;
            const auto found = vocab.find(text);
            const bool is_token = found != vocab.end() &&  // and not only an added token
                                  std::size_t(found->second) < model.scores.size();
            const std::size_t end = begin + text.size();
            if (is_token) {
                const double score = model.scores[std::size_t(found->second)];
                edges.push_back({begin, end, found->second, score});
            } else if (last == first) {
                edges.push_back({begin, end, std::nullopt, model.unknown_score});
            }
        }
    }
    return edges;
}

std::vector<BestPath> viterbi(const std::vector<LatticeEdge>& edges, std::size_t word_size) {
    std::vector<BestPath> best(word_size + 1);
    best[0].score = 0;
    for (const LatticeEdge& edge : edges) {
        // All edges that end where this one begins were read before.
        const double score = best[edge.begin].score + edge.score;
        if (score > best[edge.end].score) best[edge.end] = {score, edge};
    }
    return best;
}

namespace {

// The edges of the best path to the end of a word, the last one first. Adjacent unknown ones
// are one if fuse_unk says so.
std::vector<LatticeEdge> best_edges(const std::vector<BestPath>& best,
                                    const Tokenizer& tokenizer) {
    std::vector<LatticeEdge> path;
    for (std::size_t end = best.size() - 1; end > 0; end = path.back().begin) {
        LatticeEdge edge = best[end].last_edge;
        if (edge.id == tokenizer.unk_token_id) edge.id = std::nullopt;
        if (tokenizer.fuse_unk && !edge.id && !path.empty() && !path.back().id) {
            edge.end = path.back().end;
            path.pop_back();
        }
        path.push_back(edge);
    }
    return path;
}

}  // namespace

std::vector<Id> Unigram::operator()(const Tokenizer& tokenizer, const std::string& word) const {
    const std::vector<LatticeEdge> path =
        best_edges(viterbi(lattice(*this, tokenizer.vocab, word), word.size()), tokenizer);
    std::vector<Id> ids;
    for (auto edge = path.rbegin(); edge != path.rend(); ++edge) {
        // An unknown part of the word is encoded as bytes or as the unknown token.
        const std::string text = word.substr(edge->begin, edge->end - edge->begin);
        std::vector<Id> tokens =
            edge->id ? std::vector{*edge->id} : tokenizer.encode_character(text);
        if (tokens.empty() && !tokenizer.unk_token_id)
            throw TextError("there is no token for '" + text + "'");
        if (tokens.empty()) tokens = {*tokenizer.unk_token_id};
        ids.insert(ids.end(), tokens.begin(), tokens.end());
    }
    return ids;
}

PreTokenizer whitespace_split_pre_tokenizer() {
    return regex_pre_tokenizer("WhitespaceSplit", R"(\S+)", false);
}

namespace {

bool is_character(const std::string& token) { return characters(token).size() == 1; }

// A tokenizer of the special tokens alone.
Tokenizer special_tokens_of_t5() {
    Tokenizer tokenizer;
    tokenizer.pre_tokenizers = {whitespace_split_pre_tokenizer(),
                                metaspace_pre_tokenizer("▁", PrependScheme::always, true)};
    tokenizer.spelling = [](const std::string& bytes) { return replaced(bytes, " ", "▁"); };
    tokenizer.fuse_unk = tokenizer.strip_leading_space = true;
    for (const char* token : {"<pad>", "</s>", "<unk>"}) add_special_token(tokenizer, token);
    tokenizer.suffix_tokens = tokenizer.eos_token_ids = {tokenizer.vocab.at("</s>")};
    tokenizer.unk_token_id = tokenizer.vocab.at("<unk>");
    return tokenizer;
}

// The words between special tokens, and all substrings of words; how often each occurs.
using TextCounts = std::map<std::string, std::size_t>;
TextCounts count_words(const std::string& text) {
    check_utf8(text);
    const Tokenizer tokenizer = special_tokens_of_t5();
    TextCounts counts;
    for (const Segment& segment : split_at_added_tokens(tokenizer.added_tokens, text))
        if (!segment.id)
            for (const std::string& word : tokenizer.pre_tokenize(segment.text, true))
                ++counts[word];
    if (counts.empty()) throw TextError("the text is empty");
    return counts;
}
TextCounts count_substrings(const TextCounts& word_counts, std::size_t max_length) {
    TextCounts counts;
    for (const auto& [word, count] : word_counts) {
        const std::vector<std::string> letters = characters(word);
        for (std::size_t begin = 0; begin < letters.size(); ++begin) {
            const std::size_t end = std::min(letters.size(), begin + max_length);
            std::string substring;
            for (std::size_t i = begin; i < end; ++i) counts[substring += letters[i]] += count;
        }
    }
    return counts;
}

}  // namespace

UnigramTrainer make_unigram_trainer(const std::string& text, std::size_t max_piece_length) {
    const TextCounts word_counts = count_words(text);
    std::vector<std::string> tokens;
    Vocabulary vocab;
    std::vector<double> scores;
    double sum = 0;
    for (const auto& [token, count] : count_substrings(word_counts, max_piece_length)) {
        if (count < 2 && !is_character(token)) continue;
        vocab[token] = static_cast<Id>(tokens.size());
        tokens.push_back(token);
        const double weight = double(count * characters(token).size());
        sum += weight;
        scores.push_back(std::log(weight));
    }
    for (double& score : scores) score -= std::log(sum);
    return {tokens, vocab, Unigram(vocab, scores), {word_counts.begin(), word_counts.end()}};
}

namespace {

// ln(exp(a) + exp(b)), without overflow.
double log_add_exp(double a, double b) {
    const double larger = std::max(a, b), smaller = std::min(a, b);
    return std::isinf(smaller) ? larger : larger + std::log1p(std::exp(smaller - larger));
}

// The ids of the tokens that have not been removed.
std::vector<std::size_t> ids_in_use(const UnigramTrainer& trainer) {
    std::vector<std::size_t> ids;
    for (std::size_t id = 0; id < trainer.tokens.size(); ++id)
        if (trainer.vocab.contains(trainer.tokens[id])) ids.push_back(id);
    return ids;
}

}  // namespace

ExpectedCounts expected_counts(const UnigramTrainer& trainer) {
    ExpectedCounts expected{std::vector<double>(trainer.tokens.size())};
    for (const auto& [word, count] : trainer.word_counts) {
        const std::vector<LatticeEdge> edges = lattice(trainer.model, trainer.vocab, word);

        // Sum over all paths from the beginning to each byte, and from there to the end.
        const double none = -std::numeric_limits<double>::infinity();
        std::vector<double> forward(word.size() + 1, none), backward = forward;
        forward.front() = backward.back() = 0;
        for (const LatticeEdge& edge : edges)
            forward[edge.end] =
                log_add_exp(forward[edge.end], forward[edge.begin] + edge.score);
        for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge)
            backward[edge->begin] =
                log_add_exp(backward[edge->begin], backward[edge->end] + edge->score);

        // The probability of an edge is the share of the paths through it.
        for (const auto& [begin, end, id, score] : edges)
            expected.counts[std::size_t(id.value())] +=
                double(count) *
                std::exp(forward[begin] + score + backward[end] - forward.back());
        expected.log_likelihood += double(count) * forward.back();
    }
    return expected;
}

void maximize(UnigramTrainer& trainer, const std::vector<double>& counts) {
    const double fewest = 0.5;
    for (const std::size_t id : ids_in_use(trainer))
        if (const std::string& token = trainer.tokens[id];
            counts[id] < fewest && !is_character(token))
            trainer.vocab.erase(token);
    double sum = 0;
    for (const std::size_t id : ids_in_use(trainer)) sum += std::max(counts[id], fewest);
    for (const std::size_t id : ids_in_use(trainer))
        trainer.model.scores[id] = std::log(std::max(counts[id], fewest) / sum);
}

void prune(UnigramTrainer& trainer, const std::vector<double>& counts, std::size_t num_tokens) {
    // What is the next best way to write each token?
    std::vector<std::pair<double, std::size_t>> losses;  // negative, to sort by descending loss
    const std::vector<std::size_t> ids = ids_in_use(trainer);
    for (const std::size_t id : ids) {
        const std::string& token = trainer.tokens[id];
        if (is_character(token)) continue;
        std::vector<LatticeEdge> edges = lattice(trainer.model, trainer.vocab, token);
        std::erase_if(edges, [id](const LatticeEdge& edge) { return edge.id == Id(id); });
        const double alternative = viterbi(edges, token.size()).back().score;
        losses.emplace_back(counts[id] * (alternative - trainer.model.scores[id]), id);
    }

    // Remove those whose loss is the lowest.
    std::sort(losses.begin(), losses.end());
    const std::size_t num_characters = ids.size() - losses.size();
    const std::size_t num_kept = num_tokens - std::min(num_tokens, num_characters);
    for (std::size_t i = num_kept; i < losses.size(); ++i)
        trainer.vocab.erase(trainer.tokens[losses[i].second]);
}

namespace {

// Numbers the tokens by descending score, after the special tokens, whose score is 0.
Tokenizer make_tokenizer(const UnigramTrainer& trainer) {
    std::vector<std::pair<double, std::string>> by_score;
    for (const std::size_t id : ids_in_use(trainer))
        by_score.emplace_back(-trainer.model.scores[id], trainer.tokens[id]);
    std::sort(by_score.begin(), by_score.end());
    Tokenizer tokenizer = special_tokens_of_t5();
    std::vector<double> scores(tokenizer.vocab_size());
    for (const auto& [negative_score, token] : by_score) {
        add_token(tokenizer, replaced(token, "▁", " "));
        scores.push_back(-negative_score);
    }
    tokenizer.word_model = Unigram(tokenizer.vocab, scores);
    return tokenizer;
}

}  // namespace

Tokenizer train_unigram(const std::string& text, std::size_t vocab_size,
                        std::size_t max_piece_length) {
    UnigramTrainer trainer = make_unigram_trainer(text, max_piece_length);
    const std::size_t num_special = special_tokens_of_t5().vocab_size();
    const auto smallest =
        num_special +
        std::size_t(std::count_if(trainer.tokens.begin(), trainer.tokens.end(), is_character));
    require(smallest <= vocab_size,
            "train_unigram: {} special tokens and characters are too many for a vocabulary of "
            "{}",
            smallest, vocab_size);

    // Remove a quarter of the tokens again and again, until the others fit.
    while (true) {
        std::vector<double> counts;
        for (int i = 0; i < 2; ++i) {
            counts = expected_counts(trainer).counts;
            maximize(trainer, counts);
        }
        const std::size_t size = trainer.vocab.size();
        if (size + num_special <= vocab_size) return make_tokenizer(trainer);
        prune(trainer, counts, std::max(vocab_size - num_special, size * 3 / 4));
    }
}

}  // namespace llm
