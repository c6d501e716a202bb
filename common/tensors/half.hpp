// IEEE half precision: 16 bits, 11 of them for the digits, largest number 65504.
#pragma once

#include <xtl/xhalf_float.hpp>

namespace llm {

using Half = xtl::half_float;

}  // namespace llm
