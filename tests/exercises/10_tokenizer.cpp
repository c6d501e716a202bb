#include "chapters/10_tokenizer/exercise.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

using Ids = std::vector<Id>;
using Words = std::vector<std::string>;

Tokenizer fixture_tokenizer(const std::string& kind) {
    return models::load_tokenizer(fixture_path("10_tokenizer/" + kind + "/tokenizer.json"));
}

// Ids, pairs of ids and words as text, so that messages can show them.
std::string list(const Ids& ids) {
    std::string text;
    for (const Id id : ids) text += (text.empty() ? "" : " ") + to_text(id);
    return text;
}
std::string list(const std::vector<TokenPair>& pairs) {
    std::string text;
    for (const auto& [left, right] : pairs) text += "(" + list(Ids{left, right}) + ")";
    return text;
}
std::string list(const Words& words) {
    std::string text;
    for (const std::string& word : words) text += "|" + word;
    return text.empty() ? text : text.substr(1);
}

std::string list(const std::vector<std::size_t>& numbers) {
    std::string text;
    for (const std::size_t number : numbers)
        text += (text.empty() ? "" : " ") + to_text(number);
    return text;
}
std::string list(const std::map<std::string, std::size_t>& counts) {
    std::string text;
    for (const auto& [word, count] : counts) text += "|" + word + ":" + to_text(count);
    return text.empty() ? text : text.substr(1);
}
std::string list(const std::vector<CountedWord>& words) {
    std::string text;
    for (const auto& [ids, count] : words)
        text += (text.empty() ? "" : ", ") + list(ids) + " x" + to_text(count);
    return text;
}

// The counts above 0 of pairs, sorted.
template <class Counts>
std::string list_pairs(const Counts& counts) {
    std::string text;
    for (const auto& [pair, count] :
         std::map<TokenPair, std::size_t>(counts.begin(), counts.end()))
        if (count > 0) text += list(std::vector<TokenPair>{pair}) + ":" + to_text(count) + " ";
    return text;
}

// The pairs of a tokenizer's merges, by rank.
std::vector<TokenPair> merges_of(const Tokenizer& tokenizer) {
    std::vector<TokenPair> pairs(tokenizer.merges.size());
    for (const auto& [pair, merge] : tokenizer.merges)
        pairs[static_cast<std::size_t>(merge.rank)] = pair;
    return pairs;
}

}  // namespace

TEST_CASE("10.1 predict the first three merges") {
    const Words prediction = predicted_merges();
    const Tokenizer tokenizer = train_bpe("sing sing sings ring rings king", 0);
    const Tokenizer trained =
        train_bpe("sing sing sings ring rings king", tokenizer.vocab_size() + 3);
    INFO("the tokens of the first three merges");
    CHECK(list(prediction) ==
          list(Words(trained.token_bytes.end() - 3, trained.token_bytes.end())));
}

TEST_CASE("10.2 predict the number of tokens") {
    const std::vector<std::size_t> prediction = predicted_token_counts();
    // t 0, e 1, s 2, i 3, x 4, y 5, n 6; te 7, si 8, six 9, xt 10
    const Merges merges{
        {{0, 1}, {0, 7}}, {{2, 3}, {1, 8}}, {{8, 4}, {2, 9}}, {{4, 0}, {3, 10}}};
    std::vector<std::size_t> counts;
    for (const Ids& word : {Ids{2, 3, 4}, Ids{2, 3, 4, 0, 5}, Ids{2, 3, 4, 0, 1, 1, 6}})
        counts.push_back(apply_merges(word, merges).size());
    INFO("the number of tokens of six, sixty and sixteen");
    CHECK(list(prediction) == list(counts));
}

TEST_CASE("10.3 predict when training stops") {
    const std::size_t prediction = predicted_vocabulary_size();
    INFO("the vocabulary size after all merges");
    CHECK(prediction == train_bpe("banana banana", 1000).vocab_size());
}

TEST_CASE("10.4 predict the words of GPT-2's pattern") {
    const std::vector<std::size_t> prediction = predicted_word_counts();
    std::vector<std::size_t> counts;
    for (const std::string text : {"we're here", "a  b", "3.14!!"})
        counts.push_back(gpt2_pre_tokenizer().split(text, true).size());
    INFO("the number of words of each text");
    CHECK(list(prediction) == list(counts));
}

