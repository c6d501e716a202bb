// The book: which parts of the pages it has, and that its searches are those of chapter 25.
#include "chapters/apps/ask/evaluation.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using namespace llm::ask;

namespace {

const std::vector<Passage> three_passages = {
    {"a.md", "keys", "Attention › Keys", "A query is compared with keys. Keys have D numbers."},
    {"b.md", "cache", "A cache", "It holds the keys and the values of all tokens so far."},
    {"c.md", "norm", "Norms", "RMSNorm divides by the root of a mean."}};

std::vector<std::string> texts_with_headings() {
    std::vector<std::string> texts;
    for (const Passage& passage : three_passages)
        texts.push_back(passage.headings + " " + passage.text);
    return texts;
}

void check_found(const BookIndex::Found& actual, const BookIndex::Found& expected) {
    CHECK(ranking_of(actual) == ranking_of(expected));
    for (std::size_t n = 0; n < std::min(actual.size(), expected.size()); ++n)
        CHECK(actual[n].score == doctest::Approx(expected[n].score).epsilon(1e-6));
}

}  // namespace

TEST_CASE("The book searches words with BM25 of k1 0.9 and b 0.4, and vectors by cosine") {
    const EmbeddingModel model = load_embedding_model(asset("ask_encoder"));
    const BookIndex book(three_passages, model);
    std::vector<std::vector<std::string>> words;
    for (const std::string& text : texts_with_headings()) words.push_back(search_words(text));
    const Bm25Index index(words, {.k1 = 0.9, .b = 0.4});
    const Matrix vectors = model.embed(texts_with_headings());
    for (const std::string question : {"What has the cache of keys?", "attention", "root"}) {
        CAPTURE(question);
        check_found(book.by_words(question, 3), index.search(search_words(question), 3));
        const Vector vector = xt::view(model.embed({question}), 0, xt::all());
        check_found(book.by_vectors(question, 2), semantic_search(vector, vectors, 2));
    }
    CHECK(book.by_words("keys", 2).size() == 2);
    CHECK(book.by_words("keys", 1).size() == 1);
    CHECK(book.by_words("attention", 3).size() == 1);  // a word of a heading
}

TEST_CASE("The book has all pages but those about the project, and no exercises") {
    const Scratch scratch;
    const auto write = [&](const std::string& name, const std::string& text) {
        overwrite(scratch.folder / name, text);
    };
    for (const std::string name : {"changelog.md", "contributing.md", "index.md", "notes.txt"})
        write(name, "# Not a page\n\nOf the project.\n");
    write("02_page.md",
          "# Second\n\nText.\n\n## Exercises\n\nHow to begin.\n\n"
          "### Exercise 2.1 — find it\n\nA task.\n\n## After it\n\nMore.\n");
    write("01_page.md", "# First\n\nText of the first page.\n");
    std::string found;
    for (const Passage& passage : read_passages(scratch.folder.string()))
        found += passage.page + "#" + passage.anchor + ": " + passage.text + "\n";
    CHECK(found ==
          "01_page.md#first: Text of the first page.\n02_page.md#second: Text.\n"
          "02_page.md#after-it: More.\n");
}

TEST_CASE("A heading has a space after its signs") {
    const std::vector<Passage> passages =
        passages_of("p.md", "# Title\n\n#1 is a number\n\n###\n\n## Part\n\nText.\n");
    REQUIRE(passages.size() == 2);
    CHECK(passages[0].text == "#1 is a number\n###");
    CHECK(passages[1].headings == "Title › Part");
}

TEST_CASE("Each search that is measured finds at most 100 passages") {
    std::vector<Passage> passages;
    for (int n = 0; n < 120; ++n)
        passages.push_back({"a.md", std::to_string(n), "Keys", "key " + std::to_string(n)});
    const BookIndex book(passages, load_embedding_model(asset("ask_encoder")));
    const std::vector<SearchMethod> methods = search_methods(book);
    REQUIRE(methods.size() == 3);
    for (const auto& [name, search] : methods) CHECK(search("keys").size() == 100);
    CHECK(methods[0].search("key 7") == ranking_of(book.by_words("key 7", 100)));
    CHECK(methods[1].search("key 7") == ranking_of(book.by_vectors("key 7", 100)));
    CHECK(methods[2].search("key 7") == ranking_of(book.joined("key 7", 100)));
}

TEST_CASE("A question's rank is that of the first section that answers it") {
    const std::vector<Passage> passages = {{"a.md", "x", "X", "one"},
                                           {"a.md", "x", "X", "two"},
                                           {"a.md", "y", "Y", "three"},
                                           {"b.md", "x", "X", "four"}};
    // Both passages of the first section are one rank.
    CHECK(one_of_each_section(passages, {1, 0, 3, 2}) == Ranking{1, 3, 2});
    const std::vector<TestQuestion> questions = {{"first", {"a.md#x"}, ""},
                                                 {"second", {"b.md#x"}, ""},
                                                 {"either", {"a.md#y", "b.md#x"}, ""},
                                                 {"none", {"a.md#y"}, ""}};
    const AnswerRanks ranks =
        answer_ranks(questions, passages, [](const std::string& question) {
            return question == "none" ? Ranking{0, 1} : Ranking{1, 0, 3, 2};
        });
    CHECK(ranks == AnswerRanks{1, 2, 2, std::nullopt});
    CHECK(answered_at(1, ranks) == std::vector<double>{1, 0, 0, 0});
    CHECK(answered_at(2, ranks) == std::vector<double>{1, 1, 1, 0});
}
