#include <bit>

#include "common/files/folder_lock.hpp"
#include "common/files/json_file.hpp"
#include "common/files/regex.hpp"
#include "common/files/safetensors.hpp"
#include "common/files/unicode.hpp"
#include "common/files/unicode_properties.hpp"
#include "tests/support/files.hpp"

using namespace llm;

TEST_CASE(
    "characters splits a text into code points and reports the first byte that is not UTF-8") {
    CHECK(characters("aü中\U0001F600") ==
          std::vector<std::string>{"a", "ü", "中", "\U0001F600"});
    CHECK(characters("").empty());
    CHECK(characters(std::string("\0a", 2)).size() == 2);
    for (const std::string bad : {"ab\xff", "ab\xc3", "ab\xed\xa0\x80", "ab\xc0\x80"})
        CHECK_THROWS_WITH_AS(characters(bad), "the text is not UTF-8 at byte 2", TextError);
    CHECK(character(0x120) == "Ġ");
    CHECK(character('x') == "x");
}

TEST_CASE("composed merges a letter and its combining accent") {
    CHECK(composed("e\u0301 u\u0308") == "é ü");
    CHECK(composed("plain é") == "plain é");
    CHECK(composed("").empty());
    CHECK(composed(std::string("a\0e\u0301", 5)) == std::string("a\0é", 4));
    CHECK_THROWS_AS(composed("\xff"), TextError);
}

TEST_CASE("decomposed writes accents apart, compatibility_decomposed also ligatures") {
    CHECK(decomposed("é \ufb01") == "e\u0301 \ufb01");
    CHECK(compatibility_decomposed("é \ufb01½") == "e\u0301 fi1\u20442");
    CHECK_THROWS_AS(compatibility_decomposed("a\xff"), TextError);
}

TEST_CASE("ascii_runs: a text in turns of ASCII and other characters") {
    using Texts = std::vector<std::string>;
    CHECK(ascii_runs("") == Texts{});
    CHECK(ascii_runs("ab") == Texts{"ab"});
    CHECK(ascii_runs("é中a\x7f\u0080b") == Texts{"é中", "a\x7f", "\u0080", "b"});
    CHECK_THROWS_WITH_AS(ascii_runs("a\xff"), "the text is not UTF-8 at byte 1", TextError);
    CHECK(is_ascii("a\x7f"));
    CHECK_FALSE(is_ascii("a\u0080"));
    CHECK(lower_case("AZ[@ÀaZ\u0130Q") == "az[@àazi\u0307q");
}

TEST_CASE("graphemes: what a reader takes for one character") {
    using Texts = std::vector<std::string>;
    CHECK(graphemes("ae\u0301\u0323b\r\n\n") == Texts{"a", "e\u0301\u0323", "b", "\r\n", "\n"});
    CHECK(graphemes("\n\u0301 \u0301") == Texts{"\n", "\u0301", " \u0301"});
    CHECK(graphemes("\U0001F468\u200d\U0001F469x") == Texts{"\U0001F468\u200d\U0001F469", "x"});
    CHECK(graphemes("\u0600e\u0301") == Texts{"\u0600e\u0301"});
    CHECK(graphemes("").empty());
}

TEST_CASE("strip removes the white space of Python's str.strip from both ends, nothing else") {
    for (const int space :
         {0x9,    0xa,    0xb,    0xc,    0xd,    0x1c,   0x1d,   0x1e,   0x1f,   0x20,
          0x85,   0xa0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006,
          0x2007, 0x2008, 0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000}) {
        CAPTURE(space);
        const std::string s = character(char32_t(space));
        CHECK(strip(s + "a" + s + "é" + s + s) == "a" + s + "é");
        CHECK(strip(s).empty());
    }
    for (const int other : {0x1b, 0x180e, 0x200b, 0x2060, 0xfeff})
        CHECK(strip(character(char32_t(other))) == character(char32_t(other)));
    CHECK_THROWS_AS(strip("\xff"), TextError);
}

TEST_CASE("replace_invalid_utf8: one U+FFFD for each maximal subpart of a character") {
    // Tables 3-8 to 3-11 of the Unicode standard.
    const std::string r = "\ufffd";
    CHECK(replace_invalid_utf8("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41") ==
          r + r + r + r + r + r + r + r + "A");
    CHECK(replace_invalid_utf8("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41") ==
          r + r + r + r + r + r + r + r + "A");
    CHECK(replace_invalid_utf8("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42") ==
          r + r + r + r + r + "A" + r + r + "B");
    CHECK(replace_invalid_utf8("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41") == r + r + r + r + "A");
    CHECK(replace_invalid_utf8("\xf1\x80\x80") == r);
    CHECK(replace_invalid_utf8("\xf1\x80\x80\xf1\x80\x80\x80é") == r + "\xf1\x80\x80\x80é");
    CHECK(replace_invalid_utf8("aü中\U0001F600") == "aü中\U0001F600");
    CHECK(replace_invalid_utf8("").empty());
}

