// FP8 weights in safetensors files. The fixtures are written bit by bit by
// tests/make/make_fp8_fixtures.py.
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>

#include "common/files/safetensors.hpp"
#include "common/tensors/float8.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

using BlockSize = std::optional<std::array<std::size_t, 2>>;

SafeTensors types_file(const BlockSize& block_size) {
    SafeTensors tensors(fixture_path("fp8/types.safetensors"));
    tensors.set_weight_block_size(block_size);
    return tensors;
}

// A file of one F8_E4M3 tensor of zeros, "w", and of scales of 1, "w_scale_inv"; a shape is a
// JSON list.
struct OneWeight {
    Scratch scratch;
    fs::path file = scratch.folder / "a.safetensors";
    OneWeight(const std::string& shape, std::size_t size, const std::string& scale_shape,
              std::size_t num_scales, const std::string& type = "F8_E4M3") {
        const std::string end = to_text(size + 4 * num_scales);
        const std::string scales = R"(, "w_scale_inv": {"dtype": "F32", "shape": )" +
                                   scale_shape + R"(, "data_offsets": [)" + to_text(size) +
                                   ", " + end + "]}";
        const std::string header = R"({"w": {"dtype": ")" + type + R"(", "shape": )" + shape +
                                   R"(, "data_offsets": [0, )" + to_text(size) + "]}" +
                                   (num_scales > 0 ? scales : "") + "}";
        const std::uint64_t length = header.size();
        std::string text(8, '\0');
        std::memcpy(text.data(), &length, 8);
        text += header + std::string(size, '\0');
        for (std::size_t i = 0; i < num_scales; ++i) text += std::string("\0\0\x80\x3f", 4);
        overwrite(file, text);
    }
    // The message without the name of the file.
    template <std::size_t N>
    std::string rejection(const std::size_t (&shape)[N],
                          const BlockSize& block_size = {{128, 128}}) const {
        SafeTensors tensors(file);
        tensors.set_weight_block_size(block_size);
        try {
            tensors.read("w", shape);
            return "it was read";
        } catch (const FileError& error) {
            return std::string(error.what()).substr(file.string().size() + 2);
        }
    }
};

}  // namespace

TEST_CASE("FP8: the values of the specification's tables") {
    const Float8Values &e4m3 = e4m3_values(), &e5m2 = e5m2_values();
    CHECK(e4m3[0x00] == 0);
    CHECK(e4m3[0x01] == std::exp2(-9.0f));           // the smallest subnormal number
    CHECK(e4m3[0x07] == 0.875f * std::exp2(-6.0f));  // the largest one
    CHECK(e4m3[0x08] == std::exp2(-6.0f));           // the smallest normal number
    CHECK(e4m3[0x38] == 1);
    CHECK(e4m3[0x7e] == 448);
    CHECK(e5m2[0x01] == std::exp2(-16.0f));
    CHECK(e5m2[0x03] == 0.75f * std::exp2(-14.0f));
    CHECK(e5m2[0x04] == std::exp2(-14.0f));
    CHECK(e5m2[0x3c] == 1);
    CHECK(e5m2[0x7b] == 57344);
    CHECK(e5m2[0x7c] == INFINITY);
    CHECK(e5m2[0xfc] == -INFINITY);
    for (std::size_t byte = 0; byte < 256; ++byte) {
        CAPTURE(byte);
        CHECK(std::isnan(e4m3[byte]) == (byte % 128 == 0x7f));
        CHECK(std::isnan(e5m2[byte]) == (byte % 128 > 0x7c));
        if (std::isnan(e4m3[byte]) || std::isnan(e5m2[byte])) continue;
        CHECK(e4m3[byte] == (byte < 128 ? 1 : -1) * e4m3[byte % 128]);
        CHECK(std::signbit(e4m3[byte]) == (byte >= 128));
        CHECK(std::signbit(e5m2[byte]) == (byte >= 128));
    }
}

TEST_CASE("SafeTensors: all finite values of both FP8 types, bit for bit") {
    const SafeTensors tensors = types_file({{128, 128}});
    const auto same_bits = [&](const std::string& name, std::size_t rows, std::size_t columns) {
        const Matrix read = tensors.read(name, {rows, columns});
        const Matrix expected = tensors.read("expected." + name, {rows, columns});
        for (auto [r, c] : every_index(rows, columns))
            CHECK(std::bit_cast<std::uint32_t>(read(r, c)) ==
                  std::bit_cast<std::uint32_t>(expected(r, c)));
    };
    same_bits("e4m3", 2, 127);
    same_bits("e5m2", 4, 62);
}

TEST_CASE("SafeTensors: an FP8 weight is its value times the scale of its block") {
    // Blocks of 128 × 128 are the default.
    const SafeTensors usual(fixture_path("fp8/types.safetensors"));
    CHECK_CLOSE(usual.read("wide.weight", {3, 257}),
                usual.read("expected.wide.weight", {3, 257}), 0);
    CHECK_CLOSE(usual.read("tall.weight", {129, 2}),
                usual.read("expected.tall.weight", {129, 2}), 0);
    const SafeTensors small_blocks = types_file({{5, 7}});
    CHECK_CLOSE(small_blocks.read("odd.weight", {12, 23}),
                small_blocks.read("expected.odd.weight", {12, 23}), 0);
    CHECK_CLOSE(small_blocks.read("experts", {3, 6, 8}),
                small_blocks.read("expected.experts", {3, 6, 8}), 0);
    const SafeTensors whole_matrices = types_file(std::nullopt);
    CHECK_CLOSE(whole_matrices.read("matrix.weight", {4, 6}),
                whole_matrices.read("expected.matrix.weight", {4, 6}), 0);
    CHECK_CLOSE(whole_matrices.read("matrices", {3, 4, 6}),
                whole_matrices.read("expected.matrices", {3, 4, 6}), 0);
}

