#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <sstream>

#include "common/output/show.hpp"
#include "tests/check.hpp"

using namespace llm;

namespace {

// Returns what a call prints on standard output.
std::string printed(const std::function<void()>& call) {
    std::ostringstream captured;
    std::streambuf* const original = std::cout.rdbuf(captured.rdbuf());
    call();
    std::cout.rdbuf(original);
    return captured.str();
}

}  // namespace

TEST_CASE("show pads elements to the width of -inf and omits the sign of NaN") {
    const Matrix mask{{0, -infinity}, {0, -NAN}};
    CHECK(printed([&] { show("test_mask", mask); }) ==
          "test_mask: (2, 2)\n"
          "{{  0., -inf},\n"
          " {  0.,  nan}}\n");
}

TEST_CASE("show does not change the dots of a summarized tensor") {
    Matrix wide = xt::zeros<Real>({1, 300});
    wide(0, 1) = -infinity;
    CHECK(printed([&] { show("test_wide", wide); }) ==
          "test_wide: (1, 300)\n"
          "{{  0., -inf,   0., ...,   0.,   0.,   0.}}\n");
}

TEST_CASE("say wraps long paragraphs at 80 characters") {
    const std::string words(79, 'a');
    CHECK(printed([&] { say(words + " b c d"); }) == words + "\nb c d\n");
    CHECK(printed([&] { say(words.substr(1) + " b c"); }) == words.substr(1) + " b\nc\n");
}

TEST_CASE("show prints only the first matrix of a large Tensor4") {
    const Tensor4 tensor = counting({2, 40, 2, 2});
    CHECK(printed([&] { show("test_four_axes", tensor); }) ==
          "test_four_axes: (2, 40, 2, 2), of which (0, 0):\n"
          "{{ 0.,  1.},\n"
          " { 2.,  3.}}\n");
}

TEST_CASE("show prints a tensor without elements as {}") {
    const Matrix nothing = xt::zeros<Real>({0, 3});
    CHECK(printed([&] { show("test_nothing", nothing); }) == "test_nothing: (0, 3)\n{}\n");
}

TEST_CASE("show_table left-aligns text and right-aligns numbers") {
    CHECK(printed([] {
              show_table({"model", "F", "rule"},
                         {{"Llama", "11,008", "8/3 C"}, {"GPT", "inf", "4 C"}});
          }) ==
          "model       F  rule\n"
          "Llama  11,008  8/3 C\n"
          "GPT       inf  4 C\n");
    CHECK_THROWS_AS(show_table({"a", "b"}, {{"1"}}), std::logic_error);
}

TEST_CASE("with_commas, fixed and brief format numbers for table cells") {
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

TEST_CASE("show refuses a name that was shown before, because each name is a file") {
    printed([] { show("test_twice", Vector{1}); });
    CHECK_THROWS_AS(show("test_twice", Vector{1}), std::logic_error);
}

TEST_CASE("show saves tensors in NumPy's format") {
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

TEST_CASE("write_text prints complete characters immediately and replaces control characters") {
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

TEST_CASE("sparkline maps the smallest mean to the lowest bar and the largest to the highest") {
    const auto line = [](const std::vector<Real>& values, std::size_t width) {
        return sparkline(values, width);
    };
    CHECK(line({0, 1, 2, 3, 4, 5, 6, 7}, 8) == "▁▂▃▄▅▆▇█");
    CHECK(line({-1, -2, 3}, 10) == "▂▁█");        // fewer values than bars
    CHECK(line({5, 1, 2, 4, 9, 9}, 3) == "▁▁█");  // means of two: 3, 3, 9
    CHECK(line({0, 0, 6, 6, 6}, 2) == "▁█");      // 5 values for 2 bars: none is omitted
    CHECK(line({6, 0, 12, 3, 3}, 3) == "██▁");    // means of 1, 2 and 2 values: 6, 6, 3
    CHECK(line({2, 2, 2}, 3) == "▁▁▁");
    CHECK(line({7}, 4) == "▁");
    CHECK(line({}, 4).empty());
    CHECK(line({1, 2}, 0).empty());
}

TEST_CASE("sparkline prints a space for a mean that is not finite") {
    CHECK(sparkline(std::vector<Real>{0, 1, NAN, infinity, -infinity}, 5) == "▁█   ");
    CHECK(sparkline(std::vector<Real>{NAN, NAN}, 2) == "  ");
}
