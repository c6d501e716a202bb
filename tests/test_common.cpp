#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <sstream>

#include "common/json_file.hpp"
#include "common/measure.hpp"
#include "common/random.hpp"
#include "common/show.hpp"
#include "common/text.hpp"
#include "tests/files.hpp"

using namespace llm;

namespace {

// What a call prints on standard output.
std::string printed(const std::function<void()>& call) {
    std::ostringstream captured;
    std::streambuf* const original = std::cout.rdbuf(captured.rdbuf());
    call();
    std::cout.rdbuf(original);
    return captured.str();
}

}  // namespace

TEST_CASE("require fills in numbers and shapes") {
    CHECK_NOTHROW(require(true, "never seen"));
    CHECK_THROWS_WITH(require(false, "f: {} does not fit {}", std::array<std::size_t, 2>{2, 3},
                              std::array<std::size_t, 1>{7}),
                      "f: (2, 3) does not fit (7,)");
    CHECK_THROWS_AS(require(false, "f"), ShapeError);
}

TEST_CASE("reshape keeps the reading order and checks the number of elements") {
    const Matrix matrix{{0, 1, 2}, {3, 4, 5}};
    CHECK_CLOSE(reshape(matrix, {3, 2}), (Matrix{{0, 1}, {2, 3}, {4, 5}}), 0);
    CHECK_CLOSE(reshape(matrix, {1, 2, 3}), counting({1, 2, 3}), 0);
    CHECK_THROWS_WITH(reshape(matrix, {4, 4}), "reshape: (2, 3) does not fit into (4, 4)");
}

TEST_CASE("operators compute at once, axes of size 1 stretch") {
    const Matrix a{{1, 2}, {3, 4}};
    const Matrix column{{10}, {20}};
    static_assert(std::is_same_v<decltype(a + column), Matrix>);
    CHECK_CLOSE(a + column, (Matrix{{11, 12}, {23, 24}}), 0);
    CHECK_CLOSE(a - column, (Matrix{{-9, -8}, {-17, -16}}), 0);
    CHECK_CLOSE(a * column, (Matrix{{10, 20}, {60, 80}}), 0);
    CHECK_CLOSE(a / column, (Matrix{{0.1f, 0.2f}, {0.15f, 0.2f}}), 1e-7);
    CHECK_CLOSE(a + Real(1), (Matrix{{2, 3}, {4, 5}}), 0);
    CHECK_CLOSE(a - Real(1), (Matrix{{0, 1}, {2, 3}}), 0);
    CHECK_CLOSE(a * Real(2), (Matrix{{2, 4}, {6, 8}}), 0);
    CHECK_CLOSE(a / Real(2), (Matrix{{0.5, 1}, {1.5, 2}}), 0);
    Matrix changing = a;
    static_assert(std::is_same_v<decltype(changing + Matrix{{1}}), Matrix>);
    CHECK_THROWS_WITH(changing + Matrix(xt::ones<Real>({2, 3})),
                      "(2, 2) + (2, 3): the shapes do not fit");
    CHECK_THROWS_AS(a / counting({3, 2}), ShapeError);
}

TEST_CASE("random numbers are PyTorch's, in any order of calls") {
    Generator generator(1234);
    CHECK_CLOSE(randn({3}, generator), fixture<1>("random/randn_3"), 1e-6);
    CHECK_CLOSE(randn({2}, generator), fixture<1>("random/randn_2_after_3"), 1e-6);
    CHECK_CLOSE(randn({16}, generator), fixture<1>("random/randn_16"), 1e-6);
    CHECK_CLOSE(randn({5, 7}, generator), fixture<2>("random/randn_5_by_7"), 1e-6);
    CHECK_CLOSE(rand({3, 4}, generator), fixture<2>("random/rand_3_by_4"), 0);
    CHECK_CLOSE(uniform({6}, -2.5f, 0.5f, generator), fixture<1>("random/uniform_6"), 1e-6);
    CHECK(randint(-3, 100, {9}, generator) == id_fixture<1>("random/randint_9"));
    CHECK_CLOSE(randn({3, 6}, generator), fixture<2>("random/embedding_3_by_6"), 1e-6);
}

TEST_CASE("the largest seed equals PyTorch's") {
    Generator generator(4294967295);
    CHECK_CLOSE(randn({4, 4}, generator), fixture<2>("random/randn_last_seed"), 1e-6);
}

TEST_CASE("randint names a range without numbers") {
    Generator generator(1);
    CHECK_THROWS_WITH(randint(5, 5, {2}, generator), "randint: no numbers in [5, 5)");
}

TEST_CASE("measures of a whole tensor") {
    CHECK(root_mean_square(Matrix{{-1, 5}, {5, 7}}) == doctest::Approx(5));
    CHECK(largest_difference(Vector{1, 2, 3}, Vector{1, 4, 2}) == 2);
    CHECK_THROWS_AS(largest_difference(Vector{1}, Vector{1, 2}), ShapeError);
}