TEST_CASE("incomplete_at_end: the bytes of a character that other bytes can complete") {
    CHECK(incomplete_at_end("") == 0);
    CHECK(incomplete_at_end("a") == 0);
    CHECK(incomplete_at_end("é") == 0);
    CHECK(incomplete_at_end("aé中\U0001F600") == 0);
    CHECK(incomplete_at_end("a\xc3") == 1);
    CHECK(incomplete_at_end("a\xe2\x82") == 2);
    CHECK(incomplete_at_end("\xe2\xe2") == 1);
    CHECK(incomplete_at_end("a\xf0\x9f\x98") == 3);
    CHECK(incomplete_at_end("\x80\x80\x80\x80") == 0);
    CHECK(incomplete_at_end("a\xe0\x80") == 0);  // an overlong form
    CHECK(incomplete_at_end("a\xff") == 0);
}

TEST_CASE("overlap_length: the longest end of a text with which the next one begins") {
    CHECK(overlap_length("a<tool", "<tool_call>") == 5);
    CHECK(overlap_length("<to<to", "<to<too") == 6);
    CHECK(overlap_length("<to<to<", "<to<too") == 4);
    CHECK(overlap_length("aab", "aac") == 0);
    CHECK(overlap_length("aaa", "aab") == 2);
    CHECK(overlap_length("xab", "ab") == 2);  // all of it
    CHECK(overlap_length("", "ab") == 0);
    CHECK(overlap_length("ab", "") == 0);
}

TEST_CASE("take_printable keeps the beginning of a character until it is complete or wrong") {
    const auto taken = [](std::string bytes, bool at_end) {
        const std::string printable = take_printable(bytes, at_end);
        return std::pair{printable, bytes};
    };
    using Result = std::pair<std::string, std::string>;
    CHECK(taken("a\xe4\xb8", false) == Result{"a", "\xe4\xb8"});
    CHECK(taken("a\xe4\xb8", true) == Result{"a\ufffd", ""});
    CHECK(taken("\xe4\xb8x", false) == Result{"\ufffdx", ""});
    CHECK(taken("\xb8", false) == Result{"\ufffd", ""});
    CHECK(taken("\xe0\x80", false) == Result{"\ufffd\ufffd", ""});  // an overlong form
    CHECK(taken("\xf0\x9f\x98", false) == Result{"", "\xf0\x9f\x98"});
    CHECK(taken("\x1b\t\n", false) == Result{"?\t\n", ""});
}

TEST_CASE("replaced replaces each occurrence, from left to right") {
    CHECK(replaced("a b c", " ", "▁") == "a▁b▁c");
    CHECK(replaced("aaa", "aa", "b") == "ba");
    CHECK(replaced("abc", "x", "y") == "abc");
}

TEST_CASE("escaped makes control characters and invalid bytes visible") {
    CHECK(escaped("a\n\t\x1b[2J\xff ü\x7f\u0085") == "a\\n\\t\\x1b[2J\\xff ü\\x7f\\xc2\\x85");
}

TEST_CASE("a pattern supports Unicode, reports where it matches, and limits its search") {
    using Ends = std::vector<std::pair<std::size_t, std::size_t>>;
    CHECK(Pattern(R"(\p{L}+|\s)").matches("aü 中!") == Ends{{0, 3}, {3, 4}, {4, 7}});
    CHECK(Pattern("x*").matches("axxb") == Ends{{0, 0}, {1, 3}, {4, 4}});
    CHECK(Pattern("x*").matches("üb") == Ends{{0, 0}, {2, 2}, {3, 3}});
    CHECK(Pattern("x*").matches("").empty());
    CHECK(Pattern("x+").replace_all("xaüxxb", "yz") == "yzaüyzb");
    CHECK(Pattern("a").matches("").empty());
    CHECK_THROWS_AS(Pattern("(a"), TextError);
    CHECK_THROWS_AS(Pattern(R"(\C)"), TextError);
    CHECK_THROWS_AS(Pattern("a").matches("\xff"), TextError);
    CHECK_THROWS_AS(Pattern("(a+)+$").matches(std::string(50, 'a') + "b"), TextError);
    CHECK_THROWS_AS(Pattern(R"(a\Kb)").matches("abab\xff"), TextError);
    const std::size_t million = 1'000'000;
    CHECK(Pattern(R"(\s*[\r\n]+|\s+(?!\S)|\s+)").matches(std::string(million, ' ') + "x") ==
          Ends{{0, million - 1}, {million - 1, million}});
}

