#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "common/files/gguf.hpp"
#include "common/tensors/dtype.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

const std::array types_in_files = {DType::float32, DType::float16, DType::bfloat16,
                                   DType::q8_0,    DType::q4_0,    DType::q5_0,
                                   DType::q4_k,    DType::q6_k};

// The bytes of a GGUF file, in the order in which they are appended.
struct Bytes {
    std::string text;

    template <class T>
    Bytes& number(T number) {
        text.append(reinterpret_cast<const char*>(&number), sizeof number);
        return *this;
    }
    Bytes& u32(std::uint32_t value) { return number(value); }
    Bytes& u64(std::uint64_t value) { return number(value); }
    Bytes& name(const std::string& name) {
        u64(name.size());
        text += name;
        return *this;
    }
    Bytes& key(const std::string& key, std::uint32_t type) { return name(key).u32(type); }
    // A tensor's entry: sizes as in the file, the last axis first.
    Bytes& tensor(const std::string& tensor, const std::vector<std::uint64_t>& sizes,
                  std::uint32_t type, std::uint64_t offset) {
        name(tensor).u32(static_cast<std::uint32_t>(sizes.size()));
        for (const std::uint64_t size : sizes) u64(size);
        return u32(type).u64(offset);
    }
    Bytes& data(std::size_t size, std::size_t alignment = 32) {
        text.resize((text.size() + alignment - 1) / alignment * alignment);
        text.append(size, '\0');
        return *this;
    }
};

Bytes file_with(std::uint64_t num_tensors, std::uint64_t num_keys, std::uint32_t version = 3) {
    Bytes bytes{"GGUF"};
    return bytes.u32(version).u64(num_tensors).u64(num_keys);
}

// The error message of calls on a file with these bytes.
std::string rejection(
    const Bytes& bytes, const std::function<void(const Gguf&)>& call = [](const Gguf&) {}) {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.gguf";
    overwrite(file, bytes.text);
    try {
        call(Gguf(file));
        return "it was read";
    } catch (const FileError& error) {
        const std::string line = error.what();
        const std::string begin = file.string() + ": ";
        CHECK(line.substr(0, begin.size()) == begin);
        return line.substr(begin.size());
    }
}

std::string types_file() { return fixture_path("gguf/types.gguf"); }

}  // namespace

