// Tensors by name, in files of the safetensors format: eight bytes with the length of a JSON
// header, the header, and the numbers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/files/mapped_file.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// A model's tensors, in one file or in several. Only headers are read at first; a tensor is
// converted to Real when it is asked for. All calls throw FileError with file and tensor.
class SafeTensors {
 public:
    // A file; or FOLDER/model.safetensors, or where there is none, all files that
    // FOLDER/model.safetensors.index.json names.
    explicit SafeTensors(const std::filesystem::path& path);

    bool has(const std::string& name) const { return tensors_.contains(name); }
    std::size_t size_of(const std::string& name) const;  // of a tensor with one axis

    // The tensor, of type F32, F16 or BF16, if it has this shape and its numbers are finite.
    template <std::size_t N>
    xt::xtensor<Real, N> read(const std::string& name, const std::size_t (&shape)[N]) const {
        check(name, shape);
        xt::xtensor<Real, N> result(std::to_array(shape));
        convert(name, {result.data(), result.size()});
        return result;
    }

 private:
    struct Entry {
        std::size_t file;
        std::string type;
        std::vector<std::size_t> shape;
        std::span<const std::byte> bytes;
    };
    std::vector<MappedFile> files_;
    std::map<std::string, Entry> tensors_;

    void add_file(const std::filesystem::path& file);
    void check(const std::string& name, std::span<const std::size_t> shape) const;
    void convert(const std::string& name, std::span<Real> numbers) const;
};

// A tensor to be written; the numbers must live until write_safetensors returns.
struct NamedTensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::span<const Real> numbers;
};
template <std::size_t N>
NamedTensor named(const std::string& name, const xt::xtensor<Real, N>& tensor) {
    return {
        name, {tensor.shape().begin(), tensor.shape().end()}, {tensor.data(), tensor.size()}};
}

// Writes one file, in 32 bits or rounded to the nearest BF16: the first 16 of them. Throws
// FileError.
enum class NumberType { f32, bf16 };
void write_safetensors(const std::filesystem::path& file,
                       const std::vector<NamedTensor>& tensors,
                       NumberType type = NumberType::f32);

}  // namespace llm