TEST_CASE("10.5 predict the number of tokens of unknown characters") {
    const std::vector<std::size_t> prediction = predicted_byte_counts();
    const std::string text = "Zoë €5";
    Tokenizer fallback = byte_tokenizer();
    for (const std::string character : {"Z", "o", "ë", "▁", "5"})
        fallback.vocab[character] = static_cast<Id>(fallback.vocab.size()) + 3;
    INFO("the number of tokens with byte-level BPE and with byte fallback");
    CHECK(list(prediction) ==
          list(std::vector<std::size_t>{
              text.size(), fallback.encode_word(replaced(text, " ", "▁")).size()}));
}

TEST_CASE("10.6 find the bug: only the last turn of a conversation is used") {
    const Tokenizer tokenizer = fixture_tokenizer("llama3");
    const std::string hello = "Hello world", again = "<|eot_id|>the cat";
    INFO("llama3's prefix token is 406; it begins the conversation and nothing else");
    CHECK(list(encode_conversation(tokenizer, {hello})) == list(tokenizer.encode(hello)));
    CHECK(list(encode_conversation(tokenizer, {hello, again})) ==
          list(tokenizer.encode(hello + again)));
    CHECK(list(encode_conversation(tokenizer, {})) == "406");
}

TEST_CASE("10.7 find the bug: counts that are updated") {
    // l 1, o 2, w 3, e 4, r 5
    for (const auto& [ids, what] : std::vector<std::pair<Ids, std::string>>{
             {{1, 2}, "l o"},
             {{3, 1, 2}, "w l o"},
             {{1, 2, 3}, "l o w"},
             {{4, 1, 2, 3, 5, 1, 2, 3, 4}, "e l o w r l o w e"},
             {{1, 2, 1, 2, 3}, "l o l o w"}}) {
        const std::string& symbols = what;  // a lambda cannot capture a structured binding
        INFO(symbols,
             ", 5 times; the pair l (1) + o (2) becomes token 6; the counts above 0 are");
        std::vector<WordCount> words{{ids, 5}};
        PairCounts counts = count_pairs(words);
        merge_and_update(words[0], {1, 2}, 6, counts);
        CHECK(list_pairs(counts) == list_pairs(count_pairs(words)));
    }
}

TEST_CASE("10.8 write encode_ordinary") {
    const Tokenizer tokenizer = fixture_tokenizer("qwen");
    const std::string text = "Hello<|im_end|>\n<|im_start|>system\nthe cat <think>";
    const Ids ids = encode_ordinary(tokenizer, text);
    for (const AddedToken& token : tokenizer.added_tokens) {
        INFO("id ", token.id, ", the added token ", token.content, ", does not occur");
        CHECK(std::count(ids.begin(), ids.end(), token.id) == 0);
    }
    {
        INFO("every character of the text is there");
        CHECK(tokenizer.decode(ids) == text);
    }
    {
        INFO("a text without added tokens has the same ids as with encode");
        CHECK(list(encode_ordinary(tokenizer, "It's 12 cats!\n")) ==
              list(tokenizer.encode("It's 12 cats!\n")));
    }

    const Tokenizer llama = fixture_tokenizer("llama2");
    INFO("<s> in front of the text stays, because the user did not type it");
    CHECK(encode_ordinary(llama, "a<s>b").front() == 1);
    CHECK(llama.decode(encode_ordinary(llama, "a<s>b")) == "a<s>b");
}

TEST_CASE("10.9 write decode_stream") {
    const Tokenizer bytes = byte_tokenizer();
    {
        INFO("a, then the two bytes of ü, then the three of 中");
        CHECK(list(decode_stream(bytes, Ids{3 + 'a', 3 + 0xc3, 3 + 0xbc, 3 + 0xe4, 3 + 0xb8,
                                            3 + 0xad})) == "a||ü|||中");
    }
    {
        INFO("a token may end one character and begin the next");
        Tokenizer odd = bytes;
        odd.token_bytes[10] = "\xbc\xe4";
        CHECK(list(decode_stream(odd, {3 + 0xc3, 10, 3 + 0xb8, 3 + 0xad})) == "|ü||中");
    }
    CHECK(decode_stream(bytes, {}).empty());
    INFO("together they are the decoded text, and each part is UTF-8");
    for (const std::string kind : {"gpt2", "llama2"}) {
        const Tokenizer tokenizer = fixture_tokenizer(kind);
        const std::string text = "naïve the cat 中文 \U0001F600!";
        std::string together;
        for (const std::string& part : decode_stream(tokenizer, tokenizer.encode(text))) {
            CHECK_NOTHROW(characters(part));
            together += part;
        }
        CHECK(together == text);
    }
}

