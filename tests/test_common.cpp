#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <mutex>
#include <new>
#include <set>
#include <sstream>
#include <thread>

#include "common/files/json_file.hpp"
#include "common/numbers/statistics.hpp"
#include "common/system/parallel.hpp"
#include "common/tensors/matmul.hpp"
#include "common/numbers/random.hpp"
#include "common/files/safetensors.hpp"
#include "common/output/show.hpp"
#include "common/files/unicode.hpp"
#include "tests/count_memory.hpp"
#include "tests/files.hpp"

using namespace llm;

// OpenBLAS has them; other BLAS libraries do not.
extern "C" void openblas_set_num_threads(int count) __attribute__((weak));
extern "C" int openblas_get_num_threads() __attribute__((weak));

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

namespace {

// The bits of a number that went through a file with 16 bits for each, the last 16 cut off.
std::uint32_t as_bf16(std::uint32_t bits) {
    const Scratch scratch;
    const fs::path file = scratch.folder / "one.safetensors";
    const Vector number{std::bit_cast<float>(bits)};
    write_safetensors(file, {named("number", number)}, NumberType::bf16);
    const auto read = std::bit_cast<std::uint32_t>(SafeTensors(file).read("number", {1})(0));
    CHECK((read & 0xFFFF) == 0);
    return read >> 16;
}

}  // namespace

TEST_CASE("BF16 rounds to the nearest number with 8 bits, halfway to the even one") {
    CHECK(as_bf16(0x3F800000) == 0x3F80);  // 1 stays
    CHECK(as_bf16(0x3F807FFF) == 0x3F80);  // a little less than half: down
    CHECK(as_bf16(0x3F808000) == 0x3F80);  // half: down, to the even one
    CHECK(as_bf16(0x3F808001) == 0x3F81);  // a little more than half: up
    CHECK(as_bf16(0x3F817FFF) == 0x3F81);
    CHECK(as_bf16(0x3F818000) == 0x3F82);  // half: up, to the even one
    CHECK(as_bf16(0xBF818000) == 0xBF82);  // the same below zero
    CHECK(as_bf16(0x3FFFFFFF) == 0x4000);  // almost 2 becomes 2: a carry into the exponent
    CHECK(as_bf16(0x00000000) == 0x0000);
    CHECK(as_bf16(0x80000000) == 0x8000);  // minus zero
    CHECK(as_bf16(0x00018000) == 0x0002);  // the smallest numbers, too
    CHECK(as_bf16(0x7F7F7FFF) == 0x7F7F);  // the largest that stays finite
}

TEST_CASE("a file of BF16 says so, takes half the place, and keeps names, shapes and order") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.safetensors";
    const Matrix matrix{{1, 2, 3}, {4, 5, -0.5}};
    const Vector vector{7, 1.00390625};  // 1 + 2^-8: halfway between two numbers of BF16
    const std::vector<NamedTensor> tensors = {named("b", matrix), named("a", vector)};
    write_safetensors(file, tensors, NumberType::bf16);
    CHECK(
        mentions(content(file), R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]})"));
    CHECK(
        mentions(content(file), R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]})"));
    const SafeTensors read(file);
    CHECK_CLOSE(read.read("b", {2, 3}), matrix, 0);
    CHECK_CLOSE(read.read("a", {2}), (Vector{7, 1}), 0);
    CHECK_THROWS_AS(read.read("b", {3, 2}), FileError);

    const auto header_of = [&] {
        std::uint64_t length = 0;
        content(file).copy(reinterpret_cast<char*>(&length), 8);
        return length;
    };
    CHECK(fs::file_size(file) == 8 + header_of() + 16);

    write_safetensors(file, tensors);
    CHECK(
        mentions(content(file), R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})"));
    CHECK(fs::file_size(file) == 8 + header_of() + 32);
    CHECK_CLOSE(SafeTensors(file).read("a", {2}), vector, 0);
    CHECK(!fs::exists(file.string() + ".part"));
}

