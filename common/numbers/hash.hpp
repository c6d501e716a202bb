// The FNV-1a hash, 64 bits. Source: Fowler, Noll and Vo, RFC 9923.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace llm {

// The hash of a text, or of a text that follows others whose hash is given.
inline std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325) {
    for (const char byte : text)
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    return hash;
}
inline std::uint64_t fnv1a(std::span<const std::byte> bytes, std::uint64_t hash) {
    return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, hash);
}

}  // namespace llm
