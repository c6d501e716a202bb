#include "common/files/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "common/files/json_file.hpp"

namespace llm {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little endian");

const std::map<std::string, std::size_t> bytes_per_element = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},     {"I32", 4},
    {"I16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

// The number of elements of a shape, or nullopt if it exceeds 64 bits.
std::optional<std::size_t> checked_count(const std::vector<std::size_t>& shape) {
    std::size_t count = 1;
    for (const std::size_t size : shape)
        if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
    return count;
}

// The numbers of a list, or nullopt if it is none, or holds something else.
std::optional<std::vector<std::size_t>> sizes_in(const Json* list) {
    const auto* elements = list ? list->as<JsonArray>() : nullptr;
    if (!elements) return std::nullopt;
    std::vector<std::size_t> sizes;
    for (const Json& element : *elements) {
        const auto* size = element.as<std::int64_t>();
        if (!size || *size < 0) return std::nullopt;
        sizes.push_back(std::size_t(*size));
    }
    return sizes;
}

// What the header says of a tensor: its type, its shape and its byte range.
struct TensorHeader {
    std::string type;
    std::vector<std::size_t> shape;
    std::size_t begin, end;
};
std::optional<TensorHeader> tensor_header(const Json& entry) {
    const Json* dtype = entry.find("dtype");
    const auto* type = dtype ? dtype->as<std::string>() : nullptr;
    const auto shape = sizes_in(entry.find("shape")),
               range = sizes_in(entry.find("data_offsets"));
    if (!type || !shape || !range || range->size() != 2) return std::nullopt;
    return TensorHeader{*type, *shape, (*range)[0], (*range)[1]};
}

// The texts of an object by name, or nullopt if it is none, or holds something else.
std::optional<std::map<std::string, std::string>> texts_in(const Json& metadata) {
    const auto* members = metadata.as<JsonObject>();
    if (!members) return std::nullopt;
    std::map<std::string, std::string> texts;
    for (const auto& [name, value] : *members) {
        if (!value.as<std::string>()) return std::nullopt;
        texts[name] = *value.as<std::string>();
    }
    return texts;
}

// Splits a file into its JSON header, whose size is in the first eight bytes, and the data.
std::pair<JsonObject, std::span<const std::byte>> header_and_data(
    const std::filesystem::path& path, std::span<const std::byte> all) {
    const auto reject = [&](const std::string& reason) {
        throw FileError(fmt::format("{}: {}", path.string(), reason));
    };
    if (all.size() < 8) reject("too short for a safetensors file");
    std::uint64_t size = 0;
    std::memcpy(&size, all.data(), 8);
    if (size > 100'000'000 || size > all.size() - 8)
        reject(
            fmt::format("a header of {} bytes does not fit into a file of {}: damaged, or not "
                        "a safetensors file",
                        size, all.size()));
    const std::string_view text(reinterpret_cast<const char*>(all.data()) + 8,
                                static_cast<std::size_t>(size));
    if (!text.starts_with('{')) reject("the header must begin with {");
    // Only spaces may follow the object.
    if (text[text.find_last_not_of(' ')] != '}')
        reject("the header must end with } and spaces");
    return {*parse_json(text, path.string() + ": the header").as<JsonObject>(),
            all.subspan(8 + text.size())};
}

}  // namespace

SafeTensors::SafeTensors(const std::filesystem::path& path) {
    if (is_file(path)) {
        add_file(path);
        return;
    }
    const std::filesystem::path index = path / "model.safetensors.index.json";
    const std::filesystem::path single = path / "model.safetensors";
    const std::filesystem::path pickle = path / "pytorch_model.bin";
    if (std::filesystem::exists(pickle) && !std::filesystem::exists(single) &&
        !std::filesystem::exists(index))
        throw FileError(
            fmt::format("{} is not supported; supported: model.safetensors", pickle.string()));
    if (std::filesystem::exists(single) || !std::filesystem::exists(index)) {
        add_file(single);
        return;
    }

    const JsonFile json(index);
    const std::map<std::string, std::string> weight_map = json.texts("weight_map");
    std::set<std::string> files;
    for (const auto& [tensor, file] : weight_map) {
        if (file.empty() || file.find('/') != std::string::npos || file == "..")
            json.reject(tensor + " must be in a file of the same folder");
        files.insert(file);
    }
    if (files.empty()) json.reject("weight_map names no file");
    for (const std::string& file : files) add_file(path / file);
    for (const auto& [tensor, file] : weight_map)
        if (!has(tensor)) json.reject(tensor + " is not in " + file);
}