TEST_CASE("safetensors: a file by its own name, and how long a vector of it is") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "run.safetensors";
    const Matrix matrix{{1, 2, 3}, {4, 5, 6}};
    const Vector vector{7, 8, 9, 10};
    write_safetensors(file, {named("matrix", matrix), named("vector", vector)});
    const SafeTensors tensors(file);
    CHECK(tensors.has("matrix"));
    CHECK(!tensors.has("model"));
    CHECK(tensors.size_of("vector") == 4);
    CHECK_THROWS_WITH_AS(tensors.size_of("matrix"),
                         (file.string() + ": tensor matrix of one axis is missing").c_str(),
                         FileError);
    CHECK_THROWS_WITH_AS(tensors.size_of("other"),
                         (file.string() + ": tensor other of one axis is missing").c_str(),
                         FileError);
    CHECK_THROWS_AS(SafeTensors(scratch.folder / "none.safetensors"), FileError);
}

TEST_CASE("read_text gives the whole file, or says in one line why it is no text") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.txt";
    const auto refused = [&](const std::string& bytes, const std::string& message) {
        overwrite(file, bytes);
        CHECK_THROWS_WITH_AS(read_text(file), (file.string() + message).c_str(), FileError);
    };
    for (const std::string good : {"x", "one\r\ntwo\n\n", "\tcafé 中\U0001F600\n\ufeff"}) {
        overwrite(file, good);
        CHECK(read_text(file) == good);
    }
    refused("", " is empty");
    refused(std::string("ab\0c", 4), ": no text: byte 2 is 0");
    refused("é\xff", ": no text: byte 2 is no UTF-8");
    refused("abc\xc3", ": no text: byte 3 is no UTF-8");
    CHECK_THROWS_WITH_AS(read_text(scratch.folder),
                         (scratch.folder.string() + " is not a file").c_str(), FileError);
    const fs::path none = scratch.folder / "none";
    CHECK_THROWS_WITH_AS(read_text(none), ("cannot read " + none.string()).c_str(), FileError);
}