TEST_CASE("dequantize_row: the weights of every type are llama.cpp's, bit for bit") {
    // Two rows of quantized weights, and one of arbitrary bits.
    const Gguf file(types_file());
    for (const std::string type :
         {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q4_K", "Q6_K"}) {
        INFO(type);
        const Matrix weights = file.read(type, {3, 512});
        CHECK_CLOSE(weights, fixture<2>("gguf/" + type), 0);
    }
    for (const DType dtype : types_in_files) {
        std::size_t tensors = 0;
        for (const auto& [name, tensor] : file.tensors()) tensors += tensor.dtype == dtype;
        CHECK(tensors == 1);
    }
}

TEST_CASE("dequantize_row: one block of each type by hand") {
    const auto dequantized = [](DType dtype, const Bytes& block) {
        std::vector<Real> weights(block_size(dtype));
        CHECK(block.text.size() == bytes_per_block(dtype));
        dequantize_row(dtype, std::as_bytes(std::span(block.text)), weights);
        return weights;
    };
    const std::uint16_t two = 0x4000, half = 0x3800;  // in float16
    Bytes q8_0 = Bytes().number(half);
    for (int i = 0; i < 32; ++i) q8_0.number(static_cast<std::int8_t>(i == 31 ? -128 : i));
    CHECK(dequantized(DType::q8_0, q8_0)[5] == 2.5f);
    CHECK(dequantized(DType::q8_0, q8_0)[31] == -64);

    // Byte i holds weight i in its low half and weight 16 + i in its high half.
    Bytes q4_0 = Bytes().number(half);
    for (std::uint32_t i = 0; i < 16; ++i) q4_0.number(static_cast<std::uint8_t>(i + 16 * 3));
    CHECK(dequantized(DType::q4_0, q4_0)[1] == -3.5f);   // (1 - 8) / 2
    CHECK(dequantized(DType::q4_0, q4_0)[17] == -2.5f);  // (3 - 8) / 2

    // The fifth bits of weights 1 and 17 are set.
    Bytes q5_0 = Bytes().number(two).u32(1u << 1 | 1u << 17);
    for (std::uint32_t i = 0; i < 16; ++i) q5_0.number(static_cast<std::uint8_t>(i + 16 * 3));
    CHECK(dequantized(DType::q5_0, q5_0)[1] == 2);     // 2 * (1 + 16 - 16)
    CHECK(dequantized(DType::q5_0, q5_0)[2] == -28);   // 2 * (2 - 16)
    CHECK(dequantized(DType::q5_0, q5_0)[17] == 6);    // 2 * (3 + 16 - 16)
    CHECK(dequantized(DType::q5_0, q5_0)[18] == -26);  // 2 * (3 - 16)

    // Scale 5 and min 7 of group 1; scale 1 + 16 * 2 and min 3 + 16 * 1 of group 5.
    Bytes q4_k = Bytes().number(two).number(half);
    std::array<std::uint8_t, 12> packed{};
    packed[1] = 5 + 64 * 2;
    packed[5] = 7 + 64 * 1;
    packed[9] = 1 + 16 * 3;
    for (const std::uint8_t byte : packed) q4_k.number(byte);
    q4_k.text.append(128, '\x42');
    CHECK(dequantized(DType::q4_k, q4_k)[31] == 0);
    CHECK(dequantized(DType::q4_k, q4_k)[32] == 2 * 5 * 4 - 7 * 0.5f);
    CHECK(dequantized(DType::q4_k, q4_k)[160] == 2 * 33 * 4 - 19 * 0.5f);

    // Weight 200 is in the second half, in run 2: low bits in byte 64 + 8, upper ones in byte
    // 32 + 8, scale 12.
    Bytes q6_k;
    q6_k.text.resize(208);
    q6_k.text[64 + 8] = '\x50';         // the high half: 5
    q6_k.text[128 + 32 + 8] = '\x30';   // bits 4 and 5: 3
    q6_k.text[128 + 64 + 12] = '\xfd';  // -3
    q6_k.number(half);
    CHECK(dequantized(DType::q6_k, q6_k)[200] == 0.5f * -3 * (5 + 48 - 32));
    CHECK(dequantized(DType::q6_k, q6_k)[201] == 0.5f * -3 * -32);
    CHECK(dequantized(DType::q6_k, q6_k)[208] == 0);  // scale 13 is 0
}

TEST_CASE("bytes_per_row: whole blocks only") {
    const std::array<std::size_t, 8> bytes = {2048, 1024, 1024, 544, 288, 352, 288, 420};
    for (std::size_t i = 0; i < types_in_files.size(); ++i)
        CHECK(bytes_per_row(types_in_files[i], 512) == bytes[i]);
    CHECK(bytes_per_row(DType::float16, 3) == 6);
    CHECK_THROWS_WITH_AS(bytes_per_row(DType::q4_k, 192),
                         "q4_k: a row of 192 weights does not consist of blocks of 256",
                         ValueError);
}

TEST_CASE("Gguf reads metadata of all types, and rejects another type than the expected one") {
    Bytes bytes = file_with(0, 17, 2);
    bytes.key("u8", 0).number(std::uint8_t{200}).key("i8", 1).number(std::int8_t{-3});
    bytes.key("u16", 2).number(std::uint16_t{60000}).key("i16", 3).number(std::int16_t{-4});
    bytes.key("u32", 4).u32(4000000000).key("i32", 5).number(std::int32_t{-5});
    bytes.key("u64", 10).u64(1ull << 40).key("i64", 11).number(std::int64_t{-6});
    bytes.key("largest size", 4).u32(1 << 24).key("larger", 4).u32((1 << 24) + 1);
    bytes.key("f32", 6).number(0.5f).key("f64", 12).number(0.1);
    bytes.key("yes", 7).number(std::uint8_t{1}).key("name", 8).name("a\nb");
    bytes.key("flags", 9).u32(7).u64(2).number(std::uint8_t{1}).number(std::uint8_t{0});
    bytes.key("scores", 9).u32(6).u64(2).number(-1.5f).number(2.0f);
    bytes.key("tokens", 9).u32(8).u64(2).name("x").name("");
    const Scratch scratch;
    overwrite(scratch.folder / "a.gguf", bytes.text);
    const Gguf file(scratch.folder / "a.gguf");
    const std::vector<std::pair<std::string, std::int64_t>> integers = {
        {"u8", 200},         {"i8", -3},  {"u16", 60000},     {"i16", -4},
        {"u32", 4000000000}, {"i32", -5}, {"u64", 1ll << 40}, {"i64", -6}};
    for (const auto& [key, value] : integers) CHECK(file.integer(key) == value);
    CHECK(file.number("f32") == 0.5);
    CHECK(file.number("f64") == 0.1);
    CHECK(file.number("i16") == -4);
    CHECK(file.boolean("yes"));
    CHECK(file.text("name") == "a\nb");
    CHECK(file.numbers("scores") == std::vector<double>{-1.5, 2});
    CHECK(file.texts("tokens") == std::vector<std::string>{"x", ""});
    CHECK(file.size("u8") == 200);
    CHECK(file.size("largest size") == 16777216);
    CHECK(file.has("u8"));
    CHECK_FALSE(file.has("u9"));

    const auto rejected = [&](const auto& call, const std::string& message) {
        CHECK_THROWS_WITH_AS(call(), (file.path().string() + ": " + message).c_str(),
                             FileError);
    };
    rejected([&] { file.integer("u9"); }, "u9 is missing");
    rejected([&] { file.integer("f32"); }, "f32 must be an integer, not a number");
    rejected([&] { file.number("name"); }, "name must be a number, not a text");
    rejected([&] { file.text("yes"); }, "yes must be a text, not a boolean");
    rejected([&] { file.boolean("u8"); }, "u8 must be a boolean, not an integer");
    rejected([&] { file.texts("scores"); },
             "scores must be an array of texts, not an array of numbers");
    rejected([&] { file.integers("flags"); },
             "flags must be an array of integers, not an array of booleans");
    rejected([&] { file.numbers("tokens"); },
             "tokens must be an array of numbers, not an array of texts");
    rejected([&] { file.size("i8"); }, "i8 must be an integer from 1 to 16777216, not -3");
    rejected([&] { file.size("larger"); },
             "larger must be an integer from 1 to 16777216, not 16777217");
    rejected([&] { file.size("u32"); },
             "u32 must be an integer from 1 to 16777216, not 4000000000");
}

TEST_CASE("Gguf rejects other formats and versions by name") {
    CHECK(mentions(rejection({"GGML____________"}), "the header is not that of a GGUF file"));
    CHECK(mentions(rejection(file_with(0, 0, 1)),
                   "is of version 1 of GGUF; 2 and 3 can be read"));
    CHECK(mentions(rejection(file_with(0, 0, 4)),
                   "is of version 4 of GGUF; 2 and 3 can be read"));
    CHECK(
        mentions(rejection(file_with(0, 0, 0x03000000)), "is that of a big-endian GGUF file"));
    CHECK(rejection(file_with(0, 0)) == "it was read");
    CHECK(rejection(file_with(0, 0, 2)) == "it was read");
}

TEST_CASE("Gguf rejects damaged metadata and names the key") {
    const auto key = [](const std::string& name, std::uint32_t type) {
        return file_with(0, 1).key(name, type);
    };
    CHECK(rejection(file_with(0, 1)) == "a key of the metadata exceeds the end of the file");
    CHECK(rejection(file_with(0, 1).u64(1ull << 63)) ==
          "a key of the metadata exceeds the end of the file");
    CHECK(rejection(key("", 4).u32(1)) == "a key of the metadata is empty");
    CHECK(rejection(key("a", 8).u64(~0ull)) == "a exceeds the end of the file");
    CHECK(rejection(key("a", 13).u32(0)) == "a has the unknown type 13");
    CHECK(rejection(key("a", 7).number(std::uint8_t{2})) ==
          "a must be a boolean, 0 or 1, not 2");
    CHECK(rejection(key("a", 10).u64(1ull << 63)) ==
          "a is 9223372036854775808; integers above 2^63 - 1 cannot be read");
    CHECK(rejection(key("a", 9).u32(9).u64(0)) ==
          "a is an array of arrays, which cannot be read");
    CHECK(rejection(key("a", 9).u32(99).u64(0)) == "a has the unknown type 99");
    for (const std::uint64_t count : {std::uint64_t{9}, ~std::uint64_t{0}})
        for (const std::uint32_t type : {0, 7, 8, 12})
            CHECK(rejection(key("a", 9).u32(type).u64(count)) ==
                  "a exceeds the end of the file");
    CHECK(rejection(key("a", 9).u32(4).u64(2).u32(1)) == "a exceeds the end of the file");
    CHECK(rejection(file_with(0, 2).key("a", 4).u32(1).key("a", 4).u32(1)) == "a occurs twice");
    CHECK(rejection(key("a", 6).number(std::numeric_limits<float>::infinity()),
                    [](const Gguf& file) { file.number("a"); }) == "a must be a finite number");
    const auto alignment = [&](std::uint32_t bytes) {
        return rejection(key("general.alignment", 4).u32(bytes));
    };
    for (const std::uint32_t bytes : {0u, 24u, 1u << 31})
        CHECK(
            mentions(alignment(bytes), "general.alignment must be a power of two up to 2^30"));
    CHECK(alignment(1) == "it was read");
    CHECK(alignment(64) == "it was read");
}

TEST_CASE("Gguf rejects damaged tensors and names them") {
    const auto one = [](const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                        std::uint64_t offset, std::size_t size) {
        return rejection(file_with(1, 0).tensor("w", sizes, type, offset).data(size));
    };
    CHECK(one({3, 2}, 0, 0, 24) == "it was read");
    CHECK(one({3, 2}, 0, 32, 56) == "it was read");
    CHECK(one({}, 0, 0, 24) == "tensor w has 0 dimensions; 1 to 4 are supported");
    CHECK(one({1, 1, 1, 1, 1}, 0, 0, 24) == "tensor w has 5 dimensions; 1 to 4 are supported");
    CHECK(one({3, 0}, 0, 0, 24) == "tensor w has a dimension of size 0");
    for (const auto& sizes : {std::vector{1ull << 32, 1ull << 32}, {~0ull}, {1ull << 62, 1ull}})
        CHECK(one({sizes.begin(), sizes.end()}, 0, 0, 24) ==
              "tensor w has more elements than memory can hold");
    CHECK(one({1ull << 60}, 12, 0, 24) ==
          "tensor w claims 648518346341351424 bytes from byte 0 of 24 bytes of data");
    CHECK(one({3, 2}, 0, 0, 23) == "tensor w claims 24 bytes from byte 0 of 23 bytes of data");
    CHECK(one({3, 2}, 0, 32, 24) ==
          "tensor w claims 24 bytes from byte 32 of 24 bytes of data");
    CHECK(one({3, 2}, 0, 32, 40) ==
          "tensor w claims 24 bytes from byte 32 of 40 bytes of data");
    CHECK(one({3, 2}, 0, ~0ull - 31, 24) ==
          "tensor w claims 24 bytes from byte 18446744073709551584 of 24 bytes of data");
    CHECK(one({3, 2}, 0, 4, 64) ==
          "tensor w begins at byte 4 of the data, not at a multiple of 32");
    CHECK(
        one({48, 2}, 8, 0, 200) ==
        "tensor w cannot be read: q8_0: a row of 48 weights does not consist of blocks of 32");
    CHECK(rejection(file_with(1, 0)) == "the name of a tensor exceeds the end of the file");
    CHECK(rejection(file_with(~0ull, ~0ull)) ==
          "a key of the metadata exceeds the end of the file");

    const auto two = [](const std::string& name, std::uint64_t offset) {
        Bytes bytes = file_with(2, 0).tensor("w", {16}, 0, 0);
        return rejection(bytes.tensor(name, {1}, 0, offset).data(100));
    };
    CHECK(two("v", 64) == "it was read");
    CHECK(two("w", 64) == "tensor w occurs twice");
    CHECK(two("v", 0) == "tensor w overlaps tensor v");
    CHECK(two("v", 32) == "tensor v overlaps another tensor");
}

TEST_CASE("Gguf rejects a tensor of another type by name, when it is needed") {
    Bytes bytes = file_with(2, 0).tensor("w", {32}, 17, 0);
    bytes.tensor("v", {32}, 99, 0).data(8);
    CHECK(rejection(bytes) == "it was read");
    CHECK(rejection(bytes,
                    [](const Gguf& file) {
                        CHECK(file.has_tensor("w"));
                        CHECK(file.tensors().empty());
                        file.read("w", {32});
                    }) ==
          "tensor w is of type IQ2_XS; F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q6_K and MXFP4 "
          "can be "
          "read");
    CHECK(mentions(rejection(bytes, [](const Gguf& file) { file.reject_other_types(); }),
                   "tensor v is of type number 99"));
}

TEST_CASE("Gguf::read rejects missing tensors, other shapes and elements that are not finite") {
    const Gguf file(types_file());
    const auto message = [&](const auto& call) -> std::string {
        try {
            call();
        } catch (const FileError& error) {
            return error.what();
        }
        return "";
    };
    CHECK(mentions(message([&] { file.read("Q2_K", {3, 512}); }), "tensor Q2_K is missing"));
    CHECK(mentions(message([&] {
                       file.read("Q4_K", {512, 3});
                   }),
                   "tensor Q4_K should have the shape (512, 3), it has (3, 512)"));
    CHECK(mentions(message([&] { file.read("Q4_K", {1536}); }), "should have the shape"));
    Bytes bytes = file_with(1, 0).tensor("w", {2}, 0, 0).data(0);
    bytes.number(1.0f).number(std::numeric_limits<float>::quiet_NaN());
    CHECK(rejection(bytes, [](const Gguf& read) { read.read("w", {2}); }) ==
          "tensor w has an element that is not finite");

    // read_bytes, too, in whichever row: the second scale of q8_0 is infinite.
    Bytes rows = file_with(1, 0).tensor("w", {32, 2}, 8, 0).data(34);
    rows.number(std::uint16_t{0x7c00}).text.append(32, '\1');
    CHECK(rejection(rows, [](const Gguf& read) { read.read_bytes("w", 2, 32); }) ==
          "tensor w has an element that is not finite");
}

TEST_CASE("Gguf::read: a matrix of one row may be stored as a vector") {
    Bytes bytes = file_with(1, 0).tensor("w", {2}, 0, 0).data(0).number(3.0f).number(4.0f);
    CHECK(rejection(bytes, [](const Gguf& file) {
              CHECK_CLOSE(file.read("w", {1, 2}), (Matrix{{3, 4}}), 0);
              file.read("w", {2, 1});
          }) == "tensor w should have the shape (2, 1), it has (2,)");
}

TEST_CASE("Gguf respects general.alignment") {
    Bytes bytes = file_with(2, 1).key("general.alignment", 4).u32(64);
    bytes.tensor("a", {1}, 0, 0).tensor("b", {1}, 0, 64).data(0, 64).number(5.0f);
    bytes.data(0, 64).number(6.0f);
    CHECK(rejection(bytes, [](const Gguf& file) {
              CHECK(file.read("a", {1})(0) == 5);
              CHECK(file.read("b", {1})(0) == 6);
          }) == "it was read");
    Bytes misplaced = file_with(1, 1).key("general.alignment", 4).u32(64);
    CHECK(mentions(rejection(misplaced.tensor("a", {1}, 0, 32).data(99, 64)),
                   "not at a multiple of 64"));
}

TEST_CASE("Gguf rejects a file that is cut off at any byte") {
    const std::string whole = content(fixture_path("gguf/llama.gguf"));
    for (std::size_t size = 4; size < whole.size() - 32; size += size < 1500 ? 1 : 97) {
        INFO(size);
        CHECK(rejection({whole.substr(0, size)}) != "it was read");
    }
}

TEST_CASE("write_gguf: metadata and tensors of all types are read again") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.gguf";
    const GgufMetadata metadata = {
        {"general.architecture", "test"},
        {"yes", true},
        {"small", std::int64_t{7}},
        {"negative", std::int64_t{-7}},
        {"large", std::int64_t{1} << 40},
        {"number", 0.25},
        {"flags", std::vector{true, false, true}},
        {"ids", std::vector<std::int64_t>{1, -2}},
        {"large_ids", std::vector<std::int64_t>{1, std::int64_t{1} << 40}},
        {"scores", std::vector{0.5, -1.5}},
        {"tokens", std::vector<std::string>{"a", "", "\n"}},
        {"none", std::vector<std::string>{}}};
    const Gguf source(types_file());
    std::vector<NamedGgufTensor> tensors;
    for (const auto& [name, tensor] : source.tensors()) tensors.push_back({name, tensor});
    const Vector vector{1, 2, 3};
    tensors.push_back(
        {"odd", {DType::float32, {3}, std::as_bytes(std::span(vector.data(), 3))}});
    write_gguf(file, metadata, tensors);

    const Gguf again(file);
    CHECK(is_gguf(file));
    CHECK(again.text("general.architecture") == "test");
    CHECK(again.boolean("yes"));
    CHECK(again.integer("small") == 7);
    CHECK(again.integer("negative") == -7);
    CHECK(again.integer("large") == std::int64_t{1} << 40);
    CHECK(again.number("number") == 0.25);
    CHECK(again.integers("ids") == std::vector<std::int64_t>{1, -2});
    CHECK(again.integers("large_ids")[1] == std::int64_t{1} << 40);
    CHECK(again.numbers("scores") == std::vector{0.5, -1.5});
    CHECK(again.texts("tokens") == std::vector<std::string>{"a", "", "\n"});
    CHECK(again.texts("none").empty());
    REQUIRE(again.tensors().size() == tensors.size());
    for (const NamedGgufTensor& written : tensors) {
        INFO(written.name);
        const GgufTensor& tensor = again.tensor(written.name);
        CHECK(tensor.dtype == written.tensor.dtype);
        CHECK(tensor.shape == written.tensor.shape);
        CHECK(std::ranges::equal(tensor.bytes, written.tensor.bytes));
    }
    CHECK(content(file).size() % 32 == 0);

    // llama.cpp reads sizes as uint32 (type 4) and floats as float32 (6).
    CHECK(mentions(content(file), Bytes().key("small", 4).u32(7).text));
    CHECK(mentions(content(file), Bytes().key("number", 6).number(0.25f).text));
    CHECK(mentions(content(file), Bytes().key("ids", 9).u32(5).u64(2).u32(1).text));
}

