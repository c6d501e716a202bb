#include <algorithm>
#include <bit>
#include <ostream>

#include <fmt/format.h>

#include "common/files/json_file.hpp"
#include "common/files/safetensors.hpp"

namespace llm {
namespace {

static_assert(sizeof(Real) == 4, "write_safetensors copies the bytes of Reals");

void write_elements(std::ostream& stream, std::span<const Real> elements, DType dtype) {
    const auto write = [&](const auto& values) {
        stream.write(reinterpret_cast<const char*>(values.data()),
                     static_cast<std::streamsize>(std::span(values).size_bytes()));
    };
    if (dtype == DType::float32) return write(elements);
    std::vector<Bfloat16> rounded(elements.size());
    std::transform(elements.begin(), elements.end(), rounded.begin(), to_bfloat16);
    write(rounded);
}

}  // namespace

void write_safetensors(const std::filesystem::path& file,
                       const std::vector<NamedTensor>& tensors, DType dtype,
                       const std::map<std::string, std::string>& metadata) {
    if (dtype != DType::float32 && dtype != DType::bfloat16)
        throw FileError(fmt::format("{}: tensors are written in float32 or bfloat16, not {}",
                                    file.string(), to_text(dtype)));
    JsonObject texts(metadata.contains("format") ? 0 : 1, {"format", "pt"});
    for (const auto& [key, text] : metadata) texts.emplace_back(key, text);
    JsonObject header = {{"__metadata__", texts}};
    const std::string type_name = dtype == DType::float32 ? "F32" : "BF16";
    std::size_t offset = 0;
    for (const auto& [name, shape, elements] : tensors) {
        const std::size_t size = bytes_per_block(dtype) * elements.size();
        const std::vector<std::size_t> offsets = {offset, offset + size};
        header.emplace_back(
            name,
            JsonObject{{"dtype", type_name}, {"shape", shape}, {"data_offsets", offsets}});
        offset += size;
    }
    std::string text = json_text(header);
    text.append((8 - text.size() % 8) % 8, ' ');  // the data begins at a multiple of 8
    const std::uint64_t header_size = text.size();

    write_file(file, [&](std::ostream& stream) {
        stream.write(reinterpret_cast<const char*>(&header_size), 8);
        stream << text;
        for (const NamedTensor& tensor : tensors)
            write_elements(stream, tensor.elements, dtype);
    });
}

}  // namespace llm
