// Chapter 09, file 5 of 5: the weights of a model in safetensors.
#pragma once

#include <string>

#include "chapters/09_full_model/model_tensors.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

// A model with the structure that the configuration describes, whose tensors are still empty.
Model make_empty_model(const Config& config);

// Reads a model with this configuration. Weights for interleaved RoPE are converted to split
// halves (chapter 04). Reads layer by layer, so that no more than one tensor is in memory
// twice. Throws FileError, which names the tensor.
template <class Tensors>
Model read_model(const Config& config, Tensors& tensors, const TensorNames& names,
                 RopeLayout layout) {
    check_last_layer(config, tensors, names, names.layers);
    Model model = make_empty_model(config);
    TensorReader<Tensors> reader{tensors};
    visit_model(model, names, layout, reader);
    return model;
}

// The parameters of any model, by name: writes them to one safetensors file, in float32 or
// bfloat16, and reads them back into a model of the same sizes. Throw FileError, also if the
// file has another tensor.
void save_parameters(const std::vector<Parameter>& parameters, const std::string& file,
                     DType dtype = DType::float32);
void load_parameters(const std::string& file, const std::vector<Parameter>& parameters);

}  // namespace llm