TEST_CASE("read_text: 64 million bytes are allowed, one more is too many") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "zeros";
    overwrite(file, "");
    const auto refusal = [&](std::size_t size) {
        fs::resize_file(file, size);  // takes no place on the disk
        try {
            read_text(file);
        } catch (const FileError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(refusal(64'000'000) == file.string() + ": no text: byte 0 is 0");
    CHECK(refusal(64'000'001) ==
          file.string() + ": 64000001 bytes are too many; a text may have 64000000");
}

TEST_CASE("lines_of: a line end closes a line, and the last one may lack it") {
    using Lines = std::vector<std::string>;
    CHECK(lines_of("a\nb\n") == Lines{"a", "b"});
    CHECK(lines_of("a\nb") == Lines{"a", "b"});
    CHECK(lines_of("\na\n\n\nb") == Lines{"", "a", "", "", "b"});
    CHECK(lines_of("\n") == Lines{""});
    CHECK(lines_of("").empty());
}

TEST_CASE("sparkline: the lowest number is the lowest bar, the highest the highest") {
    const auto line = [](const std::vector<Real>& numbers, std::size_t width) {
        return sparkline(numbers, width);
    };
    CHECK(line({0, 1, 2, 3, 4, 5, 6, 7}, 8) == "▁▂▃▄▅▆▇█");
    CHECK(line({-1, -2, 3}, 10) == "▂▁█");        // fewer numbers than bars
    CHECK(line({5, 1, 2, 4, 9, 9}, 3) == "▁▁█");  // means of two: 3, 3, 9
    CHECK(line({0, 0, 6, 6, 6}, 2) == "▁█");      // 5 numbers for 2 bars: none is left out
    CHECK(line({6, 0, 12, 3, 3}, 3) == "██▁");    // means of 1, 2 and 2 numbers: 6, 6, 3
    CHECK(line({2, 2, 2}, 3) == "▁▁▁");
    CHECK(line({7}, 4) == "▁");
    CHECK(line({}, 4).empty());
    CHECK(line({1, 2}, 0).empty());
}

TEST_CASE("sparkline leaves a gap for what is no number, and is not stretched by it") {
    CHECK(sparkline(std::vector<Real>{0, 1, NAN, infinity, -infinity}, 5) == "▁█   ");
    CHECK(sparkline(std::vector<Real>{NAN, NAN}, 2) == "  ");
}

TEST_CASE("in_parallel: every number once, and after_each counts up one by one") {
    for (const std::size_t count : {0u, 1u, 2u, 1000u}) {
        std::vector<std::atomic<int>> times(count);
        std::vector<std::size_t> told, expected;
        for (std::size_t i = 1; i <= count; ++i) expected.push_back(i);
        in_parallel(
            count, [&](std::size_t i) { ++times.at(i); },
            [&](std::size_t done) { told.push_back(done); });
        for (const std::atomic<int>& t : times) CHECK(t == 1);
        CHECK(told == expected);
    }
    CHECK(num_cores() >= 1);
}

// How many of two works found that the other one did not run at the same time.
int alone_of_two() {
    std::atomic<int> begun = 0, alone = 0;
    in_parallel(2, [&](std::size_t) {  // each waits until the other one has begun, too
        ++begun;
        for (int tries = 0; begun < 2 && tries < 5000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (begun < 2) ++alone;
    });
    return alone;
}

TEST_CASE("in_parallel works on two cores at a time") {
    if (num_cores() < 2) return;
    CHECK(alone_of_two() == 0);
}

TEST_CASE("in_parallel tells of one at a time") {
    std::atomic<bool> telling = false;
    std::atomic<int> at_once = 0;
    in_parallel(
        20, [](std::size_t) {},
        [&](std::size_t) {
            if (telling.exchange(true)) ++at_once;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            telling = false;
        });
    CHECK(at_once == 0);
}

TEST_CASE("in_parallel throws what the work throws, when all of it has ended") {
    for (const std::size_t count : {1u, 50u}) {
        std::atomic<int> begun = 0, ended = 0;
        const auto work = [&](std::size_t i) {
            ++begun;
            if (i == count / 2) throw TextError("number " + std::to_string(i));
            ++ended;
        };
        CHECK_THROWS_WITH_AS(in_parallel(count, work),
                             ("number " + std::to_string(count / 2)).c_str(), TextError);
        CHECK(begun == ended + 1);
        CHECK(begun == static_cast<int>(count));
    }
    const auto angry = [](std::size_t) { throw TextError("told too much"); };
    CHECK_THROWS_AS(in_parallel(
                        10, [](std::size_t) {}, angry),
                    TextError);
}

TEST_CASE(
    "in_parallel says which core: one of those there are, and no two at a time the same") {
    std::vector<std::atomic<bool>> busy(num_cores());
    std::atomic<int> wrong = 0;
    std::vector<std::atomic<int>> times(300);
    for (const std::size_t count : {0u, 1u, 2u, 300u})
        in_parallel(count, [&](std::size_t i, std::size_t core) {
            if (core >= num_cores() || busy[core].exchange(true)) {
                ++wrong;
                return;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(20));
            ++times[i];
            busy[core] = false;
        });
    CHECK(wrong == 0);
    CHECK(times[0] == 3);
    CHECK(times[1] == 2);
    for (std::size_t i = 2; i < times.size(); ++i) CHECK(times[i] == 1);
}

TEST_CASE("in_parallel says another core to each of two that wait for each other") {
    if (num_cores() < 2) return;
    std::atomic<int> begun = 0;
    std::array<std::size_t, 2> cores{};
    in_parallel(2, [&](std::size_t i, std::size_t core) {
        cores[i] = core;
        ++begun;
        for (int tries = 0; begun < 2 && tries < 5000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    CHECK(cores[0] != cores[1]);
}

TEST_CASE("in_parallel returns when the last of its work has ended") {
    std::atomic<int> begun = 0, ended = 0;
    in_parallel(2, [&](std::size_t, std::size_t core) {
        ++begun;
        for (int tries = 0; begun < 2 && num_cores() > 1 && tries < 5000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (core != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ++ended;
    });
    CHECK(ended == 2);
}

TEST_CASE("in_parallel within work does one thing after the other, on its own core") {
    std::atomic<int> elsewhere = 0, begun = 0;
    std::vector<std::vector<std::size_t>> orders(20), told(20);
    std::vector<std::size_t> expected(30), expected_told(30);
    for (std::size_t i = 0; i < 30; ++i) {
        expected[i] = i;
        expected_told[i] = i + 1;
    }
    in_parallel(20, [&](std::size_t outer, std::size_t this_core) {
        const std::thread::id here = std::this_thread::get_id();
        ++begun;  // nobody goes on alone, if there are two cores
        for (int tries = 0; begun < 2 && num_cores() > 1 && tries < 5000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        in_parallel(
            30,
            [&](std::size_t inner, std::size_t core) {
                elsewhere += std::this_thread::get_id() != here || core != this_core;
                in_parallel(2, [&](std::size_t) {  // and once more
                    elsewhere += std::this_thread::get_id() != here;
                });
                orders[outer].push_back(inner);
            },
            [&](std::size_t done) { told[outer].push_back(done); });
    });
    CHECK(elsewhere == 0);
    for (const auto& order : orders) CHECK(order == expected);
    for (const auto& counted : told) CHECK(counted == expected_told);
}

TEST_CASE("in_parallel within work throws there, and all goes on afterwards") {
    std::atomic<int> caught = 0, ended = 0;
    in_parallel(10, [&](std::size_t) {
        try {
            in_parallel(3, [](std::size_t i) {
                if (i == 1) throw TextError("inside");
            });
        } catch (const TextError&) {
            ++caught;
        }
    });
    CHECK(caught == 10);
    const auto nested = [](std::size_t) {
        in_parallel(3, [](std::size_t) { throw TextError("not caught inside"); });
    };
    CHECK_THROWS_WITH_AS(in_parallel(10, nested), "not caught inside", TextError);
    in_parallel(10, [&](std::size_t) { ++ended; });
    CHECK(ended == 10);
}

TEST_CASE("in_parallel: thousands of calls in a row, by one team, without asking for memory") {
    std::mutex mutex;
    std::set<std::thread::id> team;
    std::vector<std::size_t> sums(2 * num_cores() + 1);
    const auto work = [&](std::size_t i) { sums[i] += i; };
    in_parallel(sums.size(), work);
    const std::size_t before = times_asked;
    for (int call = 0; call < 4000; ++call) in_parallel(sums.size(), work);
    const std::size_t asked = times_asked - before;
    CHECK(asked == 0);
    for (std::size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == 4001 * i);

    for (int call = 0; call < 200; ++call)
        in_parallel(8, [&](std::size_t) {
            const std::lock_guard lock(mutex);
            team.insert(std::this_thread::get_id());
        });
    CHECK(team.size() <= num_cores());
}

TEST_CASE("in_parallel: a team that has slept wakes up again") {
    if (num_cores() < 2) return;
    for (int times = 0; times < 3; ++times) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        CHECK(alone_of_two() == 0);
    }
}

TEST_CASE("in_parallel leaves each product one core, and all of them again afterwards") {
    if (!openblas_get_num_threads) return;
    const int found = openblas_get_num_threads(), before = 2;
    openblas_set_num_threads(before);
    std::atomic<int> wrong = 0;
    in_parallel(8, [&](std::size_t) { wrong += openblas_get_num_threads() != 1; });
    CHECK(wrong == 0);
    CHECK(openblas_get_num_threads() == before);
    in_parallel(1, [&](std::size_t) { wrong += openblas_get_num_threads() != before; });
    CHECK(wrong == 0);
    CHECK_THROWS_AS(in_parallel(4, [](std::size_t) { throw TextError("no"); }), TextError);
    CHECK(openblas_get_num_threads() == before);
    openblas_set_num_threads(found);
}

TEST_CASE("rows of a matrix, some of them, and some of their columns") {
    Matrix matrix = counting({5, 7});
    const Rows all = rows_of(matrix), some = all.rows(2, 3), part = some.columns(4, 2);
    CHECK((all.count == 5 && all.width == 7 && all.stride == 7));
    CHECK((some.count == 3 && some.width == 7));
    CHECK((part.count == 3 && part.width == 2));
    for (const auto [n, i] : every_index(3, 2)) CHECK(part[n][i] == matrix(2 + n, 4 + i));
    CHECK(all[4].size() == 7);
    CHECK(part[0].size() == 2);
    const Rows same = all.columns(4, 2).rows(2, 3);
    CHECK((same.data == part.data && same.count == 3 && same.width == 2 && same.stride == 7));
    part[1][1] = -1;
    CHECK(matrix(3, 5) == -1);
    const ConstRows seen = part;
    CHECK(&seen[2][0] == &matrix(4, 4));
    CHECK((seen.count == 3 && seen.width == 2 && seen.stride == 7));
    const ConstRows whole = rows_of(std::as_const(matrix));
    CHECK(&whole[4][6] == &matrix(4, 6));
    CHECK((whole.count == 5 && whole.width == 7));
}

TEST_CASE("multiply_rows and multiply: sums of products, over what was there or added to it") {
    Generator generator(12);
    for (const auto& sizes : std::vector<std::array<std::size_t, 3>>{
             {1, 1, 1}, {3, 5, 7}, {1, 70, 65}, {70, 65, 130}, {64, 64, 64}, {2, 1, 3}}) {
        const std::size_t N = sizes[0], K = sizes[1], M = sizes[2];
        // Parts of wider matrices: rows with gaps between them.
        const Matrix a = randn({N + 1, K + 2}, generator), b = randn({M + 2, K + 3}, generator),
                     c = randn({K + 1, M + 4}, generator);
        const ConstRows left = rows_of(a).columns(2, K).rows(1, N);
        const ConstRows rows = rows_of(b).rows(2, M).columns(1, K);
        const ConstRows columns = rows_of(c).rows(1, K).columns(3, M);
        Matrix by_rows = xt::zeros<Real>({N, M}), by_columns = by_rows;
        for (const auto& [n, m] : every_index(N, M)) {
            double row_sum = 0, column_sum = 0;
            for (std::size_t k = 0; k < K; ++k) {
                row_sum += double(a(1 + n, 2 + k)) * double(b(2 + m, 1 + k));
                column_sum += double(a(1 + n, 2 + k)) * double(c(1 + k, 3 + m));
            }
            by_rows(n, m) = Real(row_sum);
            by_columns(n, m) = Real(column_sum);
        }

        Matrix memory = xt::ones<Real>({N + 2, M + 5}) * Real(77);
        const Rows result = rows_of(memory).rows(1, N).columns(2, M);
        const auto check = [&](const Matrix& expected) {
            for (const auto& [n, m] : every_index(N + 2, M + 5)) {
                const bool inside = n >= 1 && n <= N && m >= 2 && m < M + 2;
                const Real wanted = inside ? expected(n - 1, m - 2) : 77;
                CHECK(std::abs(memory(n, m) - wanted) <= 1e-4);
            }
        };
        for (std::size_t n = 0; n < N; ++n) std::ranges::fill(result[n], std::nanf(""));
        multiply_rows(left, rows, result);
        check(by_rows);
        multiply_rows(left, rows, result, Old::keep);
        check(by_rows * Real(2));
        multiply_rows(left, rows, result, Old::replace);
        check(by_rows);
        for (std::size_t n = 0; n < N; ++n) std::ranges::fill(result[n], std::nanf(""));
        multiply(left, columns, result);
        check(by_columns);
        multiply(left, columns, result, Old::keep);
        check(by_columns * Real(2));
        multiply(left, columns, result, Old::replace);
        check(by_columns);
    }
}

TEST_CASE("multiply_rows and multiply name the sizes that do not fit") {
    const Matrix a = counting({2, 3}), b = counting({4, 3}), c = counting({3, 4});
    Matrix right = counting({2, 4}), narrow = counting({2, 3}), tall = counting({3, 4});
    const auto refused = [](auto function, const Matrix& x, const Matrix& y, Matrix& result,
                            const std::string& message) {
        CHECK_THROWS_WITH_AS(function(rows_of(x), rows_of(y), rows_of(result), Old::replace),
                             message.c_str(), ShapeError);
    };
    CHECK_NOTHROW(multiply_rows(rows_of(a), rows_of(b), rows_of(right)));
    CHECK_NOTHROW(multiply(rows_of(a), rows_of(c), rows_of(right)));
    refused(multiply_rows, a, c, right, "product: (2, 3) and (4, 3) do not make (2, 4)");
    refused(multiply_rows, a, b, narrow, "product: (2, 3) and (3, 4) do not make (2, 3)");
    refused(multiply_rows, a, b, tall, "product: (2, 3) and (3, 4) do not make (3, 4)");
    refused(multiply, a, b, right, "product: (2, 3) and (4, 3) do not make (2, 4)");
    refused(multiply, a, c, narrow, "product: (2, 3) and (3, 4) do not make (2, 3)");
    refused(multiply, a, c, tall, "product: (2, 3) and (3, 4) do not make (3, 4)");
}

TEST_CASE("asset names a file of this tree, model_folder a folder of this build") {
    CHECK(fs::path(asset("data/names.txt")).is_absolute());
    CHECK(is_file(asset("data/names.txt")));
    CHECK(is_folder(asset("data")));
    CHECK(!is_file(asset("data/names")));
    CHECK(lines_of(read_text(asset("data/names.txt"))).size() > 5000);
    CHECK(model_folder("a") == model_folder("") + "a");
    CHECK(fs::path(model_folder("a")).parent_path().filename() == "models");
}
