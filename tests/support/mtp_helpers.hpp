// What the tests of multi-token prediction share: a module for the tiny models.
#pragma once

#include "chapters/22_speculation/mtp_draft.hpp"
#include "tests/support/speculative_helpers.hpp"

namespace llm {

// A module for tiny_model, in which each parameter affects the logits.
inline MtpModule tiny_mtp_module(std::uint32_t seed) {
    Generator generator(seed);
    MtpModule module = make_mtp_module(tiny_model(1).config, generator);
    for (const Parameter& parameter : named_parameters(module))
        for (Real& value : parameter.values)
            value = parameter.shape.size() == 1 ? Real(0.5) + generator.next_uniform()
                                                : Real(0.3) * generator.next_normal();
    return module;
}

}  // namespace llm