TEST_CASE("difference: finds the worst element and says where it is") {
    const Matrix expected{{1, 2}, {3, 200}};
    CHECK(difference(expected, expected, 0).empty());
    CHECK(
        difference(Matrix{{1, 2}, {3, 201}}, expected, 1e-5) ==
        "worst element (1, 1) of (2, 2): got 201, expected 200 (largest difference 1, allowed "
        "0.002)");
    CHECK(difference(Matrix{{1, 2}}, expected, 1) == "shape (1, 2), expected (2, 2)");
    CHECK(!difference(Matrix{{1, 2}, {3, NAN}}, expected, 1).empty());
    CHECK(!difference(Matrix{{NAN}}, Matrix{{NAN}}, 1).empty());
    CHECK(difference(Matrix{{-infinity}}, Matrix{{-infinity}}, 0).empty());
    CHECK(!difference(Matrix{{infinity}}, Matrix{{-infinity}}, 1).empty());
    CHECK(!difference(Matrix{{0}}, Matrix{{-infinity}}, 1).empty());
}

TEST_CASE("show pads numbers to the width of -inf and leaves out the sign of NaN") {
    const Matrix mask{{0, -infinity}, {0, -NAN}};
    CHECK(printed([&] { show("test_mask", mask); }) ==
          "test_mask: (2, 2)\n"
          "{{  0., -inf},\n"
          " {  0.,  nan}}\n");
}

TEST_CASE("show leaves the dots of a summary alone") {
    Matrix wide = xt::zeros<Real>({1, 300});
    wide(0, 1) = -infinity;
    CHECK(printed([&] { show("test_wide", wide); }) ==
          "test_wide: (1, 300)\n"
          "{{  0., -inf,   0., ...,   0.,   0.,   0.}}\n");
}

TEST_CASE("say breaks long narration into lines of at most 80 characters") {
    const std::string words(79, 'a');
    CHECK(printed([&] { say(words + " b c d"); }) == words + "\nb c d\n");
    CHECK(printed([&] { say(words.substr(1) + " b c"); }) == words.substr(1) + " b\nc\n");
}

TEST_CASE("show prints a large tensor of four axes by its first matrix") {
    const Tensor4 tensor = counting({2, 40, 2, 2});
    CHECK(printed([&] { show("test_four_axes", tensor); }) ==
          "test_four_axes: (2, 40, 2, 2), of which (0, 0):\n"
          "{{ 0.,  1.},\n"
          " { 2.,  3.}}\n");
}

TEST_CASE("show survives a tensor without elements") {
    const Matrix nothing = xt::zeros<Real>({0, 3});
    CHECK(printed([&] { show("test_nothing", nothing); }) == "test_nothing: (0, 3)\n{}\n");
}

TEST_CASE("show_table aligns words on the left and numbers on the right") {
    CHECK(printed([] {
              show_table({"model", "F", "rule"},
                         {{"Llama", "11,008", "8/3 C"}, {"GPT", "inf", "4 C"}});
          }) ==
          "model       F  rule\n"
          "Llama  11,008  8/3 C\n"
          "GPT       inf  4 C\n");
    CHECK_THROWS_AS(show_table({"a", "b"}, {{"1"}}), std::logic_error);
}

TEST_CASE("numbers for the cells of a table") {
    CHECK(with_commas(0) == "0");
    CHECK(with_commas(999) == "999");
    CHECK(with_commas(1000) == "1,000");
    CHECK(with_commas(12345678) == "12,345,678");
    CHECK(fixed(2.0 / 3, 2) == "0.67");
    CHECK(fixed(-1, 0) == "-1");
    CHECK(brief(0.25) == "0.25");
    CHECK(brief(3e38) == "3e+38");
    CHECK(brief(infinity) == "inf");
}

TEST_CASE("show takes a name only once, because names are files") {
    printed([] { show("test_twice", Vector{1}); });
    CHECK_THROWS_AS(show("test_twice", Vector{1}), std::logic_error);
}

TEST_CASE("show saves what NumPy reads") {
    const std::filesystem::path folder = "saved_by_test_common";
    std::filesystem::create_directories(folder);
    save_shown_tensors(folder);
    printed([] { show("test_saved", counting({2, 3})); });
    printed([] { show("test_saved_ids", IdVector{5, -6}); });
    save_shown_tensors("");
    CHECK_CLOSE(load_tensor<2>((folder / "test_saved.npy").string()), counting({2, 3}), 0);
    CHECK(load_ids<1>((folder / "test_saved_ids.npy").string()) == IdVector{5, -6});
    CHECK(!std::filesystem::exists(folder / "test_saved.npy.part"));
    std::filesystem::remove_all(folder);
}

