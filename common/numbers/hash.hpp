// The FNV-1a hash, 64 bits. Source: Fowler, Noll and Vo, RFC 9923.
#pragma once

#include <cstdint>
#include <string_view>

namespace llm {

// The hash of a text, or of a text that follows others whose hash is given.
inline std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325) {
    for (const char byte : text)
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    return hash;
}

}  // namespace llm