TEST_CASE("parse_json keeps the digits of large integers, and rejects zero bytes") {
    for (const std::string text :
         {"18446744073709551615", "-9223372036854775809", "9223372036854775807",
          "[1000000000000000019884624838656]", "{\"a\":1e+30}"}) {
        CHECK(json_text(parse_json(text, "text")) == text);
        CHECK(json_text(Json(parse_json(text, "text"))) == text);
    }
    CHECK(spaced_json_text(parse_json("{\"a\":[1,{\"b\":18446744073709551615}]}", "text")) ==
          "{\"a\": [1, {\"b\": 18446744073709551615}]}");
    CHECK(parse_json("18446744073709551616", "text").number() == 18446744073709551616.0);
    CHECK_FALSE(parse_json("18446744073709551616", "text") ==
                parse_json("18446744073709551617", "text"));
    CHECK(parse_json("1", "text") == parse_json("1.0", "text"));
    // The parser alone would take a zero byte for the end of the text.
    CHECK_THROWS_WITH_AS(parse_json(std::string("{}\n\0", 4), "FILE"),
                         "FILE: a zero byte at line 2, column 1", FileError);
    CHECK_THROWS_AS(parse_json(std::string("{\0}", 3), "FILE"), FileError);
}

TEST_CASE("JsonFile reads nested objects, ids and lists of strings") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.json";
    overwrite(file, R"({"one": {"two": [{"id": 3}, {"id": [4, 5]}], "names": {"b.c": 7, "a": 8},
                       "pairs": ["x y", ["z", "w"]], "bad": [1], "huge": 4294967296,
                       "largest size": 16777216, "larger": 16777217}})");
    const JsonFile one = JsonFile(file).object("one");
    CHECK(one.objects("two")[0].ids("id") == std::vector<Id>{3});
    CHECK(one.objects("two")[1].ids("id") == std::vector<Id>{4, 5});
    CHECK(one.ids_by_name("names") ==
          std::vector<std::pair<std::string, Id>>{{"a", 8}, {"b.c", 7}});
    CHECK(one.text_lists("pairs") ==
          std::vector<std::vector<std::string>>{{"x y"}, {"z", "w"}});
    const auto rejected = [&](const auto& call, const std::string& message) {
        CHECK_THROWS_WITH_AS(call(), (file.string() + ": " + message).c_str(), FileError);
    };
    rejected([&] { one.objects("two")[1].text("id"); },
             "one.two.1.id must be a text, not a list");
    rejected([&] { one.object("three"); }, "one.three is missing");
    rejected([&] { one.objects("names"); }, "one.names must be a list");
    rejected([&] { one.objects("bad"); }, "one.bad.0 must be an object");
    rejected([&] { one.text_lists("bad"); }, "one.bad must hold texts, not 1");
    rejected([&] { one.ids("huge"); },
             "one.huge must hold whole numbers from 0 to 2147483647, not 4294967296");
    CHECK(one.size("largest size") == 16777216);
    rejected([&] { one.size("larger"); },
             "one.larger must be a whole number from 1 to 16777216, not 16777217");
    rejected([&] { one.reject("there is no token x"); }, "one: there is no token x");
    rejected([&] { one.objects("two")[1].reject("a reason"); }, "one.two.1: a reason");
    rejected([&] { one.reject("bad", "is wrong"); }, "one.bad is wrong");
    rejected([&] { JsonFile(file).reject("a reason"); }, "a reason");
    rejected([&] { JsonFile(file).reject("one", "is wrong"); }, "one is wrong");
}

namespace {

// Writes a float32 to a bfloat16 file and returns the upper 16 bits of the value that is read.
std::uint32_t to_bf16_bits(std::uint32_t bits) {
    const Scratch scratch;
    const fs::path file = scratch.folder / "one.safetensors";
    const Vector value{std::bit_cast<float>(bits)};
    write_safetensors(file, {named("value", value)}, DType::bfloat16);
    const auto read = std::bit_cast<std::uint32_t>(SafeTensors(file).read("value", {1})(0));
    CHECK((read & 0xFFFF) == 0);
    return read >> 16;
}

}  // namespace