TEST_CASE("10.10 write wordpiece") {
    const std::set<std::string> vocabulary = {"un",   "##aff", "##able", "unaf", "##f",
                                              "play", "##ing", "##s",    "中",   "##文"};
    {
        INFO("the longest token first: unaf, not un");
        CHECK(list(wordpiece("unaffable", vocabulary)) == "unaf|##f|##able");
        CHECK(list(wordpiece("playing", vocabulary)) == "play|##ing");
        CHECK(list(wordpiece("play", vocabulary)) == "play");
        CHECK(list(wordpiece("中文", vocabulary)) == "中|##文");
    }
    {
        INFO("a word of which some part has no token is [UNK]");
        CHECK(list(wordpiece("player", vocabulary)) == "[UNK]");
    }
    INFO("##s does not begin a word");
    CHECK(list(wordpiece("s", vocabulary)) == "[UNK]");
    CHECK(wordpiece("", vocabulary).empty());
}

TEST_CASE("10.11 write count_words") {
    INFO("a space is part of the word after it");
    CHECK(list(count_words("to be or not to be")) == " be:2| not:1| or:1| to:1|to:1");
    CHECK(list(count_words("low")) == "low:1");
    CHECK(list(count_words(" low low low")) == " low:3");
    CHECK(count_words("").empty());
}

TEST_CASE("10.12 write start_training") {
    const Training training = start_training({{" ab", 7}, {"bca", 2}, {"é", 1}});
    {
        INFO("<unk>, then the space, a, b, c and é");
        CHECK(list(training.tokens) == "<unk>| |a|b|c|é");
    }
    {
        INFO("the words in the order of the map, as ids of characters");
        CHECK(list(training.words) == "1 2 3 x7, 3 4 2 x2, 5 x1");
    }
    CHECK(training.merges.empty());
}

TEST_CASE("10.13 write pair_counts") {
    {
        INFO("the word 1 2 occurs 900 times, 3 1 2 once, 3 3 3 twice, 4 five times");
        CHECK(list_pairs(
                  pair_counts({{{1, 2}, 900}, {{3, 1, 2}, 1}, {{3, 3, 3}, 2}, {{4}, 5}})) ==
              "(1 2):901 (3 1):1 (3 3):4 ");
    }
    CHECK(pair_counts({}).empty());
}

TEST_CASE("10.14 write merge_pair") {
    const auto after = [](std::vector<CountedWord> words, const TokenPair& pair) {
        merge_pair(words, pair, 9);
        return list(words);
    };
    INFO("the pair becomes 9 in all words");
    CHECK(after({{{1, 2, 3, 1, 2}, 4}, {{2, 1}, 3}, {{1, 2}, 1}}, {1, 2}) ==
          "9 3 9 x4, 2 1 x3, 9 x1");
    CHECK(after({{{5, 5, 5}, 1}, {{5, 5, 5, 5}, 2}, {{5}, 3}}, {5, 5}) ==
          "9 5 x1, 9 9 x2, 5 x3");
}

TEST_CASE("10.15 write train") {
    {
        INFO("ties are broken in favor of the lowest ids, and training stops in time");
        const Training training = train("low low low newest newest", 1000);
        const Tokenizer expected = train_bpe("low low low newest newest", 1000);
        CHECK(list(training.tokens) == list(expected.token_bytes));
        CHECK(list(training.merges) == list(merges_of(expected)));
    }
    CHECK(train("abcd", 100).merges.empty());

    std::string names;
    for (const std::string& name : lines_of(read_text(asset("data/names.txt"))))
        if (names.size() < 20'000) names += (names.empty() ? "" : " ") + name;
    INFO("the names of assets/data/names.txt, a vocabulary of 200");
    const Training training = train(names, 200);
    const Tokenizer expected = train_bpe(names, 200);
    CHECK(list(training.tokens) == list(expected.token_bytes));
    CHECK(list(training.merges) == list(merges_of(expected)));
}
