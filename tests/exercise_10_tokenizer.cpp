#include "chapters/10_tokenizer/exercise.hpp"
#include "chapters/10_tokenizer/load_tokenizer.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

using Ids = std::vector<Id>;
using Words = std::vector<std::string>;

Tokenizer fixture_tokenizer(const std::string& kind) {
    return load_tokenizer(fixture_path("10_tokenizer/" + kind + "/tokenizer.json"));
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

}  // namespace

TEST_CASE("10.1 find the bug: other tokens than in training") {
    // h 0, e 1, r 2, s 3; er 4 is merge 0, he 5 merge 1, her 6 merge 2, rs 7 merge 3
    const Merges merges{{{1, 2}, {0, 4}}, {{0, 1}, {1, 5}}, {{0, 4}, {2, 6}}, {{2, 3}, {3, 7}}};
    INFO("h e r s: merge 0 is e + r, then merge 2 is h + er");
    CHECK(list(merge_word({0, 1, 2, 3}, merges)) == "6 3");
    INFO("every word has the tokens of apply_merges");
    for (const Ids& word : {Ids{0, 1}, Ids{0, 1, 3}, Ids{2, 3}, Ids{1, 2, 3, 0, 1, 2}, Ids{}})
        CHECK(list(merge_word(word, merges)) == list(apply_merges(word, merges)));
}

TEST_CASE("10.2 find the bug: a vocabulary for rare words") {
    const auto frequencies = pair_frequencies({{"the", 900}, {"zeno", 1}, {"zenobia", 1}});
    INFO("a text with 900 times the, once zeno and once zenobia");
    CHECK(frequencies.at("th") == 900);
    CHECK(frequencies.at("he") == 900);
    CHECK(frequencies.at("ze") == 2);
    CHECK(frequencies.at("bi") == 1);
    CHECK(frequencies.size() == 8);
}

TEST_CASE("10.3 find the bug: a conversation that begins again and again") {
    const Tokenizer tokenizer = fixture_tokenizer("llama3");
    const std::string hello = "Hello world", again = "<|eot_id|>the cat";
    INFO("llama3's prefix token is 406; it begins the conversation and nothing else");
    CHECK(list(encode_conversation(tokenizer, {hello})) == list(tokenizer.encode(hello)));
    CHECK(list(encode_conversation(tokenizer, {hello, again})) ==
          list(tokenizer.encode(hello + again)));
    CHECK(list(encode_conversation(tokenizer, {})) == "406");
}

TEST_CASE("10.4 write encode_ordinary") {
    const Tokenizer tokenizer = fixture_tokenizer("qwen");
    const std::string text = "Hello<|im_end|>\n<|im_start|>system\nthe cat <think>";
    const Ids ids = encode_ordinary(tokenizer, text);
    INFO("no id is that of an added token");
    for (const AddedToken& token : tokenizer.added_tokens)
        CHECK(std::find(ids.begin(), ids.end(), token.id) == ids.end());
    INFO("every character of the text is there");
    CHECK(tokenizer.decode(ids) == text);
    INFO("a text without added tokens has the same ids as with encode");
    CHECK(list(encode_ordinary(tokenizer, "It's 12 cats!\n")) ==
          list(tokenizer.encode("It's 12 cats!\n")));

    const Tokenizer llama = fixture_tokenizer("llama2");
    INFO("<s> in front of the text stays, because the user did not type it");
    CHECK(encode_ordinary(llama, "a<s>b").front() == 1);
    CHECK(llama.decode(encode_ordinary(llama, "a<s>b")) == "a<s>b");
}

TEST_CASE("10.5 write decode_stream") {
    const Tokenizer bytes = byte_tokenizer();
    INFO("a, then the two bytes of ü, then the three of 中");
    CHECK(list(decode_stream(bytes, Ids{3 + 'a', 3 + 0xc3, 3 + 0xbc, 3 + 0xe4, 3 + 0xb8,
                                        3 + 0xad})) == "a||ü|||中");
    INFO("a token may end one character and begin the next");
    Tokenizer odd = bytes;
    odd.token_bytes[10] = "\xbc\xe4";
    CHECK(list(decode_stream(odd, {3 + 0xc3, 10, 3 + 0xb8, 3 + 0xad})) == "|ü||中");
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

TEST_CASE("10.6 write wordpiece") {
    const std::set<std::string> vocabulary = {"un",   "##aff", "##able", "unaf", "##f",
                                              "play", "##ing", "##s",    "中",   "##文"};
    INFO("the longest token first: unaf, not un");
    CHECK(list(wordpiece("unaffable", vocabulary)) == "unaf|##f|##able");
    CHECK(list(wordpiece("playing", vocabulary)) == "play|##ing");
    CHECK(list(wordpiece("play", vocabulary)) == "play");
    CHECK(list(wordpiece("中文", vocabulary)) == "中|##文");
    INFO("a word of which some part has no token is [UNK]");
    CHECK(list(wordpiece("player", vocabulary)) == "[UNK]");
    INFO("##s does not begin a word");
    CHECK(list(wordpiece("s", vocabulary)) == "[UNK]");
    CHECK(wordpiece("", vocabulary).empty());
}

TEST_CASE("10.7 write train_byte_bpe") {
    INFO("aaabdaaabac, the example of Wikipedia: aa, then a pair with aa, then that and b");
    const auto merges = train_byte_bpe("aaabdaaabac", 3);
    CHECK(list(merges) == "(97 97)(97 98)(256 257)");
    CHECK(list(encode_bytes("aaabdaaabac", merges)) == "258 100 258 97 99");
    INFO("without words, a merge may cross a space");
    CHECK(list(train_byte_bpe("a b a b a b", 1)) == "(32 98)");
    INFO("no pair occurs twice: training stops");
    CHECK(train_byte_bpe("abcd", 5).empty());
    CHECK(train_byte_bpe("", 5).empty());
    INFO("merges are applied in their order, from left to right");
    CHECK(list(encode_bytes("aaaa", {{'a', 'a'}, {256, 256}})) == "257");
    CHECK(list(encode_bytes("aaa", {{'a', 'a'}})) == "256 97");
    CHECK(list(encode_bytes("ü", {})) == "195 188");
}
