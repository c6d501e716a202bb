// The floating-point type of all tensors. (The finite-difference tests of gradients compile the
// lessons with double.)
#pragma once

namespace llm {

#ifdef LLM_DOUBLE
using Real = double;
#else
using Real = float;
#endif

}  // namespace llm
