// Changes GGUF files.
#pragma once

#include <optional>

#include "common/files/gguf.hpp"

namespace llm {

// A copy with other values of these keys; none: without the key. Each pair in doubled is a
// tensor that is there once more, and its second name.
inline void edit_gguf(const std::filesystem::path& file, const std::filesystem::path& copy,
                      const std::map<std::string, std::optional<GgufValue>>& changes,
                      const std::vector<std::pair<std::string, std::string>>& doubled = {}) {
    const Gguf gguf(file);
    GgufMetadata metadata;
    for (const auto& [key, value] : gguf.metadata())
        if (!changes.contains(key)) metadata.emplace_back(key, value);
    for (const auto& [key, value] : changes)
        if (value) metadata.emplace_back(key, *value);
    std::vector<NamedGgufTensor> tensors;
    for (const auto& [name, tensor] : gguf.tensors()) tensors.push_back({name, tensor});
    for (const auto& [name, new_name] : doubled)
        tensors.push_back({new_name, gguf.tensor(name)});
    write_gguf(copy, metadata, tensors);
}

}  // namespace llm