TEST_CASE("SafeTensors: scales of FP8 weights that are missing or of another shape") {
    CHECK(OneWeight("[200, 300]", 60000, "[2, 3]", 6).rejection({200, 300}) == "it was read");
    CHECK(OneWeight("[200, 300]", 60000, "[]", 0).rejection({200, 300}) ==
          "tensor w_scale_inv of shape (2, 3) is missing");
    CHECK(OneWeight("[200, 300]", 60000, "[3, 2]", 6).rejection({200, 300}) ==
          "tensor w_scale_inv should have the shape (2, 3), it has (3, 2)");
    CHECK(OneWeight("[200, 300]", 60000, "[1, 1]", 1).rejection({200, 300}) ==
          "tensor w_scale_inv should have the shape (2, 3), it has (1, 1)");
    CHECK(OneWeight("[4, 6]", 24, "[1, 1]", 1).rejection({4, 6}, std::nullopt) ==
          "tensor w_scale_inv should have the shape (), it has (1, 1)");
    CHECK(OneWeight("[2, 4, 6]", 48, "[]", 1).rejection({2, 4, 6}, std::nullopt) ==
          "tensor w_scale_inv should have the shape (2, 1, 1), it has ()");
    CHECK(OneWeight("[4, 6]", 24, "[1, 1]", 1).rejection({6, 4}) ==
          "tensor w should have the shape (6, 4), it has (4, 6)");
}

TEST_CASE("SafeTensors: FP8 is read of matrices only, and only if it is finite") {
    const std::string others = "; F32, F16, BF16, and matrices of F8_E4M3 and F8_E5M2 can be ";
    CHECK(OneWeight("[6]", 6, "[1]", 1).rejection({6}) ==
          "tensor w is of type F8_E4M3" + others + "read");
    CHECK(OneWeight("[2, 3]", 6, "[1, 1]", 1, "F8_E8M0").rejection({2, 3}) ==
          "tensor w is of type F8_E8M0" + others + "read");
    for (const auto& [type, bytes] :
         {std::pair{"F8_E4M3", "\x7f\xff"}, {"F8_E5M2", "\x7c\xfc\x7d\xff"}})
        for (const char* byte = bytes; *byte; ++byte) {
            const OneWeight weight("[2, 3]", 6, "[1, 1]", 1, type);
            std::string text = content(weight.file);
            text[text.size() - 4 - 2] = *byte;
            overwrite(weight.file, text);
            CHECK(weight.rejection({2, 3}) == "tensor w has an element that is not finite");
        }
    // The product is what counts.
    const OneWeight weight("[2, 3]", 6, "[1, 1]", 1);
    std::string text = content(weight.file);
    text[text.size() - 4 - 1] = '\x7e';
    overwrite(weight.file, text.substr(0, text.size() - 4) + std::string("\0\0\x7f\x7f", 4));
    CHECK(weight.rejection({2, 3}) == "tensor w has an element that is not finite");
}

TEST_CASE("SafeTensors::unread: an FP8 weight and its scales are one tensor") {
    const SafeTensors tensors(OneWeight("[2, 3]", 6, "[1, 1]", 1).file);
    using Names = std::vector<std::string>;
    CHECK(tensors.unread() == Names{"w"});
    tensors.read("w", {2, 3});
    CHECK(tensors.unread().empty());
    const Scratch scratch;
    const Vector ones{1, 1};
    const fs::path file = scratch.folder / "a.safetensors";
    write_safetensors(file, {named("w", ones), named("w_scale_inv", ones)});
    CHECK(SafeTensors(file).unread() == Names{"w", "w_scale_inv"});
    write_safetensors(file, {named("_scale_inv", ones), named("v_scale_inv", ones)});
    CHECK(SafeTensors(file).unread() == Names{"_scale_inv", "v_scale_inv"});
}

namespace {

// Of this process, the memory that holds pages of files.
std::size_t file_memory() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
        if (line.starts_with("RssFile:")) return std::size_t(std::stoul(line.substr(8))) * 1024;
    return 0;
}

}  // namespace

TEST_CASE("SafeTensors: tensors that were read take no memory in the mapped file") {
    const std::size_t rows = 4096, columns = 4096;
    const OneWeight weight("[4096, 4096]", rows * columns, "[32, 32]", 1024);
    const SafeTensors tensors(weight.file);
    const std::size_t before = file_memory();
    if (before == 0) {
        MESSAGE("skipped: /proc/self/status does not say how much memory files take");
        return;
    }
    const Matrix weights = tensors.read("w", {rows, columns});
    CHECK(weights(4095, 4095) == 0);
    CHECK(file_memory() < before + rows * columns / 4);
}