TEST_CASE("characters of a text, and where it is not UTF-8") {
    CHECK(characters("aü中\U0001F600") ==
          std::vector<std::string>{"a", "ü", "中", "\U0001F600"});
    CHECK(characters("").empty());
    CHECK(characters(std::string("\0a", 2)).size() == 2);
    for (const std::string bad : {"ab\xff", "ab\xc3", "ab\xed\xa0\x80", "ab\xc0\x80"})
        CHECK_THROWS_WITH_AS(characters(bad), "the text is not UTF-8 at byte 2", TextError);
    CHECK(character(0x120) == "Ġ");
    CHECK(character('x') == "x");
}

TEST_CASE("composed: an accent joins its letter") {
    CHECK(composed("e\u0301 u\u0308") == "é ü");
    CHECK(composed("plain é") == "plain é");
    CHECK(composed("").empty());
    CHECK(composed(std::string("a\0e\u0301", 5)) == std::string("a\0é", 4));
    CHECK_THROWS_AS(composed("\xff"), TextError);
}

TEST_CASE("replaced: every occurrence, from left to right") {
    CHECK(replaced("a b c", " ", "▁") == "a▁b▁c");
    CHECK(replaced("aaa", "aa", "b") == "ba");
    CHECK(replaced("abc", "x", "y") == "abc");
}

TEST_CASE("escaped: what a terminal must not get becomes visible") {
    CHECK(escaped("a\n\t\x1b[2J\xff ü\x7f\u0085") == "a\\n\\t\\x1b[2J\\xff ü\\x7f\\xc2\\x85");
}

TEST_CASE("write_text prints whole characters only, at once, and nothing harmful") {
    CHECK(printed([] { write_text("caf\xc3"); }) == "caf");
    CHECK(printed([] { write_text("\xa9\n"); }) == "é\n");
    CHECK(printed([] { write_text("\x1b[2J\u009b"); }) == "?[2J?");
    CHECK(printed([] { write_text("\xff\xe4\xb8"); }) == "\ufffd");
    CHECK(printed([] { write_text("x"); }) == "\ufffd\ufffdx");
    CHECK(printed([] { write_text("\xf0\x9f"); }).empty());
    CHECK(printed([] { write_text(""); }).empty());
    CHECK(printed(end_text) == "\ufffd\ufffd\n");
    CHECK(printed(end_text) == "\n");
    CHECK(printed([] { write_text("\u202e\u2066 \u2030"); }) == "?? \u2030");
}

TEST_CASE("a pattern knows Unicode, says where it matches, and gives up in time") {
    using Ends = std::vector<std::pair<std::size_t, std::size_t>>;
    CHECK(Pattern(R"(\p{L}+|\s)").matches("aü 中!") == Ends{{0, 3}, {3, 4}, {4, 7}});
    CHECK(Pattern("x*").matches("axxb") == Ends{{1, 3}});
    CHECK(Pattern("a").matches("").empty());
    CHECK_THROWS_AS(Pattern("(a"), TextError);
    CHECK_THROWS_AS(Pattern(R"(\C)"), TextError);
    CHECK_THROWS_AS(Pattern("a").matches("\xff"), TextError);
    CHECK_THROWS_AS(Pattern("(a+)+$").matches(std::string(50, 'a') + "b"), TextError);
    CHECK_THROWS_AS(Pattern(R"(a\Kb)").matches("abab\xff"), TextError);
}

TEST_CASE("JSON: objects inside objects, ids, and lists of texts") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.json";
    overwrite(file, R"({"one": {"two": [{"id": 3}, {"id": [4, 5]}], "names": {"b.c": 7, "a": 8},
                       "pairs": ["x y", ["z", "w"]], "bad": [1], "huge": 4294967296}})");
    const JsonFile one = JsonFile(file).object("one");
    CHECK(one.objects("two")[0].ids("id") == std::vector<Id>{3});
    CHECK(one.objects("two")[1].ids("id") == std::vector<Id>{4, 5});
    CHECK(one.ids_by_name("names") ==
          std::vector<std::pair<std::string, Id>>{{"a", 8}, {"b.c", 7}});
    CHECK(one.text_lists("pairs") ==
          std::vector<std::vector<std::string>>{{"x y"}, {"z", "w"}});
    const auto refused = [&](const auto& call, const std::string& message) {
        CHECK_THROWS_WITH_AS(call(), (file.string() + ": " + message).c_str(), FileError);
    };
    refused([&] { one.objects("two")[1].text("id"); },
            "one.two.1.id must be a text, not a list");
    refused([&] { one.object("three"); }, "one.three is missing");
    refused([&] { one.objects("names"); }, "one.names must be a list");
    refused([&] { one.objects("bad"); }, "one.bad.0 must be an object");
    refused([&] { one.text_lists("bad"); }, "one.bad must hold texts, not 1");
    refused([&] { one.ids("huge"); },
            "one.huge must hold whole numbers from 0 to 2147483647, not 4294967296");
}
