#include "chapters/24_parallel/flat_parameters.hpp"

#include <algorithm>

namespace llm {

std::vector<FlatParameters> flat_parameters(Model& model) {
    std::vector<FlatParameters> groups = {parameters_outside_layers(model)};
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        add_parameters(groups.emplace_back(), "model.layers." + std::to_string(n),
                       model.layers[n]);
    return groups;
}

std::size_t num_elements(const FlatParameters& parameters) {
    std::size_t count = 0;
    for (const Parameter& parameter : parameters) count += parameter.values.size();
    return count;
}

std::vector<Real> flatten(const FlatParameters& parameters) {
    std::vector<Real> flat;
    flat.reserve(num_elements(parameters));
    for (const Parameter& parameter : parameters)
        flat.insert(flat.end(), parameter.values.begin(), parameter.values.end());
    return flat;
}

void unflatten(std::span<const Real> flat, const FlatParameters& parameters) {
    require(flat.size() == num_elements(parameters), "unflatten: {} numbers for {} elements",
            flat.size(), num_elements(parameters));
    for (const Parameter& parameter : parameters) {
        const std::size_t size = parameter.values.size();
        std::copy_n(flat.begin(), size, parameter.values.begin());
        flat = flat.subspan(size);
    }
}

Part part_of_rank(const Communicator& ranks, const FlatParameters& parameters) {
    return part_of(num_elements(parameters), ranks.size(), ranks.rank());
}

FlatParameters shard_of(const FlatParameters& parameters, Part part) {
    FlatParameters pieces;
    std::size_t begin = 0;  // of the parameter, in the vector
    for (const auto& [name, shape, values] : parameters) {
        const std::size_t first = std::max(begin, part.begin);
        const std::size_t end = std::min(begin + values.size(), part.begin + part.size);
        if (first < end)
            pieces.push_back({name, shape, values.subspan(first - begin, end - first)});
        begin += values.size();
    }
    return pieces;
}

FlatParameters on_shard(const FlatParameters& pieces, std::span<Real> shard) {
    FlatParameters moved;
    for (const auto& [name, shape, values] : pieces) {
        moved.push_back({name, shape, shard.first(values.size())});
        shard = shard.subspan(values.size());
    }
    return moved;
}

}  // namespace llm
