// Details in which the tokenizers must equal Hugging Face's library. Expected words and texts
// come from the npm package tokenizers 0.23.2.
#include <ctime>
#include <random>

#include "chapters/10_tokenizer/encoding_steps.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/regex.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/files.hpp"
#include "tests/support/fixture_tokenizer.hpp"

using namespace llm;
using Ids = std::vector<Id>;

namespace {

// The words of a text, separated by a middle dot.
std::string words(const std::string& pattern, const std::string& text) {
    std::string line;
    for (const std::string& word : regex_pre_tokenizer("Split", pattern).split(text, true))
        line += (line.empty() ? "" : "·") + word;
    return line;
}

// A text of random characters.
std::string random_text(std::mt19937& random, std::size_t length) {
    const std::vector<std::string> alphabet = characters("aaaeeehhtttnnorsx   \n12é中");
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += alphabet[random() % alphabet.size()];
    return text;
}

std::string rejection(const std::string& pattern) try {
    Pattern compiled(pattern);
    return "it was accepted";
} catch (const TextError& error) {
    return error.what();
}

const std::string contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const std::string others = R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace

TEST_CASE("apply_merges_with_queue returns the ids of apply_merges, for random merges") {
    std::mt19937 random(77);
    for (int round = 0; round < 300; ++round) {
        // Ids 0 to 2 are characters. Each merge makes a token of earlier ones; ranks repeat.
        Merges merges;
        Id next = 3;
        for (int i = 0; i < 12; ++i) {
            const TokenPair pair{Id(random() % std::size_t(next)),
                                 Id(random() % std::size_t(next))};
            if (merges.emplace(pair, Merge{double(random() % 6), next}).second) ++next;
        }
        Ids ids;
        for (std::size_t i = 0; i < random() % 120; ++i) ids.push_back(Id(random() % 3));
        CHECK(apply_merges_with_queue(ids, merges) == apply_merges(ids, merges));
    }
    CHECK(apply_merges_with_queue({}, {}).empty());
    CHECK(apply_merges_with_queue({9, 9, 9}, {{{9, 9}, {0, 10}}}) == Ids{10, 9});
}

TEST_CASE("apply_merges_with_queue returns the ids of apply_merges, for words of random text") {
    std::mt19937 random(5);
    for (const std::string kind : {"llama2", "gpt2", "metaspace"}) {
        const Tokenizer tokenizer = fixture_tokenizer(kind);
        for (std::size_t length = 0; length < 150; ++length) {
            Ids ids;
            for (const std::string& c : characters(random_text(random, length)))
                for (const Id id : tokenizer.encode_character(c)) ids.push_back(id);
            CHECK(apply_merges_with_queue(ids, tokenizer.merges) ==
                  apply_merges(ids, tokenizer.merges));
        }
    }
}

TEST_CASE("a text of 100 KB without a pre-tokenizer is encoded within a second") {
    const Tokenizer tokenizer = fixture_tokenizer("llama2");
    std::mt19937 random(1);
    const std::string text = random_text(random, 90'000);
    CHECK(text.size() > 100'000);
    const std::clock_t begin = std::clock();  // processor time
    const Ids ids = tokenizer.encode(text);
    CHECK(double(std::clock() - begin) / CLOCKS_PER_SEC < 1);
    CHECK(tokenizer.decode(ids) == text);
}

TEST_CASE("byte fallback: a run that is not UTF-8 becomes one U+FFFD for each byte token") {
    const Tokenizer tokenizer = fixture_tokenizer("llama2");
    const auto id = [&](const std::string& token) { return tokenizer.vocab.at(token); };
    const Id c3 = id("<0xC3>"), a9 = id("<0xA9>"), ff = id("<0xFF>"), a = id("a");
    CHECK(tokenizer.decode({c3, a9}) == "é");
    CHECK(tokenizer.decode({a, c3, a9, a}) == "aéa");
    CHECK(tokenizer.decode({c3}) == "\ufffd");
    CHECK(tokenizer.decode({c3, a9, ff}) == "\ufffd\ufffd\ufffd");  // é is not kept
    CHECK(tokenizer.decode({c3, id("<0x0A>")}) == "\ufffd\ufffd");  // nor the line feed
    CHECK(tokenizer.decode({c3, a, a9}) == "\ufffda\ufffd");
    CHECK(tokenizer.decode({ff, a, c3, a9}) == "\ufffdaé");
    CHECK(tokenizer.decode({c3, 1, a9}) == "é");  // a special token does not end a run
    CHECK(tokenizer.decode({c3, 5000, a9}) == "é");
    CHECK(tokenizer.decode_bytes({c3, a9, ff}) == "é\xff");
    CHECK(tokenizer.decode({id("▁"), c3}) == "\ufffd");
    CHECK(tokenizer.decode_bytes({id("▁"), c3}) == "\xc3");
}

TEST_CASE("byte level: bytes that are not UTF-8 become U+FFFD, complete characters stay") {
    const Tokenizer tokenizer = fixture_tokenizer("gpt2");
    const auto decoded = [&](const std::string& bytes) {
        Ids ids;
        for (const char byte : bytes)
            ids.push_back(
                tokenizer.vocab.at(byte_to_unicode(static_cast<unsigned char>(byte))));
        CHECK(tokenizer.decode_bytes(ids) == bytes);
        return tokenizer.decode(ids);
    };
    CHECK(decoded("\xc3\xa9\xff") == "é\ufffd");
    CHECK(decoded("\xe4\xb8") == "\ufffd");
    CHECK(decoded("\xe4\xb8x\xb8") == "\ufffdx\ufffd");
    CHECK(decoded("\xf0\x9f\x98\xe4\xb8\xad") == "\ufffd中");
}

TEST_CASE("the patterns of published tokenizers split as Hugging Face's library does") {
    const std::string text =
        "We'LL see 12345\u180e½ nai\u0308ve 中文，の!!\n\n  x = ['a']; \u2003ß";
    const std::string end = "· · x· =· ['·a·'];· ·\u2003ß";
    CHECK(words(contractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" + others, text) ==
          "We·'LL· see· ·123·45·\u180e·½· nai·\u0308ve· 中文·，の·!!\n\n" + end);
    CHECK(
        words(R"((?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++)"
              R"([\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
              text) ==  // cl100k
        "We·'LL· see· ·123·45·\u180e·½· nai·\u0308ve· 中文·，の·!!\n\n" + end);
    const std::string upper = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
    const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
    CHECK(words(upper + "*" + lower + "+" + contractions + "?|" + upper + "+" + lower + "*" +
                    contractions + R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|)" +
                    R"(\s+(?!\S)|\s+)",
                text) ==  // o200k
          "We'LL· see· ·123·45·\u180e·½· nai\u0308ve· 中文·，の·!!\n\n" + end);
    CHECK(words(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?)"
                R"([\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                text) ==  // DeepSeek-V3
          "We·'LL· see· ·12345\u180e½· nai\u0308ve· 中文·，·の·!!\n\n" + end);
    CHECK(words("[一-龥\u3040-ゟ゠-ヿ]+", "a 中文，の") == "a ·中文·，·の");
    CHECK(words(R"( ?[^(\s|[.,!?…。，、।۔،])]+)", text) ==  // BLOOM: a class in a class
          "We'LL· see· 12345\u180e½· nai\u0308ve· 中文·，·の·!!\n\n · x· =· ['a'];· \u2003·ß");
    CHECK(words(R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)" +
                    contractions + R"(?|\p{N}{1,3}|)" + others,
                text) ==  // Kimi K2: an intersection
          "W·e'LL· see· ·123·45·\u180e·½· nai\u0308ve· ·中文·，の·!!\n\n" + end);
}

TEST_CASE("each construct of a pattern splits as Hugging Face's library does") {
    const std::vector<std::array<std::string, 3>> cases = {
        {R"(\s+)", "a\u180eb c", "a\u180eb· ·c"},  // U+180E is no white space
        {R"(\S+)", "a\u180eb c", "a\u180eb· ·c"},
        {R"([\S]+)", "a\u180eb c", "a\u180eb· ·c"},
        {R"([^\s]+)", "a\u180eb\u00a0c", "a\u180eb·\u00a0·c"},
        {R"([\s_]+)", "a\u0085_\u3000b\u200b", "a·\u0085_\u3000·b\u200b"},
        {R"([a-z&&[^b]]+)", "abcb", "a·b·c·b"},
        {R"([a-z&&b-y&&[^d]]+)", "abcde", "a·bc·d·e"},
        {R"([[^a-c]&&a-f]+)", "abcde", "abc·de"},
        {R"([a-c[x-z]_]+)", "axm_n", "ax·m·_·n"},
        {R"([+\-[0]-]+)", "1-0+", "1·-0+"},
        {R"(\h+)", "xyz0aF", "xyz·0aF"},  // hexadecimal digits
        {R"([\h_]+)", "xyz0aF_", "xyz·0aF_"},
        {R"(\H+)", "ab xy", "ab· xy"},
        {"^.", "ab\ncd\n", "a·b\n·c·d\n"},  // lines, not the whole text
        {".$", "ab\ncd\n", "a·b·\nc·d·\n"},
        {R"(\A.)", "ab\nab", "a·b\nab"},
        {R"(.\Z)", "ab\ncd\n", "ab\nc·d·\n"},
        {R"(.\z)", "ab\ncd", "ab\nc·d"},
        {"(?i)ab|c", "xABC", "x·AB·C"},
        {"(?i:k)", "k\u212a", "k·\u212a"},  // the Kelvin sign
        {"(?i:a(?-i:b))", "ABAb", "AB·Ab"},
        {"a{,2}", "aaab", "aa·a·b"},
        {"a{2,}?", "aaaa", "aa·aa"},
        {"a++", "aab", "aa·b"},
        {"a{", "a{b", "a{·b"},
        {R"(\p{Han}+)", "a漢「字", "a·漢·「·字"},  // the script, without its extensions
        {R"(\p{^L}+)", "ab12", "ab·12"},
        {R"(\v)", "a\u000bb\n", "a·\u000b·b\n"},
        {R"(\u0041|\x{e9}|\x42)", "zAéB", "z·A·é·B"},
        {"x*", "aab", "a·a·b"},  // empty matches separate words, too
        {"(?<=a)", "abab", "a·ba·b"},
        {"", "ab", "a·b"},
        {"(?>a+)b|(a)", "aab", "aab"},
        {"a[[:alpha:]]", "xab!a1", "x·ab·!a1"},
        {"[^a-z&&[aeiou]]+", "abez!A", "a·b·e·z!A"},
        {"[a[b&&c]]+", "abca", "a·bc·a"},
        {"[a[b[c]]]+", "xabc-", "x·abc·-"},
        {"[a[^b]]+", "abxb", "a·b·x·b"},
        {R"(\w+)", "ab½ c_d-é", "ab½· ·c_d·-·é"},
        {R"([\W]+)", "ab½ c_d-é!", "ab·½ ·c_d·-·é·!"},  // not the complement of \w: ½
        {R"(\bcat)", "cat concat a cat", "cat· concat a ·cat"},
        {R"(a\Kb)", "abab", "a·b·a·b"},
        {R"((a)\1)", "aaab", "aa·ab"},
        {R"(\R)", "a\r\nb\nc", "a·\r\n·b·\n·c"},
        {R"(é|\Gx)", "éxax", "é·x·ax"},
        {"a(?m).b", "a\nb", "a\nb"},
        {"a(?i)b", "aBab", "aB·ab"},
        {"(?x: a )", "bab", "b·a·b"},
        {"(?<name>a)", "bab", "b·a·b"},
        {"(?i:mass)", "MASS maß", "MASS· ·maß"},
        {"(?i:é)", "éÉ", "é·É"},
        {R"((?i:\p{Lu})+)", "aAbB1", "a·A·b·B·1"},
        {"a{2}+", "aaaaab", "aaaa·ab"},
        {"a{2}?", "aaaa", "aa·aa"},
        {"a{1,3}+", "aaaaa", "aaaaa"},
        {R"(\p{Alpha}+)", "ab1", "ab·1"},
        {R"(\X)", "e\u0301x", "e\u0301·x"},
        {"a**", "baab", "b·aa·b"},
        {R"(\pL)", "ab", "ab"},
        {"(*FAIL)|b", "ab", "a·b"}};
    for (const auto& [pattern, text, expected] : cases) {
        const std::string& tried = pattern;  // a lambda cannot capture a structured binding
        INFO(tried);
        CHECK(words(tried, text) == expected);
    }
}

TEST_CASE("an invalid pattern is rejected with the reason") {
    CHECK(rejection("(a") ==
          "the pattern '(a' is invalid: end pattern with unmatched parenthesis");
    CHECK(rejection("[a--b]") == "the pattern '[a--b]' is invalid: empty range in char class");
    CHECK(rejection("(?=a)*") ==
          "the pattern '(?=a)*' is invalid: target of repeat operator is invalid");
    CHECK(rejection(R"([a-\s])") ==
          R"(the pattern '[a-\s]' is invalid: char-class value at end of range)");
    CHECK(rejection(R"(\xe9)") ==
          R"(the pattern '\xe9' is invalid: too short multibyte code string)");
    CHECK(rejection(R"(\p{Fantasy})") ==
          R"(the pattern '\p{Fantasy}' is invalid: invalid character property name {Fantasy})");
}

TEST_CASE("tokenizer.json: messages name the file, the key and, apart from it, the reason") {
    const Scratch scratch;
    const auto error_of = [&](const std::string& kind, const std::string& old_text,
                              const std::string& new_text) -> std::string {
        const std::string folder = scratch.copy_of("10_tokenizer/" + kind);
        edit(folder + "/tokenizer.json", old_text, new_text);
        std::string message = "it was accepted";
        try {
            models::load_tokenizer(folder + "/tokenizer.json");
        } catch (const FileError& error) {
            message = replaced(error.what(), folder, "FOLDER");
        }
        fs::remove_all(folder);
        return message;
    };
    CHECK(error_of("llama2", R"("unk_token": "<unk>")", R"("unk_token": "<none>")") ==
          "FOLDER/tokenizer.json: model: there is no token <none>");
    CHECK(error_of("gpt2", R"("type": "BPE")", R"("type": "WordLevel")") ==
          "FOLDER/tokenizer.json: model.type WordLevel is not supported");
    CHECK(error_of("gpt2", R"("content": "<|endoftext|>")", R"("content": "")") ==
          "FOLDER/tokenizer.json: added_tokens.0: needs a content and an id");
    CHECK(error_of("llama2", R"("start": 1)", R"("start": 2)") ==
          "FOLDER/tokenizer.json: decoder.decoders.3: this Strip is not supported");
    CHECK(mentions(error_of("qwen", R"("Regex": ")", R"("Regex": "[)"),
                   "FOLDER/tokenizer.json: pre_tokenizer.pretokenizers.0: pattern.Regex: the "
                   "pattern '[("));
}

TEST_CASE("split_after_pre_tokenizer: each occurrence of the text ends a word") {
    const auto split = [](const std::string& text) {
        return split_after_pre_tokenizer("ab").split(text, true);
    };
    using Words = std::vector<std::string>;
    CHECK(split("How ab are ababyou abb?") == Words{"How ab", " are ab", "ab", "you ab", "b?"});
    CHECK(split("ab") == Words{"ab"});
    CHECK(split("xab") == Words{"xab"});
    CHECK(split("") == Words{});
}

TEST_CASE("encoding_steps: added tokens stay whole, and BPE on the last step gives the ids") {
    for (const std::string kind :
         {"gpt2", "llama3", "qwen", "smol", "llama2", "metaspace", "gpt_oss", "gemma"}) {
        const Tokenizer tokenizer = fixture_tokenizer(kind);
        const std::string token = tokenizer.added_tokens.back().content;
        for (const std::string& text :
             {token + "user\nHi " + token + " 12 é" + token, std::string(" a  b"),
              std::string("the cat"), std::string()}) {
            const std::vector<EncodingStep> steps = encoding_steps(tokenizer, text);
            Ids ids = tokenizer.prefix_tokens;
            for (const auto& [part, id] : steps.back().segments)
                for (const Id next : id ? Ids{*id} : tokenizer.encode_word(part))
                    ids.push_back(next);
            INFO(kind, ": ", text);
            CHECK(ids == tokenizer.encode(text));
        }
    }
    const auto steps =
        encoding_steps(fixture_tokenizer("qwen"), "<|im_start|>user\nHi<|im_end|>");
    CHECK(steps.front().name == "text");
    CHECK(steps.back().name == "ByteLevel");
    std::vector<std::string> parts;
    for (const Segment& segment : steps.back().segments) parts.push_back(segment.text);
    CHECK(parts == std::vector<std::string>{"<|im_start|>", "user", "Ċ", "Hi", "<|im_end|>"});
}

TEST_CASE("encoding_steps: added tokens of the normalized text are whole after their step") {
    const Scratch scratch;
    const std::string file = scratch.copy_of("10_tokenizer/llama2") + "/tokenizer.json";
    overwrite(file, replaced(content(file), "\"normalized\": false", "\"normalized\": true"));
    const Tokenizer tokenizer = models::load_tokenizer(file);
    const std::vector<EncodingStep> steps = encoding_steps(tokenizer, "x <s>y");
    CHECK(steps.back().name == "normalized added tokens");
    REQUIRE(steps.back().segments.size() == 3);
    CHECK(steps.back().segments[0].text == "▁x");
    CHECK(steps.back().segments[1].id == 1);
    CHECK(steps.back().segments[2].text == "y");
}
