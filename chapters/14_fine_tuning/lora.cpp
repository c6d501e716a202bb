#include "chapters/14_fine_tuning/lora.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/09_full_model/model_tensors.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

Real LoraConfig::scaling() const {
    const Real rank = static_cast<Real>(r);
    return lora_alpha / (use_rslora ? std::sqrt(rank) : rank);
}

namespace {

// A visitor of chapter 09's visit_model that lists the linear layers. AnyLinear may be const.
template <class Named, class AnyLinear>
struct LinearLister {
    std::vector<Named> list{};

    void linear(const std::string& name, AnyLinear& linear, std::size_t, std::size_t) {
        list.push_back({name, &linear});
    }
    void interleaved(const std::string& name, AnyLinear& projection, std::size_t out,
                     std::size_t in, std::size_t) {
        linear(name, projection, out, in);
    }
    void matrix(const std::string&, const Matrix&, std::size_t, std::size_t) {}
    void norm(const std::string&, const Vector&, std::size_t) {}
    void bias(const std::string&, const Vector&, std::size_t) {}
};
template <class Lister, class AnyModel>
auto list_linears(AnyModel& model) {
    Lister lister;
    visit_model(model, hugging_face_names, RopeLayout::split_half, lister);
    return lister.list;
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

// "model.layers.0.self_attn.q_proj" -> "q_proj"
std::string module_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

template <class Named>
auto& find_linear(const std::vector<Named>& linears, const LoraLayer& layer) {
    for (const Named& named : linears)
        if (named.name == layer.name) {
            const Matrix& weight = named.linear->weight;
            const Matrix &a = layer.lora_A, &b = layer.lora_B;
            require(a.shape(1) == weight.shape(1) && b.shape(0) == weight.shape(0) &&
                        a.shape(0) == b.shape(1),
                    "LoRA: A of {} and B of {} do not fit {}.weight of {}", a.shape(),
                    b.shape(), layer.name, weight.shape());
            return *named.linear;
        }
    throw_value_error("LoRA: the model has no linear layer {}", {layer.name});
}

Matrix scaled_product(const LoraLayer& layer, Real scaling) {  // s B A: (out, in)
    const Matrix product = matmul(layer.lora_B, layer.lora_A);
    return product * scaling;
}

}  // namespace

std::vector<NamedLinear> named_linears(Model& model) {
    return list_linears<LinearLister<NamedLinear, Linear>>(model);
}
std::vector<ConstNamedLinear> named_linears(const Model& model) {
    return list_linears<LinearLister<ConstNamedLinear, const Linear>>(model);
}

LoraAdapter make_lora(const Model& model, const LoraConfig& config, Generator& generator) {
    require(config.r > 0, "LoRA: the rank r is 0");
    require(!config.target_modules.empty(), "LoRA: there are no target_modules");
    for (const std::string& module : config.target_modules)
        require(contains({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                          "down_proj"},
                         module),
                "LoRA: target_modules has {}, which is no linear layer of this model", module);
    LoraAdapter adapter{config, {}};
    for (const auto& [name, linear] : named_linears(model)) {
        if (!contains(config.target_modules, module_of(name))) continue;
        const auto [out_features, in_features] = dims(linear->weight);
        const Real bound = 1 / std::sqrt(static_cast<Real>(in_features));
        adapter.layers.push_back({name,
                                  uniform({config.r, in_features}, -bound, bound, generator),
                                  xt::zeros<Real>({out_features, config.r})});
    }
    return adapter;
}

Matrix lora_linear(const Linear& linear, const LoraLayer& layer, Real scaling,
                   const Matrix& inputs) {
    const Matrix low_rank = matmul_transposed(inputs, layer.lora_A);  // (N, r)
    const Matrix update = matmul_transposed(low_rank, layer.lora_B);  // (N, out)
    return linear(inputs) + update * scaling;
}

void check_adapter(const Model& base, const LoraAdapter& adapter) {
    const std::vector<ConstNamedLinear> linears = named_linears(base);
    for (const LoraLayer& layer : adapter.layers) find_linear(linears, layer);
}

void merge_lora(const Model& base, const LoraAdapter& adapter, Model& merged) {
    const std::vector<ConstNamedLinear> base_linears = named_linears(base);
    const std::vector<NamedLinear> merged_linears = named_linears(merged);
    for (const LoraLayer& layer : adapter.layers) {
        const Matrix& weight = find_linear(base_linears, layer).weight;
        find_linear(merged_linears, layer).weight =
            weight + scaled_product(layer, adapter.config.scaling());
    }
}

Model merge_lora(const Model& base, const LoraAdapter& adapter) {
    Model merged = base;
    merge_lora(base, adapter, merged);
    return merged;
}

void unmerge_lora(Model& merged, const LoraAdapter& adapter) {
    const std::vector<NamedLinear> linears = named_linears(merged);
    for (const LoraLayer& layer : adapter.layers) {
        Matrix& weight = find_linear(linears, layer).weight;
        weight = weight - scaled_product(layer, adapter.config.scaling());
    }
}

void lora_backward(const LoraAdapter& adapter, const Model& model_gradient,
                   LoraAdapter& gradient) {
    const Real scaling = adapter.config.scaling();
    const std::vector<ConstNamedLinear> linears = named_linears(model_gradient);
    for (std::size_t n = 0; n < adapter.layers.size(); ++n) {
        const LoraLayer& layer = adapter.layers[n];
        const Matrix& weight_gradient = find_linear(linears, layer).weight;  // (out, in)
        const Matrix b_gradient = matmul_transposed(weight_gradient, layer.lora_A);  // (out, r)
        const Matrix a_gradient = transposed_matmul(layer.lora_B, weight_gradient);  // (r, in)
        gradient.layers[n].lora_B = gradient.layers[n].lora_B + b_gradient * scaling;
        gradient.layers[n].lora_A = gradient.layers[n].lora_A + a_gradient * scaling;
    }
}

std::vector<Parameter> named_parameters(LoraAdapter& adapter) {
    std::vector<Parameter> list;
    for (auto& [name, lora_A, lora_B] : adapter.layers) {
        add_parameters(list, "base_model.model." + name + ".lora_A.weight", lora_A);
        add_parameters(list, "base_model.model." + name + ".lora_B.weight", lora_B);
    }
    return list;
}

std::uint64_t num_parameters(const LoraAdapter& adapter) {
    std::uint64_t count = 0;
    for (const LoraLayer& layer : adapter.layers)
        count += layer.lora_A.size() + layer.lora_B.size();
    return count;
}

std::uint64_t optimizer_bytes(std::uint64_t num_trainable_parameters) {
    return num_trainable_parameters * 2 * sizeof(Real);
}

}  // namespace llm
