// Chapter 11, file 7 of 7: the sampling parameters on a command line. (In a header, since only
// programs have options: tests are built without them.)
#pragma once

#include "chapters/11_generation/sampling.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

namespace llm {

// Adds --temperature, --top-k, --top-p, --min-p and --repetition-penalty.
inline void add_sampling_options(Options& options, SamplingConfig& sampling) {
    options.number("--temperature", sampling.temperature, 0, 100, "0: greedy decoding");
    options.count("--top-k", sampling.top_k, 0, 1 << 24, "most likely tokens to keep, 0: all");
    options.number("--top-p", sampling.top_p, 0, 1, "cumulative probability to keep");
    options.number("--min-p", sampling.min_p, 0, 1,
                   "smallest probability to keep, relative to the highest");
    options.number("--repetition-penalty", sampling.repetition_penalty, 0.01, 100,
                   "above 1: tokens that occurred become less likely");
}

// Throws ValueError for a --temperature between 0 and 0.01: the logits could overflow.
inline void check_temperature(const SamplingConfig& sampling) {
    require(sampling.temperature == 0 || sampling.temperature >= Real(0.01),
            "--temperature takes 0, or a number from 0.01 to 100, not {}",
            brief(double(sampling.temperature)));
}

}  // namespace llm