void SafeTensors::add_file(const std::filesystem::path& path) {
    files_.emplace_back(path);
    const auto reject = [&](const std::string& reason) {
        throw FileError(fmt::format("{}: {}", path.string(), reason));
    };
    const auto [header, data] = header_and_data(path, files_.back().bytes());

    std::map<std::size_t, std::pair<std::size_t, std::string>> ranges;  // begin: (end, name)
    for (const auto& [name, entry] : header) {
        if (name == "__metadata__") {
            const auto texts = texts_in(entry);
            if (!texts) reject("__metadata__ must be an object of texts");
            for (const auto& [key, text] : *texts) metadata_[key] = text;
            continue;
        }
        const std::optional<TensorHeader> described = tensor_header(entry);
        if (!described) reject(name + " lacks a dtype, a shape or two offsets");
        const auto& [type, shape, begin, end] = *described;
        if (begin > end || end > data.size())
            reject(
                fmt::format("{} claims bytes {} to {} of {}", name, begin, end, data.size()));

        const auto size = bytes_per_element.find(type);
        const std::optional<std::size_t> count = checked_count(shape);
        if (size != bytes_per_element.end() &&
            (!count || *count > data.size() || *count * size->second != end - begin))
            reject(fmt::format("{} of shape {} and type {} does not fill its {} bytes", name,
                               to_text(shape), type, end - begin));
        if (begin < end && !ranges.emplace(begin, std::pair{end, name}).second)
            reject(fmt::format("{} overlaps another tensor", name));
        if (!tensors_
                 .emplace(name, Entry{files_.size() - 1, type, shape,
                                      data.subspan(begin, end - begin)})
                 .second)
            reject(name + " is in two files");
    }
    // The ranges cover the data without a gap.
    std::size_t last_end = 0;
    for (const auto& [begin, range] : ranges) {
        if (begin < last_end) reject(range.second + " overlaps another tensor");
        if (begin > last_end)
            reject(fmt::format("no tensor has bytes {} to {} of the data", last_end, begin));
        last_end = range.first;
    }
    if (last_end < data.size())
        reject(fmt::format("no tensor has bytes {} to {} of the data", last_end, data.size()));
}

std::size_t SafeTensors::size_of(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.shape.size() != 1)
        throw FileError(fmt::format("{}: tensor {} with one dimension is missing",
                                    files_[0].path().string(), name));
    return found->second.shape[0];
}

const SafeTensors::Entry& SafeTensors::entry_of(const std::string& name,
                                                std::span<const std::size_t> shape) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
        throw FileError(fmt::format("{}: tensor {} of shape {} is missing",
                                    files_[0].path().string(), name, to_text(shape)));
    const Entry& entry = found->second;
    const std::string file = files_[entry.file].path().string();
    if (!std::equal(shape.begin(), shape.end(), entry.shape.begin(), entry.shape.end()))
        throw FileError(fmt::format("{}: tensor {} should have the shape {}, it has {}", file,
                                    name, to_text(shape), to_text(entry.shape)));
    read_.insert(name);
    return entry;
}

std::vector<std::string> SafeTensors::unread() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : tensors_)
        if (!read_.contains(name) && !has_fp8_scales(name)) names.push_back(name);
    return names;
}

std::span<const std::byte> SafeTensors::read_bytes(
    const std::string& name, const std::vector<std::size_t>& shape) const {
    const Entry& entry = entry_of(name, shape);
    if (entry.type != "U8")
        throw FileError(fmt::format("{}: tensor {} is of type {}; U8 was expected",
                                    files_[entry.file].path().string(), name, entry.type));
    return entry.bytes;
}

}  // namespace llm
