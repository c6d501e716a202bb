#include "chapters/25_encoders/demo/tokenizers.hpp"

#include "chapters/25_encoders/wordpiece.hpp"
#include "common/output/show.hpp"

namespace llm {

void words_of_bert() {
    step("WordPiece: a vocabulary trained on a few words");
    const Tokenizer tokenizer = train_wordpiece(
        "play player playing played plays read reader reading reads walk walker walking walked",
        {.vocab_size = 42});
    std::vector<TableRow> rows;
    for (const std::string word : {"reading", "walks", "Players", "kept"})
        rows.push_back({word, tokens_of_text(tokenizer, word)});
    show_table({"word", "tokens"}, rows);
}

}  // namespace llm
