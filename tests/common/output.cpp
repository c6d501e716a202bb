#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <regex>
#include <sstream>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/output/terminal.hpp"
#include "tests/support/check.hpp"

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

// A terminal of 24 lines as standard input and output, in which Enter was pressed 100 times.
// Restores both at its end.
class TestTerminal {
 public:
    explicit TestTerminal(unsigned short width) {
        REQUIRE(grantpt(terminal_) == 0);
        REQUIRE(unlockpt(terminal_) == 0);
        const winsize size{24, width, 0, 0};
        const int program_side = open(ptsname(terminal_), O_RDWR | O_NOCTTY);
        REQUIRE(ioctl(program_side, TIOCSWINSZ, &size) == 0);
        REQUIRE(write(terminal_, std::string(100, '\n').data(), 100) == 100);
        std::cout << std::flush;
        dup2(program_side, STDIN_FILENO);
        dup2(program_side, STDOUT_FILENO);
        close(program_side);
        unsetenv("NO_COLOR");
    }
    ~TestTerminal() {
        dup2(input_, STDIN_FILENO);
        dup2(output_, STDOUT_FILENO);
        for (const int file : {input_, output_, terminal_}) close(file);
        set_print_options({});
    }
    TestTerminal(const TestTerminal&) = delete;

 private:
    int input_ = dup(STDIN_FILENO), output_ = dup(STDOUT_FILENO);
    int terminal_ = posix_openpt(O_RDWR | O_NOCTTY);
};

std::string printed_in_terminal(unsigned short width, const std::function<void()>& call) {
    const TestTerminal terminal(width);
    return printed(call);
}

std::string without_escapes(const std::string& text) {
    return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*[mAK]"), "");
}

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++count;
    return count;
}

// Causal attention weights of 10 tokens: row i has i + 1 equal weights. (B, H, T, T)
Tensor4 equal_weights() {
    Tensor4 weights = xt::zeros<Real>({2, 2, 10, 10});
    for (std::size_t i = 0; i < 10; ++i)
        for (std::size_t j = 0; j <= i; ++j) weights(0, 0, i, j) = 1 / Real(i + 1);
    return weights;
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
    CHECK(round_trip(0.1f) == "0.1");
    CHECK(round_trip(0.1f + 1e-8f) != "0.1");
    CHECK(round_trip(1.0 / 3) == "0.3333333333333333");
}

