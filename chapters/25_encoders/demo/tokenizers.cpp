#include "chapters/25_encoders/demo/tokenizers.hpp"

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/25_encoders/unigram.hpp"
#include "chapters/25_encoders/wordpiece.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// All tokens by id, as in the vocabulary: ##ing, ▁the.
std::vector<std::string> spellings(const Tokenizer& tokenizer) {
    std::vector<std::string> tokens(tokenizer.vocab_size());
    for (const auto& [token, id] : tokenizer.vocab)
        tokens[static_cast<std::size_t>(id)] = token;
    return tokens;
}

std::string spelled(const Tokenizer& tokenizer, const std::vector<Id>& ids) {
    const std::vector<std::string> tokens = spellings(tokenizer);
    std::string text;
    for (const Id id : ids)
        text += (text.empty() ? "" : " ") + tokens[static_cast<std::size_t>(id)];
    return text;
}

// The tokens of a word without the special tokens around a text.
std::string inner_tokens(const Tokenizer& tokenizer, const std::string& word) {
    std::vector<Id> ids = tokenizer.encode(word);
    std::erase_if(ids, [&](Id id) { return tokenizer.all_special_ids.contains(id); });
    return spelled(tokenizer, ids);
}

}  // namespace

void words_of_bert() {
    step("WordPiece: a vocabulary trained on a few words");
    const Tokenizer tokenizer = train_wordpiece(
        "play player playing played plays read reader reading reads walk walker walking walked",
        {.vocab_size = 42});
    std::vector<TableRow> rows;
    for (const std::string word : {"reading", "walks", "Players", "kept"})
        rows.push_back({word, spelled(tokenizer, tokenizer.encode(word))});
    show_table({"word", "tokens"}, rows);
}

void viterbi_by_hand() {
    step("Unigram: the best way to write onion with six tokens");
    Tokenizer tokenizer;
    for (const char* token : {"o", "n", "i", "on", "ion", "oni"}) add_token(tokenizer, token);
    const Unigram model(tokenizer.vocab, {-4, -4, -4, -3, -3, -5});  // log2 of probabilities
    const std::string word = "onion";
    const std::vector<LatticeEdge> edges = lattice(model, tokenizer.vocab, word);
    const std::vector<BestPath> best = viterbi(edges, word.size());
    std::vector<TableRow> rows;
    for (std::size_t end = 1; end <= word.size(); ++end) {
        std::string paths;
        for (const LatticeEdge& edge : edges)
            if (edge.end == end)
                paths += (paths.empty() ? "" : ", ") +
                         word.substr(edge.begin, edge.end - edge.begin) + " " +
                         fixed(best[edge.begin].score + edge.score, 0);
        rows.push_back({word.substr(0, end), paths, fixed(best[end].score, 0)});
    }
    show_table({"letters", "last token, and score with it", "best"}, rows);

    tokenizer.word_model = model;
    show("Unigram", spelled(tokenizer, tokenizer.encode(word)));
    tokenizer.unk_token_id = 0;
    tokenizer.word_model = WordPiece{.continuing_subword_prefix = ""};
    show("longest token first", spelled(tokenizer, tokenizer.encode(word)));
}

void train_tokenizers() {
    step("Unigram: a vocabulary trained on the held-out text of chapter 13");
    const std::string text = read_text(asset("data/king_james_held_out.txt"));
    constexpr std::size_t vocab_size = 800;
    const Tokenizer unigram = train_unigram(text, vocab_size);
    const Tokenizer wordpiece =
        train_wordpiece(text, {.vocab_size = vocab_size, .lowercase = false});
    const std::vector<std::string> tokens = spellings(unigram);
    const std::vector<double>& scores = unigram.word_model.target<Unigram>()->scores;
    std::vector<TableRow> rows;
    for (const std::size_t id : {3, 4, 5, 6, 7, 20, 100, 300, 700})
        rows.push_back({to_text(id), tokens[id], fixed(scores[id], 2)});
    show_table({"id", "token", "score"}, rows);

    rows.clear();
    for (const std::string word :
         {"keepeth", "turneth", "trusted", "wickedness", "strengthened"})
        rows.push_back({word, inner_tokens(unigram, word), inner_tokens(wordpiece, word)});
    show_table({"word", "Unigram", "WordPiece"}, rows);
    show("tokens of the text, Unigram", unigram.encode(text).size());
    show("tokens of the text, WordPiece", wordpiece.encode(text).size());
}

}  // namespace llm
