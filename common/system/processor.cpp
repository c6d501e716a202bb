#include "common/system/processor.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "common/system/compiled_extensions.hpp"

#ifdef __x86_64__
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace llm {

void require_extensions(std::span<const Extension> extensions) {
    for (const auto& [name, is_compiled, is_present] : extensions)
        if (is_compiled && !is_present)
            throw std::runtime_error(
                fmt::format("this program was compiled for a processor with {}, which this one "
                            "lacks; compile it here, in a new build folder",
                            name));
}

#ifdef __x86_64__

namespace {

// GCC 12 and Clang 14 have no name for this extension: leaf 7, 1 of cpuid, bit 4 of eax.
bool has_avx_vnni() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

}  // namespace

bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

void require_compiled_extensions() {
    const CompiledExtensions& compiled = compiled_extensions;
    __builtin_cpu_init();
    const auto has = [](int flags) { return flags != 0; };
    const Extension extensions[] = {
        {"SSE4.2", compiled.sse42, has(__builtin_cpu_supports("sse4.2"))},
        {"AVX2", compiled.avx2, has(__builtin_cpu_supports("avx2"))},
        {"FMA", compiled.fma, has(__builtin_cpu_supports("fma"))},
        {"BMI2", compiled.bmi2, has(__builtin_cpu_supports("bmi2"))},
        {"AVX-512", compiled.avx512, has_avx512()},
        {"AVX-512 VBMI", compiled.vbmi, has(__builtin_cpu_supports("avx512vbmi"))},
        {"AVX-512 VBMI2", compiled.vbmi2, has(__builtin_cpu_supports("avx512vbmi2"))},
        {"AVX-512 BITALG", compiled.bitalg, has(__builtin_cpu_supports("avx512bitalg"))},
        {"AVX-512 VNNI", compiled.avx512_vnni, has(__builtin_cpu_supports("avx512vnni"))},
        {"AVX-512 BF16", compiled.avx512_bf16, has(__builtin_cpu_supports("avx512bf16"))},
        {"AVX-VNNI", compiled.avx_vnni, has_avx_vnni()},
    };
    require_extensions(extensions);
}

#elif defined(__aarch64__) && defined(__linux__)

void require_compiled_extensions() {
    const CompiledExtensions& compiled = compiled_extensions;
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    const Extension extensions[] = {
        {"sdot", compiled.dot_product, (first & HWCAP_ASIMDDP) != 0},
        {"BF16", compiled.bf16, (second & HWCAP2_BF16) != 0},
        {"SVE", compiled.sve, (first & HWCAP_SVE) != 0},
    };
    require_extensions(extensions);
}

#else

void require_compiled_extensions() {}  // WebAssembly checks a program before it begins

#endif

}  // namespace llm
