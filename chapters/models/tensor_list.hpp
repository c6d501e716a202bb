// Tensors of a model, listed for write_safetensors.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "chapters/02_projections/linear.hpp"
#include "common/files/safetensors.hpp"

namespace llm::models {

// What visitors that write have in common. It holds views: the model must outlive it. Layers
// that the file stores in another order are copied to `reordered`.
struct TensorList {
    std::vector<NamedTensor> tensors{};
    std::list<Linear> reordered{};

    void matrix(const std::string& name, const Matrix& weight, std::size_t, std::size_t) {
        tensors.push_back(named(name + ".weight", weight));
    }
    void linear(const std::string& name, const Linear& linear, std::size_t out,
                std::size_t in) {
        matrix(name, linear.weight, out, in);
        if (linear.bias) bias(name, *linear.bias, out);
    }
    void bias(const std::string& name, const Vector& bias, std::size_t size) {
        vector(name + ".bias", bias, size);
    }
    void vector(const std::string& name, const Vector& values, std::size_t) {
        tensors.push_back(named(name, values));
    }
};

}  // namespace llm::models
