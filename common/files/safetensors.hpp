// Reads and writes the safetensors format: eight bytes with the size of a JSON header, the
// header, and the tensor data.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/files/mapped_file.hpp"
#include "common/numbers/hash.hpp"
#include "common/tensors/dtype.hpp"
#include "common/tensors/float8.hpp"
#include "common/tensors/tensor.hpp"

namespace llm {

// The scales of the FP8 weights NAME are in the tensor NAME_scale_inv.
inline const std::string scale_suffix = "_scale_inv";

// The tensors of a model by name, in one file or several. The constructor reads only the
// headers; read() converts a tensor to Real. All functions throw FileError, which names file
// and tensor.
class SafeTensors {
 public:
    // Opens a file, or of a folder model.safetensors, or, if that does not exist, all files
    // that model.safetensors.index.json lists.
    explicit SafeTensors(const std::filesystem::path& path);

    bool has(const std::string& name) const { return tensors_.contains(name); }
    std::size_t size_of(const std::string& name) const;  // of a tensor with one dimension
    // The tensors that were not read, without the scales of FP8 weights.
    std::vector<std::string> unread() const;
    std::vector<std::string> names() const {
        std::vector<std::string> names;
        for (const auto& [name, entry] : tensors_) names.push_back(name);
        return names;
    }
    // A hash of the stored elements of all tensors, in the order of their names.
    std::uint64_t checksum() const {
        std::uint64_t hash = fnv1a("");
        for (const auto& [name, entry] : tensors_) hash = fnv1a(entry.bytes, hash);
        return hash;
    }
    // Gives each tensor the name new_name(name); one for which that is empty is left out.
    template <class NewName>
    void rename(const NewName& new_name) {
        std::map<std::string, Entry> renamed;
        for (const auto& [name, entry] : tensors_)
            if (const std::string other = new_name(name); !other.empty())
                renamed.emplace(other, entry);
        tensors_ = std::move(renamed);
    }
    // The texts of __metadata__, of all files.
    const std::map<std::string, std::string>& metadata() const { return metadata_; }

    // FP8 weights are products of a stored value and a scale, of which there is one for each
    // block of so many rows and columns; nullopt: one for each matrix.
    void set_weight_block_size(std::optional<std::array<std::size_t, 2>> size) {
        weight_block_size_ = size;
    }

    // Reads a tensor of type F32, F16 or BF16, or matrices of type F8_E4M3 or F8_E5M2 with
    // their scales. It must have this shape and only finite elements.
    template <std::size_t N>
    xt::xtensor<Real, N> read(const std::string& name, const std::size_t (&shape)[N]) const {
        check(name, shape);
        xt::xtensor<Real, N> result(std::to_array(shape));
        convert(name, {result.data(), result.size()});
        return result;
    }

    // The same, into memory of this shape.
    void read(const std::string& name, std::span<const std::size_t> shape,
              std::span<Real> elements) const {
        check(name, shape);
        convert(name, elements);
    }

    // The elements of a tensor of type U8 with this shape, for formats with a meaning of their
    // own.
    std::span<const std::byte> read_bytes(const std::string& name,
                                          const std::vector<std::size_t>& shape) const;

 private:
    struct Entry {
        std::size_t file;
        std::string type;
        std::vector<std::size_t> shape;
        std::span<const std::byte> bytes;
    };
    std::vector<MappedFile> files_;
    std::map<std::string, Entry> tensors_;
    std::map<std::string, std::string> metadata_;
    mutable std::set<std::string> read_;
    // The default of Hugging Face's FineGrainedFP8Config.
    std::optional<std::array<std::size_t, 2>> weight_block_size_ = {{128, 128}};

    void add_file(const std::filesystem::path& file);
    const Entry& entry_of(const std::string& name, std::span<const std::size_t> shape) const;
    bool has_fp8_scales(const std::string& name) const;
    void check(const std::string& name, std::span<const std::size_t> shape) const;
    void convert(const std::string& name, std::span<Real> elements) const;
    [[noreturn]] void reject_element(const std::string& name) const;  // not finite
    void convert_fp8(const std::string& name, const Float8Values& values,
                     std::span<Real> elements) const;
};

// A tensor to write; the elements are not copied and must live until write_safetensors returns.
struct NamedTensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::span<const Real> elements;
};
template <std::size_t N>
NamedTensor named(const std::string& name, const xt::xtensor<Real, N>& tensor) {
    return {
        name, {tensor.shape().begin(), tensor.shape().end()}, {tensor.data(), tensor.size()}};
}

// Writes the tensors to one file, in float32 or rounded to bfloat16. Throws FileError.
void write_safetensors(const std::filesystem::path& file,
                       const std::vector<NamedTensor>& tensors, DType dtype = DType::float32,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace llm
