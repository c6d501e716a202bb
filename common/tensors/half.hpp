// IEEE half precision (float16): 16 bits, 11 significant bits, largest finite value 65504.
#pragma once

#include <xtl/xhalf_float.hpp>

namespace llm {

using Half = xtl::half_float;

}  // namespace llm