TEST_CASE("bfloat16 rounds to the nearest value, ties to even") {
    CHECK(to_bf16_bits(0x3F800000) == 0x3F80);  // 1 is exact
    CHECK(to_bf16_bits(0x3F807FFF) == 0x3F80);  // less than half: down
    CHECK(to_bf16_bits(0x3F808000) == 0x3F80);  // a tie: down, to even
    CHECK(to_bf16_bits(0x3F808001) == 0x3F81);  // more than half: up
    CHECK(to_bf16_bits(0x3F817FFF) == 0x3F81);
    CHECK(to_bf16_bits(0x3F818000) == 0x3F82);  // a tie: up, to even
    CHECK(to_bf16_bits(0xBF818000) == 0xBF82);  // negative values, too
    CHECK(to_bf16_bits(0x3FFFFFFF) == 0x4000);  // almost 2 becomes 2: a carry into the exponent
    CHECK(to_bf16_bits(0x00000000) == 0x0000);
    CHECK(to_bf16_bits(0x80000000) == 0x8000);  // negative zero
    CHECK(to_bf16_bits(0x00018000) == 0x0002);  // subnormal values
    CHECK(to_bf16_bits(0x7F7F7FFF) == 0x7F7F);  // the largest value that stays finite
}

TEST_CASE(
    "write_safetensors: a bfloat16 file has half the size and keeps names, shapes and order") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.safetensors";
    const Matrix matrix{{1, 2, 3}, {4, 5, -0.5}};
    const Vector vector{7, 1.00390625};  // 1 + 2^-8: halfway between two bfloat16 values
    const std::vector<NamedTensor> tensors = {named("b", matrix), named("a", vector)};
    write_safetensors(file, tensors, DType::bfloat16);
    CHECK(
        mentions(content(file), R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]})"));
    CHECK(
        mentions(content(file), R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]})"));
    const SafeTensors read(file);
    CHECK_CLOSE(read.read("b", {2, 3}), matrix, 0);
    CHECK_CLOSE(read.read("a", {2}), (Vector{7, 1}), 0);
    CHECK_THROWS_AS(read.read("b", {3, 2}), FileError);

    const auto header_size = [&] {
        std::uint64_t size = 0;
        content(file).copy(reinterpret_cast<char*>(&size), 8);
        return size;
    };
    CHECK(fs::file_size(file) == 8 + header_size() + 16);
    CHECK(header_size() % 8 == 0);  // so that the tensors are aligned
    CHECK(mentions(content(file), R"("__metadata__":{"format":"pt"})"));  // for transformers

    write_safetensors(file, tensors);
    CHECK(
        mentions(content(file), R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})"));
    CHECK(fs::file_size(file) == 8 + header_size() + 32);
    CHECK_CLOSE(SafeTensors(file).read("a", {2}), vector, 0);
    CHECK(!fs::exists(file.string() + ".part"));
}

TEST_CASE("SafeTensors opens a file by its path and returns the size of a vector") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "run.safetensors";
    const Matrix matrix{{1, 2, 3}, {4, 5, 6}};
    const Vector vector{7, 8, 9, 10};
    write_safetensors(file, {named("matrix", matrix), named("vector", vector)});
    const SafeTensors tensors(file);
    CHECK(tensors.has("matrix"));
    CHECK(!tensors.has("model"));
    CHECK(tensors.size_of("vector") == 4);
    CHECK_THROWS_WITH_AS(
        tensors.size_of("matrix"),
        (file.string() + ": tensor matrix with one dimension is missing").c_str(), FileError);
    CHECK_THROWS_WITH_AS(
        tensors.size_of("other"),
        (file.string() + ": tensor other with one dimension is missing").c_str(), FileError);
    CHECK_THROWS_AS(SafeTensors(scratch.folder / "none.safetensors"), FileError);
}

TEST_CASE("read_text returns the whole file or reports in one line why it is not text") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.txt";
    const auto rejected = [&](const std::string& bytes, const std::string& message) {
        overwrite(file, bytes);
        CHECK_THROWS_WITH_AS(read_text(file), (file.string() + message).c_str(), FileError);
    };
    for (const std::string good : {"x", "one\r\ntwo\n\n", "\tcafé 中\U0001F600\n\ufeff"}) {
        overwrite(file, good);
        CHECK(read_text(file) == good);
    }
    rejected("", " is empty");
    rejected(std::string("ab\0c", 4), ": no text: byte 2 is 0");
    rejected("é\xff", ": no text: byte 2 is no UTF-8");
    rejected("abc\xc3", ": no text: byte 3 is no UTF-8");
    CHECK_THROWS_WITH_AS(read_text(scratch.folder),
                         (scratch.folder.string() + " is not a file").c_str(), FileError);
    const fs::path none = scratch.folder / "none";
    CHECK_THROWS_WITH_AS(read_text(none), ("cannot read " + none.string()).c_str(), FileError);
}

