// Reads and writes GGUF files: llama.cpp's format, with metadata, tokenizer and weights of a
// model in one file.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/files/mapped_file.hpp"
#include "common/tensors/dtype.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// A value of the metadata. Integers and floats of all widths are read as these types.
using GgufValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<bool>,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

// A stored tensor. The shape is in row-major order: GGUF's ne reversed.
struct GgufTensor {
    DType dtype = DType::float32;
    std::vector<std::size_t> shape;
    std::span<const std::byte> bytes;  // of the mapped file
};

// A GGUF file of version 2 or 3, little-endian. The constructor reads metadata and the list of
// tensors. All functions throw FileError, which names file and key or tensor.
class Gguf {
 public:
    explicit Gguf(const std::filesystem::path& file);

    const std::filesystem::path& path() const { return file_.path(); }

    // The metadata. The accessors reject missing keys and values of another type.
    bool has(const std::string& key) const { return metadata_.contains(key); }
    const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
    bool boolean(const std::string& key) const;
    std::int64_t integer(const std::string& key) const;
    std::size_t size(const std::string& key) const;  // an integer from 1 to 2^24
    double number(const std::string& key) const;     // finite; an integer is accepted
    const std::string& text(const std::string& key) const;
    const std::vector<std::string>& texts(const std::string& key) const;
    const std::vector<std::int64_t>& integers(const std::string& key) const;
    const std::vector<double>& numbers(const std::string& key) const;
    std::vector<bool> flags(const std::string& key) const;  // booleans, or integers: not 0
    // The value of a key that has a number or true (1); it does not count as read.
    std::optional<double> any_number(const std::string& key) const;
    // Rejects the first key with this prefix that no accessor has read, unless its value is
    // false, 0 or empty, or what follows the prefix may be unread.
    void reject_unread(const std::string& prefix,
                       const std::set<std::string>& may_be_unread) const;

    // The tensors whose type is a DType. Those of other types, such as IQ2_XS, are only
    // rejected if they are needed: tensor() and read() reject one, reject_other_types() rejects
    // any.
    const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }
    bool has_tensor(const std::string& name) const {
        return tensors_.contains(name) || other_types_.contains(name);
    }
    const GgufTensor& tensor(const std::string& name) const;
    void reject_other_types() const;

    // Dequantizes a tensor. It must have this shape, except for leading sizes of 1, and only
    // finite elements.
    template <std::size_t N>
    xt::xtensor<Real, N> read(const std::string& name, const std::size_t (&shape)[N]) const {
        check(name, shape);
        xt::xtensor<Real, N> result(std::to_array(shape));
        dequantize(name, {result.data(), result.size()});
        return result;
    }

    // Copies the stored bytes of a matrix. It must have this shape, and only finite elements.
    std::shared_ptr<const std::byte> read_bytes(const std::string& name,
                                                std::size_t out_features,
                                                std::size_t in_features) const;

    // Throws FileError: "FILE: reason".
    [[noreturn]] void reject(const std::string& reason) const;

 private:
    MappedFile file_;
    std::map<std::string, GgufValue> metadata_;
    mutable std::set<std::string> read_;  // keys
    std::map<std::string, GgufTensor> tensors_;
    std::map<std::string, std::string> other_types_;  // name of a tensor: name of its type

    std::uint64_t alignment() const;
    const GgufValue& value(const std::string& key) const;
    template <class T>
    const T& value_of_type(const std::string& key) const;
    void check(const std::string& name, std::span<const std::size_t> shape) const;
    void dequantize(const std::string& name, std::span<Real> elements) const;
    void check_finite(const std::string& name, std::span<const Real> elements) const;
};

// True if a file exists and begins with GGUF's magic bytes.
bool is_gguf(const std::filesystem::path& file);

// The metadata to write, in this order. Integers are written with 32 bits where they fit, and
// doubles are rounded to float32: llama.cpp requires these types.
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// A tensor to write; the bytes are not copied and must live until write_gguf returns.
struct NamedGgufTensor {
    std::string name;
    GgufTensor tensor;
};

// Writes a file of version 3. Throws FileError, also if the bytes of a tensor do not match its
// shape and type.
void write_gguf(const std::filesystem::path& file, const GgufMetadata& metadata,
                const std::vector<NamedGgufTensor>& tensors);

}  // namespace llm
