// Compiled with the options of the files with vector instructions, for which the compiler
// defines the same macros. There is no code here, which might contain such instructions itself.
#include "common/system/compiled_extensions.hpp"

// The text of a macro that is defined as 1 is "1"; otherwise it is the macro's name.
#define LLM_TEXT(macro) #macro
#define LLM_IS_DEFINED(macro) (LLM_TEXT(macro)[0] == '1')

namespace llm {

constinit const CompiledExtensions compiled_extensions = {
    .sse42 = LLM_IS_DEFINED(__SSE4_2__),
    .avx2 = LLM_IS_DEFINED(__AVX2__),
    .fma = LLM_IS_DEFINED(__FMA__),
    .bmi2 = LLM_IS_DEFINED(__BMI2__),
    .avx512 = LLM_IS_DEFINED(__AVX512F__),
    .vbmi = LLM_IS_DEFINED(__AVX512VBMI__),
    .vbmi2 = LLM_IS_DEFINED(__AVX512VBMI2__),
    .bitalg = LLM_IS_DEFINED(__AVX512BITALG__),
    .avx512_vnni = LLM_IS_DEFINED(__AVX512VNNI__),
    .avx512_bf16 = LLM_IS_DEFINED(__AVX512BF16__),
    .avx_vnni = LLM_IS_DEFINED(__AVXVNNI__),
    .dot_product = LLM_IS_DEFINED(__ARM_FEATURE_DOTPROD),
    .bf16 = LLM_IS_DEFINED(__ARM_FEATURE_BF16),
    .sve = LLM_IS_DEFINED(__ARM_FEATURE_SVE),
};

}  // namespace llm
