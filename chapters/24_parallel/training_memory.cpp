#include "chapters/24_parallel/training_memory.hpp"

namespace llm {
namespace {

// The longest of n parts. (A size of 32 bits, as in WebAssembly, is too small for part_of.)
std::uint64_t longest_part(std::uint64_t count, std::uint64_t num_parts) {
    return (count + num_parts - 1) / num_parts;
}

// The parameters outside the layers, those of one layer, and the number of layers.
struct Sizes {
    std::uint64_t outside, layer, num_layers;

    std::uint64_t all() const { return outside + num_layers * layer; }
    // Rank 0's parts of them.
    std::uint64_t shard(std::uint64_t num_ranks) const {
        return longest_part(outside, num_ranks) + num_layers * longest_part(layer, num_ranks);
    }
};

Sizes sizes_of(const Config& config) {
    const ParameterCount count = count_parameters(config);
    const std::uint64_t final_norm = config.hidden_size;
    const std::uint64_t outside = count.embedding + count.head + final_norm;
    return {outside, (count.total() - outside) / config.num_hidden_layers,
            config.num_hidden_layers};
}

}  // namespace

TrainingMemory training_memory(const Config& config, ZeroStage stage, std::size_t num_ranks,
                               const BytesPerParameter& bytes) {
    const Sizes sizes = sizes_of(config);
    const std::uint64_t all = sizes.all(), shard = sizes.shard(num_ranks);
    const auto kept = [&](ZeroStage divided_from) {
        return stage >= divided_from ? shard : all;
    };
    TrainingMemory memory{bytes.parameters * kept(ZeroStage::parameters),
                          bytes.gradients * kept(ZeroStage::gradients),
                          bytes.optimizer_states * kept(ZeroStage::optimizer_states)};

    // Whole while a step runs: what lies outside the layers, and one layer at a time.
    const std::uint64_t whole =
        sizes.outside - longest_part(sizes.outside, num_ranks) + sizes.layer;
    if (stage >= ZeroStage::gradients) memory.gathered += bytes.gradients * whole;
    if (stage >= ZeroStage::parameters) memory.gathered += bytes.parameters * whole;
    return memory;
}

}  // namespace llm
