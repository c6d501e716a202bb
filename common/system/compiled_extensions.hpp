// The extensions of the instruction set that the compiler may use in files that are compiled
// for vector registers.
#pragma once

namespace llm {

struct CompiledExtensions {
    bool sse42, avx2, fma, bmi2, avx512, vbmi, vbmi2, bitalg, avx512_vnni, avx512_bf16,
        avx_vnni;
    bool dot_product, bf16, sve;  // of Arm
};
extern const CompiledExtensions compiled_extensions;

}  // namespace llm
