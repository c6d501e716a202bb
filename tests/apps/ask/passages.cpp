// The pages as passages, and questions about them.
#include "chapters/apps/ask/evaluation.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using namespace llm::ask;

namespace {

const std::string page = R"(# 05 · Attention

> **How?** By [weights](01_masking.md).

## The formula

One paragraph,
on two lines. <!-- number 3 given: nowhere
--> It has a `word`.

```cpp
int not_prose = 1;
```

![A figure](x.svg)

- first
- second item

## The formula

| a | b |
|---|---|
| **c** | d |

### Why √D? (an aside)

Deeper.
)";

}  // namespace

TEST_CASE("Passages have the headings above them and no code, figures or comments") {
    const std::vector<Passage> passages = passages_of("05.md", page);
    REQUIRE(passages.size() == 4);
    CHECK(passages[0].headings == "05 · Attention");
    CHECK(passages[0].text == "How? By weights.");
    CHECK(passages[1].headings == "05 · Attention › The formula");
    CHECK(passages[1].anchor == "the-formula");
    CHECK(passages[1].text ==
          "One paragraph, on two lines.  It has a word.\n- first\n- second item");
    CHECK(passages[2].anchor == "the-formula-1");
    CHECK(passages[2].text == "a b\nc d");
    CHECK(passages[3].headings == "05 · Attention › The formula › Why √D? (an aside)");
    CHECK(passages[3].anchor == "why-d-an-aside");
}

TEST_CASE("A section is cut into passages of at most so many words, between paragraphs") {
    const std::vector<Passage> passages =
        passages_of("p.md", "# T\n\none two\n\nthree four\n\nfive six seven eight\n", 4);
    REQUIRE(passages.size() == 2);
    CHECK(passages[0].text == "one two\nthree four");
    CHECK(passages[1].text == "five six seven eight");
}

TEST_CASE("A passage begins with the first words of its first paragraph that is no formula") {
    const auto beginning = [](const std::string& text) {
        return beginning_of({"p.md", "t", "T", text});
    };
    CHECK(beginning("one two\nthree") == "one two");
    CHECK(beginning("$$ x^2 $$\none  two") == "one two");
    CHECK(beginning("$$ x^2 $$") == "$$ x^2 $$");
    CHECK(beginning("1 2 3 4 5 6 7 8 9 10 11 12 13 14\n15") ==
          "1 2 3 4 5 6 7 8 9 10 11 12 13 14");
    CHECK(beginning("√ 2 3 4 5 6 7 8 9 10 11 12 13 14 15") ==
          "√ 2 3 4 5 6 7 8 9 10 11 12 13 14 ...");
}

TEST_CASE("A question without answers, or with a section that is not there, is rejected") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "questions.jsonl").string();
    const std::vector<Passage> passages = passages_of("05.md", page);
    const auto error_of = [&](const std::string& line) -> std::string {
        overwrite(file, "\n" + line);
        try {
            read_questions(file, passages);
        } catch (const FileError& error) {
            return error.what();
        }
        return "";
    };
    CHECK(error_of(R"({"question": "x", "answers": []})") ==
          file + ", line 2: answers is empty");
    CHECK(error_of(R"({"question": "x", "answers": [[]]})") ==
          file + ", line 2: answers is not a list of sections");
    CHECK(error_of(R"({"question": "x", "answers": ["05.md#nowhere"]})") ==
          file + ", line 2: answers names 05.md#nowhere, which has no passage");
}
