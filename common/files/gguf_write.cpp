#include <algorithm>

#include <fmt/format.h>

#include "common/files/gguf.hpp"
#include "common/files/gguf_format.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {
using namespace gguf;

namespace {

// The bytes of a header.
class HeaderWriter {
 public:
    const std::string& bytes() const { return bytes_; }

    template <class T>
    void number(T number) {
        bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    void type(ValueType type) { number(static_cast<std::uint32_t>(type)); }
    void text(const std::string& text) {
        number(std::uint64_t{text.size()});
        bytes_ += text;
    }
    void pad() { bytes_.resize(padded(bytes_.size())); }

    // Appends the type of a value and the value.
    void value(bool value) {
        type(ValueType::boolean);
        number(std::uint8_t{value});
    }
    void value(std::int64_t value) {
        const bool fits = std::in_range<std::uint32_t>(value);
        type(fits ? ValueType::uint32 : ValueType::int64);
        fits ? number(static_cast<std::uint32_t>(value)) : number(value);
    }
    void value(double value) {
        type(ValueType::float32);
        number(static_cast<float>(value));
    }
    void value(const std::string& value) {
        type(ValueType::text);
        text(value);
    }
    void value(const std::vector<bool>& values) {
        array(ValueType::boolean, values.size());
        for (const bool value : values) number(std::uint8_t{value});
    }
    void value(const std::vector<std::int64_t>& values) {
        const bool fit = std::all_of(values.begin(), values.end(),
                                     std::in_range<std::int32_t, std::int64_t>);
        array(fit ? ValueType::int32 : ValueType::int64, values.size());
        for (const std::int64_t value : values)
            fit ? number(static_cast<std::int32_t>(value)) : number(value);
    }
    void value(const std::vector<double>& values) {
        array(ValueType::float32, values.size());
        for (const double value : values) number(static_cast<float>(value));
    }
    void value(const std::vector<std::string>& values) {
        array(ValueType::text, values.size());
        for (const std::string& value : values) text(value);
    }

 private:
    std::string bytes_;

    void array(ValueType element_type, std::size_t count) {
        type(ValueType::array);
        type(element_type);
        number(std::uint64_t{count});
    }
};

// The number of a tensor's type. Throws ValueError if there is none, or if the bytes do not
// match the shape.
std::uint32_t checked_type(const std::string& name, const GgufTensor& tensor) {
    const auto& [dtype, shape, bytes] = tensor;
    const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& numbered) {
        return numbered.second == tensor.dtype;
    });
    require(!shape.empty() && shape.size() <= 4 && element_count(shape) > 0,
            "tensor {} of shape {} must have 1 to 4 dimensions and no size of 0", name, shape);
    const std::size_t in_features = shape.back();
    const std::size_t size =
        element_count(shape) / in_features * bytes_per_row(dtype, in_features);
    require(bytes.size() == size, "tensor {} of shape {} and type {} has {} bytes, not {}",
            name, shape, to_text(dtype), bytes.size(), size);
    return found->first;
}

// The header up to the data.
std::string header_of(const GgufMetadata& metadata,
                      const std::vector<NamedGgufTensor>& tensors) {
    HeaderWriter header;
    for (const char letter : magic) header.number(letter);
    header.number(std::uint32_t{3});
    header.number(std::uint64_t{tensors.size()});
    header.number(std::uint64_t{metadata.size()});
    for (const auto& [key, value] : metadata) {
        header.text(key);
        std::visit([&](const auto& held) { header.value(held); }, value);
    }
    std::uint64_t offset = 0;
    for (const auto& [name, tensor] : tensors) {
        const std::uint32_t type = checked_type(name, tensor);
        header.text(name);
        header.number(static_cast<std::uint32_t>(tensor.shape.size()));
        for (std::size_t axis = tensor.shape.size(); axis-- > 0;)
            header.number(std::uint64_t{tensor.shape[axis]});
        header.number(type);
        header.number(offset);
        offset += padded(tensor.bytes.size());
    }
    header.pad();
    return header.bytes();
}

}  // namespace

void write_gguf(const std::filesystem::path& file, const GgufMetadata& metadata,
                const std::vector<NamedGgufTensor>& tensors) try {
    const std::string header = header_of(metadata, tensors);
    write_file(file, [&](std::ostream& stream) {
        stream << header;
        for (const auto& [name, tensor] : tensors) {
            const std::size_t size = tensor.bytes.size();
            stream.write(reinterpret_cast<const char*>(tensor.bytes.data()),
                         static_cast<std::streamsize>(size));
            stream << std::string(padded(size) - size, '\0');
        }
    });
} catch (const ValueError& error) {
    throw FileError(fmt::format("{}: {}", file.string(), error.what()));
}

}  // namespace llm
