// Chapter 17, file 7 of 8: a model at a longer context than that of its training.
#pragma once

#include <string>
#include <vector>

#include "chapters/01_masking/config.hpp"
#include "chapters/17_long_context/yarn.hpp"

namespace llm {

// How the frequencies of RoPE are changed for a context that is factor times as long as that of
// training. none: only more positions. The others are those of chapter 04 and yarn.hpp; Llama
// 3's with its low_freq_factor 1 and high_freq_factor 4.
enum class RopeExtension { none, position_interpolation, ntk_aware, llama3, yarn };

struct NamedExtension {
    std::string name;
    RopeExtension extension;
};
const std::vector<NamedExtension>& rope_extensions();  // "none", "position interpolation", ...

// The frequencies for a context of factor · max_position_embeddings, and the table for these P
// positions; YaRN's is multiplied by its attention factor. Throw ValueError unless factor >= 1.
Vector extended_frequencies(const Config& config, RopeExtension extension,
                            std::size_t factor);  // (D/2)
RotaryTable extended_rotary_table(const Config& config, RopeExtension extension,
                                  std::size_t factor);

}  // namespace llm
