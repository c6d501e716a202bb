#include "common/files/npy.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "common/files/mapped_file.hpp"

namespace llm {
namespace {

// The file in parts: a text that describes the array, and the elements.
struct NpyParts {
    std::string file;
    std::string_view header, elements;

    [[noreturn]] void reject(const std::string& problem) const {
        throw FileError(file + ": " + problem);
    }
};

NpyParts split_npy(const MappedFile& file) {
    NpyParts parts{file.path().string(), {}, {}};
    const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                                 file.bytes().size());
    if (!bytes.starts_with("\x93NUMPY")) parts.reject("not a .npy file: numpy.save writes one");
    // The version, then the size of the header: two bytes in version 1, four since version 2.
    if (bytes.size() < 12) parts.reject("the file ends in its header");
    const std::size_t size_bytes = bytes[6] == 1 ? 2 : 4, begin = 8 + size_bytes;
    std::size_t size = 0;
    for (std::size_t i = size_bytes; i-- > 0;)
        size = 256 * size + static_cast<unsigned char>(bytes[8 + i]);
    if (size > bytes.size() - begin) parts.reject("the file ends in its header");
    parts.header = bytes.substr(begin, size);
    parts.elements = bytes.substr(begin + size);
    return parts;
}

// What follows a key of the header, a Python dictionary: {'descr': '<f4', ...}.
std::string_view npy_value(const NpyParts& parts, const std::string& key) {
    const std::size_t found = parts.header.find("'" + key + "':");
    if (found == parts.header.npos) parts.reject("the header has no '" + key + "'");
    const std::string_view rest = parts.header.substr(found + key.size() + 3);
    return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

std::vector<std::size_t> npy_shape(const NpyParts& parts) {
    std::string_view text = npy_value(parts, "shape");
    text = text.substr(0, text.find(')'));
    std::vector<std::size_t> shape;
    for (const char *at = text.data(), *end = at + text.size(); at < end;) {
        std::size_t size = 0;
        const auto [next, error] = std::from_chars(at, end, size);
        if (error == std::errc{}) shape.push_back(size);
        if (error == std::errc::result_out_of_range) parts.reject("a size is too large");
        at = error == std::errc{} ? next : at + 1;  // brackets, commas and spaces
    }
    return shape;
}

std::size_t num_elements(const NpyParts& parts, const std::vector<std::size_t>& shape) {
    std::size_t count = 1;
    for (const std::size_t size : shape) {
        if (size > 0 && count > std::numeric_limits<std::size_t>::max() / 4 / size)
            parts.reject("a size is too large");
        count *= size;
    }
    return count;
}

}  // namespace

NpyArray read_npy(const std::filesystem::path& path) {
    const MappedFile file(path);
    const NpyParts parts = split_npy(file);
    const std::string_view type = npy_value(parts, "descr").substr(0, 5);
    if (type != "'<f4'")
        parts.reject("the elements are of type " + std::string(type) +
                     ", not float32 ('<f4'): numpy's astype(\"float32\") converts them");
    if (!npy_value(parts, "fortran_order").starts_with("False"))
        parts.reject("the elements are in Fortran's order: numpy.ascontiguousarray changes it");
    NpyArray array{npy_shape(parts), {}};
    const std::size_t count = num_elements(parts, array.shape);
    if (parts.elements.size() != count * sizeof(float))
        parts.reject("the shape needs " + std::to_string(count * sizeof(float)) +
                     " bytes of elements, the file has " +
                     std::to_string(parts.elements.size()));
    array.elements.resize(count);
    if (count > 0)
        std::memcpy(array.elements.data(), parts.elements.data(), parts.elements.size());
    for (std::size_t i = 0; i < count; ++i)
        if (!std::isfinite(array.elements[i]))
            parts.reject("element " + std::to_string(i) + " is not finite");
    return array;
}

}  // namespace llm
