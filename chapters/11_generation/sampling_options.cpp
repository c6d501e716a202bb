#include "chapters/11_generation/sampling_options.hpp"

#include "common/output/show.hpp"

namespace llm {

void add_sampling_options(Options& options, SamplingConfig& sampling) {
    options.number("--temperature", sampling.temperature, 0, 100, "0: greedy decoding");
    options.count("--top-k", sampling.top_k, 0, 1 << 24, "most likely tokens to keep, 0: all");
    options.number("--top-p", sampling.top_p, 0, 1, "cumulative probability to keep");
    options.number("--min-p", sampling.min_p, 0, 1,
                   "smallest probability to keep, relative to the highest");
    options.number("--repetition-penalty", sampling.repetition_penalty, 0.01, 100,
                   "above 1: tokens that occurred become less likely");
}

void check_temperature(const SamplingConfig& sampling) {
    require(sampling.temperature == 0 || sampling.temperature >= Real(0.01),
            "--temperature takes 0, or a number from 0.01 to 100, not {}",
            brief(double(sampling.temperature)));
}

}  // namespace llm