TEST_CASE("read_text accepts 64 million bytes and rejects one more") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "zeros";
    overwrite(file, "");
    const auto rejection = [&](std::size_t size) {
        fs::resize_file(file, size);  // a sparse file: uses no disk space
        try {
            read_text(file);
        } catch (const FileError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(rejection(64'000'000) == file.string() + ": no text: byte 0 is 0");
    CHECK(rejection(64'000'001) ==
          file.string() + ": 64000001 bytes are too many; a text may have 64000000");
}

TEST_CASE("lines_of splits at line terminators, which the last line may lack") {
    using Lines = std::vector<std::string>;
    CHECK(lines_of("a\nb\n") == Lines{"a", "b"});
    CHECK(lines_of("a\nb") == Lines{"a", "b"});
    CHECK(lines_of("\na\n\n\nb") == Lines{"", "a", "", "", "b"});
    CHECK(lines_of("\n") == Lines{""});
    CHECK(lines_of("").empty());
}

TEST_CASE("split_at_spaces returns the parts between spaces and line ends") {
    using Parts = std::vector<std::string>;
    CHECK(split_at_spaces("<|a|> <|b|>") == Parts{"<|a|>", "<|b|>"});
    CHECK(split_at_spaces("  x\n\ty  ") == Parts{"x", "y"});
    CHECK(split_at_spaces("ä") == Parts{"ä"});
    CHECK(split_at_spaces(" \n").empty());
}

TEST_CASE("asset returns a path of the source tree, model_folder a path of the build folder") {
    CHECK(fs::path(asset("data/names.txt")).is_absolute());
    CHECK(is_file(asset("data/names.txt")));
    CHECK(is_folder(asset("data")));
    CHECK(!is_file(asset("data/names")));
    CHECK(lines_of(read_text(asset("data/names.txt"))).size() > 5000);
    CHECK(model_folder("a") == model_folder("") + "a");
    CHECK(fs::path(model_folder("a")).parent_path().filename() == "models");
}

TEST_CASE("a folder is locked as long as the lock lives") {
    const Scratch scratch;
    const std::filesystem::path folder = scratch.folder / "run";
    {
        const FolderLock lock(folder);
        CHECK_THROWS_WITH_AS(
            FolderLock{folder},
            (folder.string() + ": another run is writing to this folder").c_str(), FileError);
        const FolderLock other(scratch.folder / "other");
    }
    const FolderLock again(folder);
    CHECK_THROWS_WITH_AS(FolderLock{"/dev/null/x"},
                         "cannot create /dev/null/x: Not a directory", FileError);
}

TEST_CASE("what cannot be written is said with the reason, and leaves nothing") {
    const Scratch scratch;
    const std::filesystem::path folder = scratch.folder / "folder",
                                missing = folder / "a" / "b";
    make_folder(folder / "full");
    const std::string no_folder =
        "cannot write " + missing.string() + ": No such file or directory";
    CHECK_THROWS_WITH_AS(write_text_file(missing, "x"), no_folder.c_str(), FileError);
    CHECK_THROWS_WITH_AS(append_to_file(missing, "x"), no_folder.c_str(), FileError);
    CHECK_THROWS_WITH_AS(check_writable(missing), no_folder.c_str(), FileError);
    CHECK_THROWS_WITH_AS(
        write_text_file(folder / "full", "x"),
        ("cannot write " + (folder / "full").string() + ": Is a directory").c_str(), FileError);
    check_writable(folder / "new");
    CHECK(files_in(folder).empty());
}

TEST_CASE(
    "Json: numbers are equal if their values are, objects if their members are in order") {
    CHECK(Json(1) == Json(1.0));
    CHECK(Json(0) == Json(-0.0));
    CHECK_FALSE(Json(1) == Json(true));
    CHECK_FALSE(Json(1) == Json("1"));
    CHECK(Json(JsonArray{1, "a"}) == parse_json(R"([1.0, "a"])", "text"));
    CHECK(Json(JsonObject{{"a", 1}, {"b", nullptr}}) ==
          parse_json(R"({"a": 1, "b": null})", "text"));
    CHECK_FALSE(Json(JsonObject{{"a", 1}}) == Json(JsonObject{{"a", 2}}));
    CHECK_FALSE(Json(JsonArray{}) == Json(JsonObject{}));
}
