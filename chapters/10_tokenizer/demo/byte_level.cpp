#include "chapters/10_tokenizer/demo/byte_level.hpp"

#include "chapters/10_tokenizer/byte_level_training.hpp"
#include "chapters/10_tokenizer/demo/encoding.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// Sums such as "7 + 5 = 12", each followed by a special token.
std::string sums() {
    std::string text;
    for (int a = 0; a < 20; ++a)
        for (int b = 0; b < 20; ++b)
            text += to_text(a) + " + " + to_text(b) + " = " + to_text(a + b) + "<|endoftext|>";
    return text;
}

// The merge of each rank, as "left + right".
std::vector<std::string> merges_by_rank(const Tokenizer& tokenizer) {
    std::vector<std::string> merges(tokenizer.merges.size());
    for (const auto& [pair, merge] : tokenizer.merges)
        merges[static_cast<std::size_t>(merge.rank)] =
            tokenizer.token_text(pair.first) + " + " + tokenizer.token_text(pair.second);
    return merges;
}

// Shows the merges of two tokenizers side by side.
void compare_merges(const std::string& title_a, const Tokenizer& a, const std::string& title_b,
                    const Tokenizer& b) {
    const std::vector<std::string> merges_a = merges_by_rank(a), merges_b = merges_by_rank(b);
    std::vector<TableRow> rows;
    for (std::size_t rank = 0; rank < std::min(merges_a.size(), merges_b.size()); ++rank)
        rows.push_back({to_text(rank), merges_a[rank], merges_b[rank]});
    show_table({"rank", title_a, title_b}, rows);
}

}  // namespace

void byte_level_training(const Tokenizer& king_james) {
    step("Train byte-level BPE with a special token");
    const Tokenizer tokenizer = train_byte_level_bpe(sums(), {265, {"<|endoftext|>"}});
    std::vector<std::string> merged;
    for (Id id = 257; id < 265; ++id) merged.push_back(tokenizer.token_text(id));
    show_table({"ids", "number", "tokens"},
               {{"0", "1", "the special token <|endoftext|>"},
                {"1 to 256", "256", "the bytes: " + tokens_of(tokenizer, {1, 2, 3}) + " ..."},
                {"257 to 264", "8", "merges: " + joined(merged, " ")}});

    const std::string text = "17 + 5 = 22 \U0001F600<|endoftext|>";
    const std::vector<Id> ids = tokenizer.encode(text);
    show("text", text);
    say("king_james: " + tokens_of(king_james, king_james.encode(text)));
    show("byte-level", tokens_of(tokenizer, ids));
    show("decoded without special tokens", tokenizer.decode(ids));

    step("Wrong: count the text of the special token");
    compare_merges("split at <|endoftext|>", tokenizer, "without special tokens",
                   train_byte_level_bpe(sums(), {264}));
}

void ties(const std::string& four_words) {
    step("Ties: two rules for equally frequent pairs");
    const Tokenizer lowest_ids = train_byte_level_bpe(four_words, {262});
    const Tokenizer greatest_bytes =
        train_byte_level_bpe(four_words, {262, {}, 2, TieBreaking::greatest_bytes});
    compare_merges("lowest ids", lowest_ids, "greatest bytes", greatest_bytes);
    for (const std::string word : {"newest", "lowest"})
        say(word + ": " + tokens_of(lowest_ids, lowest_ids.encode(word)) + " or " +
            tokens_of(greatest_bytes, greatest_bytes.encode(word)));
}

}  // namespace llm
