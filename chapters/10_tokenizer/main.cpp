// Chapter 10 — How does text become tokens, and back? This program trains byte-pair encoding on
// four words, encodes an unseen word and five words of the shipped model, compares
// pre-tokenizers, and encodes a text step by step with that model's tokenizer or another one.
#include <map>

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/10_tokenizer/byte_level_training.hpp"
#include "chapters/10_tokenizer/demo/byte_level.hpp"
#include "chapters/10_tokenizer/demo/encoding.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/random.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

std::string pair_text(const Tokenizer& tokenizer, const TokenPair& pair) {
    return tokenizer.token_text(pair.first) + " + " + tokenizer.token_text(pair.second);
}

// All pairs, sorted by descending count, then by ascending ids.
std::vector<std::pair<TokenPair, std::size_t>> sorted_pairs(const BPETrainer& trainer) {
    const PairCounts counts = count_pairs(trainer.words);
    std::vector<std::pair<TokenPair, std::size_t>> pairs(counts.begin(), counts.end());
    std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
        return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    return pairs;
}

std::string text_of_four_words() {
    std::string text;
    for (const auto& [word, count] : std::vector<std::pair<std::string, int>>{
             {"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}})
        for (int i = 0; i < count; ++i) text += word + "\n";
    return text;
}

BPETrainer four_words() {
    step("A training text: low 5 times, lower 2, newest 6, widest 3 times");
    BPETrainer trainer = make_bpe_trainer(text_of_four_words(), 0);
    std::vector<TableRow> rows;
    for (const auto& [ids, count] : trainer.words)
        rows.push_back({tokens_of(trainer.tokenizer, ids), to_text(count)});
    show_table({"tokens of a word", "count"}, rows);
    show("vocabulary size", trainer.tokenizer.vocab_size());

    return trainer;
}

// The counts of the pairs that occur more than 5 times before, between or after two merges.
void show_pair_counts(BPETrainer trainer) {
    step("Count pairs of adjacent tokens, merge the most frequent, count again");
    std::vector<std::string> titles = {"pair", "at first"};
    std::vector<TableRow> rows;
    std::map<TokenPair, std::size_t> row_of;
    for (std::size_t merges = 0; merges <= 2; ++merges) {
        const auto pairs = sorted_pairs(trainer);
        for (const auto& [pair, count] : pairs) {
            if (count > 5 && !row_of.contains(pair)) {
                row_of[pair] = rows.size();
                rows.push_back({pair_text(trainer.tokenizer, pair), "0", "0", "0"});
            }
            if (row_of.contains(pair)) rows[row_of[pair]][1 + merges] = to_text(count);
        }
        if (merges < 2)
            titles.push_back("after " + pair_text(trainer.tokenizer, pairs[0].first));
        merge_most_frequent_pair(trainer);
    }
    show_table(titles, rows);
}

Tokenizer show_merges(BPETrainer trainer) {
    step("Merge the most frequent pair, count again, until no pair occurs twice");
    const Tokenizer& tokenizer = trainer.tokenizer;
    std::vector<TableRow> rows;
    const auto add_row = [&](TableRow row) {
        for (const std::string word : {"lower", "newest", "widest", "lowest"})
            row.push_back(tokens_of(tokenizer, tokenizer.encode(word)));
        rows.push_back(row);
    };
    add_row({"", "", ""});
    for (std::size_t rank = 0; true; ++rank) {
        const auto pairs = sorted_pairs(trainer);
        if (!merge_most_frequent_pair(trainer)) break;
        add_row(
            {to_text(rank), pair_text(tokenizer, pairs[0].first), to_text(pairs[0].second)});
    }
    show_table({"rank", "merge", "count", "lower", "newest", "widest", "lowest"}, rows);
    say("lowest is not in the training text. Encoding it with these merges gives the tokens "
        "low and est.");
    return tokenizer;
}

void five_words(const Tokenizer& tokenizer) {
    step("Five words: the merges of the shipped tokenizer, one by one");
    Tokenizer characters_only = tokenizer;
    characters_only.merges.clear();
    const std::string text = "And the LORD said unto";
    std::vector<TableRow> rows;
    for (const std::string& word : tokenizer.pre_tokenize(text, true)) {
        std::vector<Id> ids = characters_only.encode_word(word);
        rows.emplace_back();
        for (std::size_t merges = 0; merges <= 4; ++merges) {
            rows.back().push_back(tokens_of(tokenizer, ids));
            merge_next_pair(tokenizer, ids);
        }
    }
    show_table({"characters", "1 merge", "2 merges", "3 merges", "4 merges"}, rows);
    const std::vector<Id> ids = tokenizer.encode(text);
    IdMatrix word_ids({1, ids.size()});  // (B, T)
    std::copy(ids.begin(), ids.end(), word_ids.begin());
    show("word_ids", word_ids);
}

void unknown_characters(const Tokenizer& tokenizer) {
    step("A character that is not in the vocabulary");
    const std::vector<Id> ids = tokenizer.encode("löwest");
    show("löwest", tokens_of(tokenizer, ids));
    show("decoded", tokenizer.decode(ids));

    step("Bytes: 256 tokens for any text");
    const std::string text = "naïve café\n";
    std::string byte_level, fallback;
    for (const unsigned char byte : text) {
        byte_level += byte_to_unicode(byte);
        if (byte >= 0x80) fallback += byte_fallback_token(byte);
    }
    show("text", escaped(text));
    show("byte-level, GPT-2's characters", byte_level);
    show("byte fallback for ï and é", fallback);
    const Tokenizer bytes = byte_tokenizer();
    std::vector<TableRow> rows;
    for (const std::string example : {"naive", "naïve", "中文", "\U0001F600"})
        rows.push_back({example, to_text(characters(example).size()),
                        to_text(bytes.encode(example).size() - 1),
                        bytes.decode(bytes.encode(example)) == example ? "yes" : "no"});
    show_table({"text", "characters", "bytes", "decodes to itself"}, rows);
}

void pre_tokenization() {
    step("Pre-tokenization: merges never cross word boundaries");
    const std::string text = "It's  12 naïve cats!";
    const PreTokenizer gpt2 = gpt2_pre_tokenizer();
    const PreTokenizer byte_level = byte_level_pre_tokenizer(false, true);
    const PreTokenizer digits = digits_pre_tokenizer(true);
    const PreTokenizer metaspace = metaspace_pre_tokenizer("▁", PrependScheme::first, true);
    const std::string llama2 =
        replace_normalizer(" ", "▁").normalize(prepend_normalizer("▁").normalize(text));
    const auto digits_first = split_words(gpt2, split_words(digits, {text}, true), true);
    show_table({"pre-tokenizer", "words of \"" + text + "\""},
               {{"Split, GPT-2's pattern", visible(gpt2.split(text, true))},
                {"ByteLevel (GPT-2)", visible(byte_level.split(text, true))},
                {"Digits, then Split", visible(digits_first)},
                {"Metaspace with split", visible(metaspace.split(text, true))},
                {"none (Llama 2)", visible({llama2})}});
}

// Trains on nine tenths of the names; the others are held out.
void vocabulary_size(Generator generator) {
    step("A larger vocabulary makes shorter sequences");
    std::string training, held_out;
    for (const std::string& name : lines_of(read_text(asset("data/names.txt"))))
        (generator.next_uniform() < 0.1f ? held_out : training) += name + "\n";
    BPETrainer trainer = make_bpe_trainer(training, 0);
    const Tokenizer& tokenizer = trainer.tokenizer;
    Line known{"training text", {}, {}}, unknown{"held-out text", {}, {}};
    std::vector<TableRow> rows;
    for (std::size_t size = 32; size <= 1024; size *= 2) {
        while (tokenizer.vocab_size() < size) merge_most_frequent_pair(trainer);
        TableRow row = {to_text(size), tokenizer.token_text(static_cast<Id>(size - 1))};
        for (Line* line : {&known, &unknown}) {
            const std::string& text = line == &known ? training : held_out;
            line->x.push_back(double(size));
            line->y.push_back(double(text.size()) / double(tokenizer.encode(text).size()));
            row.push_back(fixed(line->y.back(), 2));
        }
        row.push_back(tokens_of(tokenizer, tokenizer.encode("christopher")));
        rows.push_back(row);
    }
    show_table({"vocabulary", "last merge", "training", "held out", "christopher"}, rows);
    say("Characters per token. The gain on held-out names is smaller, because some merges "
        "are frequent in the training names only.");
    LinePlot figure{"Characters per token", "vocabulary size", "characters per token", {known}};
    figure.lines.push_back(unknown);
    figure.log_x = true;
    plot("vocabulary", {figure});
}

void demo(const std::string& text, bool with_merges, Generator generator) {
    const BPETrainer trainer = four_words();
    show_pair_counts(trainer);
    const Tokenizer trained = show_merges(trainer);
    const Tokenizer king_james = models::load_tokenizer(asset("king_james/tokenizer.json"));
    five_words(king_james);
    unknown_characters(trained);
    pre_tokenization();
    vocabulary_size(generator);
    inspect("The tokenizer of the shipped model", king_james, text, with_merges);
    without_ranks(king_james, text);
    special_tokens(king_james);
    byte_level_training(king_james);
    ties(text_of_four_words());
    fertility(king_james);
}

int main(int argc, char** argv) {
    std::string path, training_file, folder, tokens, text = "And the LORD said unto Moses";
    std::size_t vocab_size = 1024;
    bool byte_level = false, individual_digits = false;
    Options options("10_tokenizer", "How does text become tokens, and back?");
    options.text("--encode", text, "the text to encode");
    options.path("--tokenizer", path,
                 "a folder with tokenizer.json, a tokenizer file or a GGUF file");
    options.path("--train", training_file, "train a tokenizer on this UTF-8 text");
    options.count("--vocab-size", vocab_size, 0, 1 << 16,
                  "its size; 0: characters only, no merges");
    options.flag("--byte-level", byte_level, "train byte-level BPE");
    options.text("--special-tokens", tokens,
                 "its special tokens, separated by spaces: \"<|user|> <|end|>\"");
    options.folder("--export", folder, "folder to write tokenizer.json to");
    options.needs("--vocab-size", "--train");
    options.needs("--byte-level", "--train");
    options.flag("--individual-digits", individual_digits,
                 "a token contains at most one digit, as in SmolLM");
    options.needs("--special-tokens", "--byte-level");
    options.needs("--individual-digits", "--byte-level");
    options.needs("--export", "--train");

    return options.run(argc, argv, [&] {
        require(path.empty() || training_file.empty(),
                "--tokenizer loads a tokenizer and --train trains one; give only one of them");
        const bool with_merges = options.given("--encode");
        if (!training_file.empty()) {
            const std::string training_text = read_text(training_file);
            const BPEOptions bpe{.vocab_size = vocab_size,
                                 .special_tokens = split_at_spaces(tokens),
                                 .individual_digits = individual_digits};
            const Tokenizer tokenizer = byte_level ? train_byte_level_bpe(training_text, bpe)
                                                   : train_bpe(training_text, vocab_size);
            if (!folder.empty()) models::save_tokenizer(tokenizer, folder + "/tokenizer.json");
            inspect("The trained tokenizer", tokenizer, text, with_merges);
        } else if (!path.empty()) {
            if (is_folder(path)) path += "/tokenizer.json";
            inspect("The tokenizer of " + path, models::load_tokenizer(path), text,
                    with_merges);
        } else {
            demo(text, with_merges, Generator(options.seed()));
        }
    });
}
