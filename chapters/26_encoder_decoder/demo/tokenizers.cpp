#include "chapters/26_encoder_decoder/demo/tokenizers.hpp"

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/26_encoder_decoder/unigram.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm {

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
    show("Unigram", tokens_of_text(tokenizer, word));
    tokenizer.unk_token_id = 0;
    tokenizer.word_model = WordPiece{.continuing_subword_prefix = ""};
    show("longest token first", tokens_of_text(tokenizer, word));
}

void train_tokenizers() {
    step("Unigram: a vocabulary trained on the held-out text of chapter 13");
    const std::string text = read_text(asset("data/king_james_held_out.txt"));
    constexpr std::size_t vocab_size = 800;
    const Tokenizer unigram = train_unigram(text, vocab_size);
    const Tokenizer wordpiece =
        train_wordpiece(text, {.vocab_size = vocab_size, .lowercase = false});
    const std::vector<double>& scores = unigram.word_model.target<Unigram>()->scores;
    std::vector<TableRow> rows;
    for (const std::size_t id : {3, 4, 5, 6, 7, 20, 100, 300, 700})
        rows.push_back(
            {to_text(id), spelling_of(unigram, static_cast<Id>(id)), fixed(scores[id], 2)});
    show_table({"id", "token", "score"}, rows);

    rows.clear();
    for (const std::string word :
         {"keepeth", "turneth", "trusted", "wickedness", "strengthened"})
        rows.push_back({word, tokens_of_text(unigram, word), tokens_of_text(wordpiece, word)});
    show_table({"word", "Unigram", "WordPiece"}, rows);
    show("tokens of the text, Unigram", unigram.encode(text).size());
    show("tokens of the text, WordPiece", wordpiece.encode(text).size());
}

}  // namespace llm
