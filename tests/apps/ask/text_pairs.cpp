// Pairs of texts from pages and from WordNet's files.
#include <algorithm>

#include "chapters/apps/ask/text_pairs.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using namespace llm::ask;

namespace {

const std::vector<Passage> passages = {
    {"a.md", "t", "Title › Part",
     "A cache keeps the keys of all tokens. It grows with each token: 3 bytes. Why?\n"
     "The car is an auto with a motor of its own."},
    {"a.md", "u", "Title › Short", "One sentence of this passage."}};

bool has_pair(const TextPairs& pairs, const std::string& query, const std::string& passage) {
    return std::any_of(pairs.begin(), pairs.end(), [&](const TextPair& pair) {
        return pair.query == query && pair.passage == passage;
    });
}

// Meanings in the format of wndb(5WN): a car is a vehicle, and no passage has a zebra.
void write_wordnet(const std::string& folder) {
    overwrite(folder + "/data.noun",
              "  1 This software and database is being provided to you\n"
              "00000100 06 n 01 vehicle 0 000 | a conveyance that transports people\n"
              "00000200 06 n 02 car 0 auto 1 002 @ 00000100 n 0000 ! 00000300 n 0000 | a motor "
              "vehicle; \"he needs a car\"; \"an auto is no bus\"\n"
              "00000300 06 n 01 zebra 0 000 | a striped animal\n");
    overwrite(folder + "/data.verb",
              "00000400 30 v 0a keep 0 cache 0 b 0 c 0 d 0 e 0 f 0 g 0 "
              "h 0 hold_on(p) 0 000 01 + 08 00 | have for a time\n");
    overwrite(folder + "/data.adj",
              "00000500 00 s 01 short 0 001 & 00000600 a 0000 | of little length\n"
              "00000600 00 a 01 own 0 000 | belonging to oneself\n");
    overwrite(folder + "/data.adv", "  1 This software\n");
}

std::string error_of(const std::string& folder) {
    try {
        wordnet_pairs(folder, passages);
    } catch (const FileError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("A sentence ends before a capital or a digit, and at the end of a line") {
    CHECK(sentences_of(passages[0].text) ==
          std::vector<std::string>{
              "A cache keeps the keys of all tokens.",
              "It grows with each token:", "The car is an auto with a motor of its own."});
    CHECK(sentences_of("See e.g. the model, or v. 2 of it").size() == 2);
}

TEST_CASE("Each sentence of a passage is a query for the rest, without itself") {
    const std::vector<TextPairs> kinds = book_pairs(passages);
    REQUIRE(kinds.size() == 2);
    CHECK(kinds[0].size() == 2);
    CHECK(has_pair(kinds[0], "Title › Short", "One sentence of this passage."));
    CHECK(kinds[1].size() == 3);
    CHECK(has_pair(kinds[1], "It grows with each token:",
                   "Title › Part A cache keeps the keys of all tokens. "
                   "The car is an auto with a motor of its own."));
}

TEST_CASE("A sentence has at least three words, and the rest of its passage at least eight") {
    const auto num_pairs = [](const std::string& text) {
        return book_pairs({{"a.md", "t", "Title", text}})[1].size();
    };
    CHECK(num_pairs("Alpha beta gamma. One two three four five six seven eight.") == 1);
    CHECK(num_pairs("Alpha beta gamma. One two three four five six seven.") == 0);
    CHECK(num_pairs("Alpha beta. One two three four five six seven eight.") == 0);
}

TEST_CASE("WordNet: words with definitions and examples, synonyms and hypernyms") {
    const Scratch scratch;
    write_wordnet(scratch.folder.string());
    const std::vector<Passage> with_vehicle = {passages[0],
                                               {"a.md", "v", "Title", "A vehicle is short."}};
    const auto kinds = wordnet_pairs(scratch.folder.string(), with_vehicle);
    REQUIRE(kinds.size() == 3);
    CHECK(kinds[0].size() == 15);  // zebra is not in the passages, and has no other word
    CHECK(has_pair(kinds[0], "auto", "a motor vehicle"));
    CHECK(has_pair(kinds[0], "hold on", "have for a time"));  // beside cache, which is there
    CHECK(kinds[1].size() == 2);
    CHECK(has_pair(kinds[1], "an auto is no bus", "a motor vehicle"));
    CHECK(has_pair(kinds[2], "car", "auto"));
    CHECK(has_pair(kinds[2], "auto", "car"));
    CHECK(has_pair(kinds[2], "car", "vehicle"));
    CHECK(has_pair(kinds[2], "short", "own"));
    CHECK_FALSE(has_pair(kinds[2], "car", "zebra"));
    CHECK(kinds[2].size() == 95);  // 90 of the ten words from keep to hold on
}

TEST_CASE("WordNet: the number of words is hexadecimal, that of pointers decimal") {
    const Scratch scratch;
    write_wordnet(scratch.folder.string());
    std::string line = "00000700 02 r 10 cache 0 ";
    for (char letter = 'a'; letter < 'p'; ++letter) line += std::string(1, letter) + " 0 ";
    line += "010 ";
    for (int n = 0; n < 10; ++n) line += "@ 00000200 n 0000 ";
    overwrite(scratch.folder / "data.adv", line + "| sixteen words\n");
    const auto kinds = wordnet_pairs(scratch.folder.string(), passages);
    CHECK(std::count_if(kinds[0].begin(), kinds[0].end(), [](const TextPair& pair) {
              return pair.passage == "sixteen words";
          }) == 16);
    CHECK(has_pair(kinds[2], "cache", "car"));
}

TEST_CASE(
    "WordNet: a meaning has a part of speech and an offset, type s is that of adjectives") {
    const Scratch scratch;
    write_wordnet(scratch.folder.string());
    // The offset of the vehicle, and a pointer to an adjective of type s.
    overwrite(scratch.folder / "data.adv",
              "00000100 02 r 01 keep 0 001 + 00000500 a 0000 | for a little time\n");
    std::vector<Passage> with_vehicle = passages;
    with_vehicle.push_back({"a.md", "v", "Title", "A vehicle is short."});
    const auto kinds = wordnet_pairs(scratch.folder.string(), with_vehicle);
    CHECK(has_pair(kinds[0], "keep", "for a little time"));
    CHECK(has_pair(kinds[0], "vehicle", "a conveyance that transports people"));
    CHECK(has_pair(kinds[2], "keep", "short"));
}

TEST_CASE("WordNet: a damaged line is named") {
    const Scratch scratch;
    const std::string folder = scratch.folder.string();
    CHECK(mentions(error_of(folder), folder + "/data.noun"));
    write_wordnet(folder);
    overwrite(folder + "/data.adv", "00000100 02 r 03 often 0 000 | many times\n");
    CHECK(error_of(folder) == folder + "/data.adv, line 1: is no line of WordNet's data files");
    overwrite(folder + "/data.adv", "\n00000100 02 r 01 often 0 000\n");
    CHECK(error_of(folder) == folder + "/data.adv, line 2: is no line of WordNet's data files");
}
