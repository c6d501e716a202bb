// Reading .npy files that NumPy wrote, and what is wrong with others.
#include "common/files/npy.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

// A .npy file of version 1 with this header.
std::string npy_file(const std::string& header, const std::string& elements) {
    return std::string("\x93NUMPY\x01\x00", 8) + char(header.size()) + '\0' + header + elements;
}
std::string npy_header(const std::string& shape, const std::string& descr = "<f4",
                       const std::string& order = "False") {
    return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape +
           ", }\n";
}

std::string npy_rejection(const std::string& bytes) {
    const Scratch scratch;
    const std::string file = (scratch.folder / "x.npy").string();
    overwrite(file, bytes);
    try {
        read_npy(file);
    } catch (const FileError& error) {
        const std::string message = error.what();
        REQUIRE(message.starts_with(file + ": "));
        return message.substr(file.size() + 2);
    }
    return "not rejected";
}

}  // namespace

TEST_CASE("read_npy reads what numpy.save wrote") {
    const NpyArray array = read_npy(fixture_file("27_vision/vit_native_pixel_values"));
    CHECK(array.shape == std::vector<std::size_t>{2, 3, 12, 20});
    const Tensor4 expected = fixture<4>("27_vision/vit_native_pixel_values");
    CHECK(array.elements == std::vector<float>(expected.begin(), expected.end()));
}

TEST_CASE("read_npy reads a header of version 2, one axis, and no axis") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "x.npy").string(), four(4, '\0');
    const std::string header = npy_header("(2,)");
    overwrite(file, std::string("\x93NUMPY\x02\x00", 8) + char(header.size()) +
                        std::string(3, '\0') + header + four + std::string("\0\0\x80\x3f", 4));
    CHECK(read_npy(file).shape == std::vector<std::size_t>{2});
    CHECK(read_npy(file).elements == std::vector<float>{0, 1});
    overwrite(file, npy_file(npy_header("()"), four));
    CHECK(read_npy(file).shape.empty());
    CHECK(read_npy(file).elements == std::vector<float>{0});
}

TEST_CASE("read_npy names what is wrong with a file") {
    const std::string eight(8, '\0');
    CHECK(npy_rejection("PK") == "not a .npy file: numpy.save writes one");
    CHECK(npy_rejection(std::string("\x93NUMPY\x01\x00", 8)) == "the file ends in its header");
    CHECK(npy_rejection(npy_file(npy_header("(2,)"), eight).substr(0, 40)) ==
          "the file ends in its header");
    CHECK(npy_rejection(npy_file("{'descr': '<f4', 'fortran_order': False}", eight)) ==
          "the header has no 'shape'");
    CHECK(npy_rejection(npy_file(npy_header("(1,)", "<f8"), eight)) ==
          "the elements are of type '<f8', not float32 ('<f4'): numpy's astype(\"float32\") "
          "converts them");
    CHECK(npy_rejection(npy_file(npy_header("(2, 1)", "<f4", "True"), eight)) ==
          "the elements are in Fortran's order: numpy.ascontiguousarray changes it");
    CHECK(npy_rejection(npy_file(npy_header("(3,)"), eight)) ==
          "the shape needs 12 bytes of elements, the file has 8");
    CHECK(npy_rejection(npy_file(npy_header("(1,)"), eight)) ==
          "the shape needs 4 bytes of elements, the file has 8");
    CHECK(npy_rejection(npy_file(npy_header("(99999999999999999999,)"), eight)) ==
          "a size is too large");
    CHECK(npy_rejection(npy_file(npy_header("(4294967296, 4294967296)"), eight)) ==
          "a size is too large");
    CHECK(npy_rejection(npy_file(npy_header("(2,)"), std::string("\0\0\0\0\0\0\x80\x7f", 8))) ==
          "element 1 is not finite");
}
