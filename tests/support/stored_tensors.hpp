// The tensors of a safetensors file as their bytes, to write files that no writer here writes.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "common/files/json.hpp"
#include "tests/support/files.hpp"

namespace llm {

struct StoredTensor {
    std::string name, type;
    std::vector<std::size_t> shape;
    std::string bytes;
};

inline std::vector<StoredTensor> read_tensors(const std::string& file) {
    const std::string text = content(file);
    std::uint64_t size = 0;
    std::memcpy(&size, text.data(), sizeof size);
    const Json header = parse_json(text.substr(8, size), "the header");
    const auto numbers = [](const Json& list) {
        std::vector<std::size_t> result;
        for (const Json& number : *list.as<JsonArray>())
            result.push_back(std::size_t(*number.as<std::int64_t>()));
        return result;
    };
    std::vector<StoredTensor> tensors;
    for (const auto& [name, entry] : *header.as<JsonObject>()) {
        if (name == "__metadata__") continue;
        const std::vector<std::size_t> offsets = numbers(*entry.find("data_offsets"));
        tensors.push_back({name, *entry.find("dtype")->as<std::string>(),
                           numbers(*entry.find("shape")),
                           text.substr(8 + size + offsets[0], offsets[1] - offsets[0])});
    }
    return tensors;
}

inline void write_tensors(const std::string& file, const std::vector<StoredTensor>& tensors) {
    JsonObject header;
    std::string data;
    for (const auto& [name, type, shape, bytes] : tensors) {
        const std::vector<std::size_t> offsets = {data.size(), data.size() + bytes.size()};
        header.emplace_back(
            name, JsonObject{{"dtype", type}, {"shape", shape}, {"data_offsets", offsets}});
        data += bytes;
    }
    const std::string text = json_text(header);
    const std::uint64_t size = text.size();
    overwrite(file, std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

}  // namespace llm
