// Extensions of the processor's instruction set. A file that is compiled with -march=native
// ends with "Illegal instruction" on a processor that lacks one of those of the machine it was
// compiled on.
#pragma once

#include <span>

namespace llm {

// The extensions that the compiler may use in files that are compiled for vector registers.
struct CompiledExtensions {
    bool sse42, avx2, fma, bmi2, avx512, vbmi, vbmi2, bitalg, avx512_vnni, avx512_bf16,
        avx_vnni;
    bool dot_product, bf16, sve;  // of Arm
};
extern const CompiledExtensions compiled_extensions;

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