TEST_CASE("write_gguf rejects tensors whose bytes do not match, and then writes nothing") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.gguf";
    const std::vector<std::byte> bytes(100);
    const auto rejected = [&](DType dtype, const std::vector<std::size_t>& shape,
                              const std::string& message) {
        CHECK_THROWS_WITH_AS(write_gguf(file, {}, {{"w", {dtype, shape, bytes}}}),
                             (file.string() + ": " + message).c_str(), FileError);
        CHECK_FALSE(fs::exists(file));
    };
    rejected(DType::float32, {5, 6},
             "tensor w of shape (5, 6) and type float32 has 100 bytes, not 120");
    rejected(DType::q8_0, {48}, "q8_0: a row of 48 weights does not consist of blocks of 32");
    rejected(DType::float32, {},
             "tensor w of shape () must have 1 to 4 dimensions and no size of 0");
    rejected(DType::float32, {5, 0},
             "tensor w of shape (5, 0) must have 1 to 4 dimensions and no size of 0");
}

TEST_CASE("is_gguf: files that begin with GGUF") {
    const Scratch scratch;
    overwrite(scratch.folder / "other", "GGU");
    CHECK(is_gguf(types_file()));
    CHECK_FALSE(is_gguf(scratch.folder / "other"));
    CHECK_FALSE(is_gguf(scratch.folder / "missing"));
    CHECK_FALSE(is_gguf(scratch.folder));
}