TEST_CASE("show rejects a name that was shown before, because each name is a file") {
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
    CHECK(printed([] { write_text("x"); }) == "\ufffdx");
    CHECK(printed([] { write_text("\xf0\x9f"); }).empty());
    CHECK(printed([] { write_text(""); }).empty());
    CHECK(printed(end_text) == "\ufffd\n");
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

TEST_CASE(
    "visible_width counts characters without escape sequences, screen_lines their lines") {
    CHECK(visible_width("") == 0);
    CHECK(visible_width("caf\u00e9") == 4);
    CHECK(visible_width("\x1b[1;36m\u2500 a\x1b[0m b") == 5);
    CHECK(screen_lines(0, 80) == 1);
    CHECK(screen_lines(80, 80) == 1);
    CHECK(screen_lines(81, 80) == 2);
    CHECK(screen_lines(161, 80) == 3);
}

TEST_CASE(
    "ColorScale: each kind of value has its color, and the legend names those that occur") {
    const ColorScale scale{-1, 3, false, false};
    CHECK(scale.cell(-1, "a") == "\x1b[38;5;231;48;5;53ma\x1b[0m");
    CHECK(scale.cell(1, "a") == "\x1b[38;5;16;48;5;36ma\x1b[0m");
    CHECK(scale.cell(3, "a") == "\x1b[38;5;16;48;5;220ma\x1b[0m");
    CHECK(scale.cell(4, "a") == scale.cell(3, "a"));
    CHECK(scale.cell(-infinity, "a") == "\x1b[38;5;231;48;5;238ma\x1b[0m");
    CHECK(scale.cell(NAN, "a") == "\x1b[38;5;231;48;5;160ma\x1b[0m");
    CHECK(scale.cell(infinity, "a") == scale.cell(NAN, "a"));

    const auto legend = [](const ColorScale& s) { return without_escapes(s.legend()); };
    CHECK(legend(scale) == "colors: -1           3");
    CHECK(legend({0, 0.25, true, false}) == "colors: 0           0.25, -inf  ");
    CHECK(legend({0, 0, true, true}) == "colors: 0  , -inf  , nan  ");
    CHECK(legend({infinity, -infinity, true, false}) == "colors: -inf  ");
    CHECK(scale.legend().find("48;5;53m") < scale.legend().find("48;5;220m"));
}

TEST_CASE(
    "show: in a terminal of 80 columns, attention weights of rank 4 have colored numbers") {
    const std::string plain = printed([] { show("test_plain", equal_weights()); });
    const std::string colored =
        printed_in_terminal(80, [] { show("test_plane", equal_weights()); });
    // The legend, then 10 cells in each of 10 rows.
    CHECK(count_of(colored, "\x1b[38;5;") == 9 + 100);
    CHECK(colored.find("\x1b[38;5;16;48;5;220m 1.") != colored.npos);
    std::istringstream lines(without_escapes(colored));
    std::string line;
    std::getline(lines, line);
    CHECK(line == "test_plane: (2, 2, 10, 10), of which (0, 0):  colors: 0           1");
    while (std::getline(lines, line)) CHECK(visible_width(line) <= 80);
    CHECK(count_of(plain, "\x1b") == 0);
}

TEST_CASE("show: cells are at the right of small tensors, with the same text as in a pipe") {
    const Matrix scores{{1, -infinity}, {-2, 3}};
    const std::string colored = printed_in_terminal(80, [&] { show("test_cells", scores); });
    CHECK(without_escapes(colored) ==
          "test_cells: (2, 2)  colors: -2           3, -inf  \n"
          "{{  1., -inf},      \n"
          " { -2.,   3.}}      \n");
    CHECK(count_of(colored, "\x1b[38;5;231;48;5;238m  \x1b[0m") == 1);  // -inf, 2 wide
}

TEST_CASE("show: other tensors that leave no room for cells have no colors") {
    const Matrix wide = counting({10, 10}) / Real(30);  // some elements are above 1
    CHECK(count_of(printed_in_terminal(60, [&] { show("test_room", wide); }), "\x1b") == 0);
    const Matrix equal = xt::ones<Real>({2, 2});
    CHECK(count_of(printed_in_terminal(60, [&] { show("test_equal", equal); }), "\x1b") == 0);
}

TEST_CASE("show: a legend that does not fit beside a long name has a line of its own") {
    const std::string name = "test_" + std::string(60, 'n');
    const std::string colored = printed_in_terminal(80, [&] {
        show(name, Matrix{{0, 1}, {0.5, 0}});
    });
    CHECK(without_escapes(colored).starts_with(name + ": (2, 2)\ncolors: 0           1\n{{"));
}

TEST_CASE(
    "show: numbers of a table of attention weights with names are colored, names are not") {
    const std::string colored = printed_in_terminal(80, [] {
        show("test_names", Matrix{{1, 0}, {0.25, 0.75}}, {"a", "\u00e9t\u00e9"}, {"a", "b"});
    });
    CHECK(without_escapes(colored) ==
          "test_names: (2, 2)  colors: 0           1\n"
          "        a     b\n"
          "a    1.00  0.00\n"
          "\u00e9t\u00e9  0.25  0.75\n");
    CHECK(colored.find("\na  \x1b[38;5;16;48;5;220m  1.00\x1b[0m") != colored.npos);
    CHECK(colored.find("\n\u00e9t\u00e9\x1b[38;5;231;48;5;60m  0.25\x1b[0m") != colored.npos);
}

TEST_CASE("NO_COLOR: a terminal gets no colors") {
    const std::string plain = printed_in_terminal(80, [] {
        setenv("NO_COLOR", "1", 1);
        step("Title");
        show("test_no_color", equal_weights());
        unsetenv("NO_COLOR");
    });
    CHECK(count_of(plain, "\x1b") == 0);
    CHECK(plain.starts_with(
        "\n── 1. Title ──\ntest_no_color: (2, 2, 10, 10), of which (0, 0):\n"));
}

TEST_CASE("step prints its number in a terminal only") {
    CHECK(printed([] { step("Title"); }) == "\n── 1. Title ──\n");
    const std::string in_terminal = printed_in_terminal(80, [] {
        set_print_options({});
        step("First");
        step("Second");
    });
    CHECK(without_escapes(in_terminal) == "\n── 1. First ──\n\n── 2. Second ──\n");
}

TEST_CASE("--step waits before a step and after each screenful, so that no line is missed") {
    const std::string prompt = "[Enter] \x1b[A\r\x1b[2K";
    std::string output = printed_in_terminal(80, [] {
        set_print_options({false, true, {}});
        step("First");  // with 46 lines after it: two pages of 23 lines and one of 1 line
        for (int i = 0; i < 44; ++i) say("line");
        say(std::string(81, 'x'));  // takes two lines
        step("Second");
        write_text(std::string(23 * 80, 'y'));
        write_text("z");  // not on this page any more
        end_text();
    });
    std::vector<std::size_t> pages;
    for (std::size_t at; (at = output.find(prompt)) != output.npos;) {
        pages.push_back(count_of(output.substr(0, at), "\n"));
        output.erase(0, at + prompt.size());
    }
    // An empty line and 23 lines; 23; 1 that takes 2; an empty line, the heading and a text
    // that is moved to the next page; a text that fills its page and ends with the prompt's
    // line.
    CHECK(pages == std::vector<std::size_t>{24, 22, 1, 2, 1});
    CHECK(output == "z\n");
}

TEST_CASE("--step does not wait if standard input is not a terminal") {
    set_print_options({false, true, {}});
    const std::string output = printed([] {
        step("First");
        for (int i = 0; i < 100; ++i) say("line");
        step("Second");
    });
    set_print_options({});
    if (!isatty(STDIN_FILENO)) CHECK(count_of(output, "[Enter]") == 0);
}

TEST_CASE("--only prints and saves one step, and the run ends after it") {
    const std::filesystem::path folder = "saved_by_test_only";
    std::filesystem::create_directories(folder);
    save_shown_tensors(folder);
    set_print_options({false, false, 2});
    const std::string output = printed([] {
        say("before the first step");
        step("First");
        show("test_only_first", Vector{1});
        write_text("text\n");
        step("Second");
        show("test_only_second", Vector{1});
        CHECK_THROWS_AS(step("Third"), OnlyStepDone);
    });
    CHECK(output == "\n── 2. Second ──\ntest_only_second: (1,)\n{ 1.}\n");
    CHECK(step_titles() == std::vector<std::string>{"First", "Second"});
    CHECK(!std::filesystem::exists(folder / "test_only_first.npy"));
    CHECK(std::filesystem::exists(folder / "test_only_second.npy"));
    save_shown_tensors("");
    std::filesystem::remove_all(folder);

    set_print_options({false, false, 0});  // lists the steps: none is printed, all run
    CHECK(printed([] {
              say("before");
              step("First");
              step("Second");
              say("after");
          }).empty());
    CHECK(step_titles().size() == 2);
    set_print_options({});
}

TEST_CASE("--json prints each step, text, tensor, table and figure as a line of JSON") {
    set_print_options({.json = true});
    const std::string output = printed([] {
        step("A \"step\"");
        say("words");
        show("value", 1.5);
        show("test_json_ids", IdMatrix{{1, 2, 3}, {4, 5, 6}});
        show("test_json", Matrix{{0.1f, -infinity, -std::nanf("")}});
        show("test_json_names", Matrix{{0.25f}}, {"row"}, {"column"});
        show_table({"a", "b"}, {{"1", "2"}});
        write_text("And");
        end_text();
        plot("bars", {BarChart{"title", "y", {"left", "right"}, {{"one", {1, 2}}}}});
    });
    set_print_options({});
    CHECK(output ==
          R"({"type":"step","number":1,"title":"A \"step\""})"
          "\n"
          R"({"type":"text","text":"words"})"
          "\n"
          R"({"type":"value","name":"value","text":"1.5"})"
          "\n"
          R"({"type":"tensor","name":"test_json_ids","shape":[2,3],)"
          R"("values":[1.0,2.0,3.0,4.0,5.0,6.0],"printed":"{{1, 2, 3},\n {4, 5, 6}}"})"
          "\n"
          R"({"type":"tensor","name":"test_json","shape":[1,3],"values":[0.1,"-inf","nan"],)"
          R"("printed":"{{    0.1   ,    -inf,     nan}}"})"
          "\n"
          R"({"type":"tensor","name":"test_json_names","shape":[1,1],"values":[0.25],)"
          R"("rows":["row"],"columns":["column"],"printed":"     column\nrow    0.25"})"
          "\n"
          R"({"type":"table","headings":["a","b"],"rows":[["1","2"]]})"
          "\n"
          R"({"type":"generated","text":"And"})"
          "\n"
          R"({"type":"generated","text":"\n"})"
          "\n"
          R"({"type":"figure","name":"bars","panel":0,"panels":1,"kind":"bars",)"
          R"("title":"title","y_label":"y","names":["left","right"],"labels":["one"],)"
          R"("values":[[1.0,2.0]],"highest":0.0})"
          "\n");
}

TEST_CASE("--json leaves out the values of tensors with more than 65536 elements") {
    const auto json_of = [](const std::string& name, std::size_t count) {
        return printed([&] { show(name, Vector(Vector::shape_type{count}, Real(1))); });
    };
    set_print_options({.json = true});
    const std::string largest = json_of("test_json_largest", 65536);
    const std::string larger = json_of("test_json_larger", 65537);
    set_print_options({});
    CHECK(count_of(largest, "values") == 1);
    CHECK(count_of(larger, "values") == 0);
    CHECK(count_of(larger, R"("shape":[65537])") == 1);
}

TEST_CASE("--quiet prints only generated text") {
    set_print_options({true, false, {}});
    const std::string output = printed([] {
        step("The generated text");
        say("words");
        show("test_quiet", Vector{1});
        show("value", 1.5);
        show_table({"a"}, {{"1"}});
        CHECK(printed_nothing());
        write_text("And the");
        end_text();
    });
    CHECK(!printed_nothing());
    CHECK(output == "And the\n");
    set_print_options({});
}
