// Chapter 24, file 2 of 6: parameters that are communicated together.
#pragma once

#include "chapters/09_full_model/parameters.hpp"
#include "common/parallel/communicator.hpp"

namespace llm {

// Parameters of a model, or of its gradient, that are communicated together, as if they were
// one vector of N numbers. A message has a cost of its own, so many small ones are slow; one
// for all parameters would need a second copy of them. Called a bucket by PyTorch's
// DistributedDataParallel, a FlatParameter by its FullyShardedDataParallel.
using FlatParameters = std::vector<Parameter>;

// Embedding, final norm and head. The model must outlive the list.
template <class Layer>
FlatParameters parameters_outside_layers(DecoderModel<Layer>& model) {
    FlatParameters list;
    add_parameters(list, "model.embed_tokens.weight", model.embed_tokens);
    add_parameters(list, "model.norm", model.norm);
    if (model.lm_head) add_parameters(list, "lm_head.weight", *model.lm_head);
    return list;
}
// L + 1 groups of parameters: those outside the layers, then those of each layer.
std::vector<FlatParameters> flat_parameters(Model& model);

std::size_t num_elements(const FlatParameters& parameters);                    // N
std::vector<Real> flatten(const FlatParameters& parameters);                   // (N)
void unflatten(std::span<const Real> flat, const FlatParameters& parameters);  // (N)

// Flattens the parameters, calls function(flat), which changes the numbers, and writes them
// back.
template <class Function>
void transform_flattened(const FlatParameters& parameters, const Function& function) {
    std::vector<Real> flat = flatten(parameters);
    function(std::span(flat));
    unflatten(flat, parameters);
}

// The part of this rank.
Part part_of_rank(const Communicator& ranks, const FlatParameters& parameters);

// The parameters that lie in a part of the vector, as views; of the first and the last one
// perhaps a piece. Names and shapes stay those of the whole parameters.
FlatParameters shard_of(const FlatParameters& parameters, Part part);

// The same pieces with values of their own, which follow one another in `shard`.
FlatParameters on_shard(const FlatParameters& pieces, std::span<Real> shard);

}  // namespace llm
