// Extensions of the processor's instruction set. A file that is compiled with -march=native
// ends with "Illegal instruction" on a processor that lacks one of those of the machine it was
// compiled on.
#pragma once

#include <span>

namespace llm {

struct Extension {
    const char* name;
    bool is_compiled;
    bool is_present;  // in this processor
};

#ifdef __x86_64__
bool has_avx512();  // the extensions that Skylake-X added: F, BW, DQ and VL
#endif

// Throws std::runtime_error, naming the first extension that is compiled and not present.
void require_extensions(std::span<const Extension> extensions);
void require_compiled_extensions();

}  // namespace llm
