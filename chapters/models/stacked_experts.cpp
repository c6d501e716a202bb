#include "chapters/models/stacked_experts.hpp"

#include "chapters/18_experts/mxfp4.hpp"

namespace llm::models {
namespace {

// The columns of gate_up_proj for feature f of F.
std::size_t gate_column(const StackedExperts& all, std::size_t f) {
    return all.alternate_columns ? 2 * f : f;
}
std::size_t up_column(const StackedExperts& all, std::size_t f) {
    return all.alternate_columns ? 2 * f + 1 : all.down_proj.shape(1) + f;
}

template <class AnyExpert>
void read_expert(const StackedExperts& all, std::size_t e, AnyExpert& expert) {
    const std::size_t C = all.down_proj.shape(2), F = all.down_proj.shape(1);
    expert.gate_proj.weight = expert.up_proj.weight = Matrix(std::array{F, C});
    expert.down_proj.weight = Matrix(std::array{C, F});
    for (std::size_t f = 0; f < F; ++f)
        for (std::size_t c = 0; c < C; ++c) {
            expert.gate_proj.weight(f, c) = all.gate_up_proj(e, c, gate_column(all, f));
            expert.up_proj.weight(f, c) = all.gate_up_proj(e, c, up_column(all, f));
            expert.down_proj.weight(c, f) = all.down_proj(e, f, c);
        }
    if (all.down_bias.size() == 0) return;
    Vector gate_bias(std::array{F}), up_bias(std::array{F});
    for (std::size_t f = 0; f < F; ++f) {
        gate_bias(f) = all.gate_up_bias(e, gate_column(all, f));
        up_bias(f) = all.gate_up_bias(e, up_column(all, f));
    }
    expert.gate_proj.bias = gate_bias;
    expert.up_proj.bias = up_bias;
    expert.down_proj.bias = Vector(xt::view(all.down_bias, e, xt::all()));
}

template <class AnyExpert>
void write_expert(const AnyExpert& expert, std::size_t e, StackedExperts& all) {
    const std::size_t C = all.down_proj.shape(2), F = all.down_proj.shape(1);
    for (std::size_t f = 0; f < F; ++f)
        for (std::size_t c = 0; c < C; ++c) {
            all.gate_up_proj(e, c, gate_column(all, f)) = expert.gate_proj.weight(f, c);
            all.gate_up_proj(e, c, up_column(all, f)) = expert.up_proj.weight(f, c);
            all.down_proj(e, f, c) = expert.down_proj.weight(c, f);
        }
    if (all.down_bias.size() == 0) return;
    for (std::size_t f = 0; f < F; ++f) {
        all.gate_up_bias(e, gate_column(all, f)) = (*expert.gate_proj.bias)(f);
        all.gate_up_bias(e, up_column(all, f)) = (*expert.up_proj.bias)(f);
    }
    xt::view(all.down_bias, e, xt::all()) = *expert.down_proj.bias;
}

// MXFP4 weights are stored out × in: (E, out, in) -> (E, in, out).
Tensor3 read_mxfp4(const SafeTensors& tensors, const std::string& name, std::size_t num_experts,
                   std::size_t out, std::size_t in) {
    if (in % 32 != 0)
        throw FileError(name + ": rows of " + to_text(in) + " weights are not blocks of 32");
    Vector weights;
    try {
        weights = dequantize_mxfp4(
            tensors.read_bytes(name + "_blocks", {num_experts, out, in / 32, 16}),
            tensors.read_bytes(name + "_scales", {num_experts, out, in / 32}));
    } catch (const ValueError& error) {
        throw FileError(name + "_scales: " + error.what());
    }
    const Tensor3 stored = reshape(weights, {num_experts, out, in});
    return xt::transpose(stored, {0, 2, 1});
}

// Tensors of the sizes of a configuration.
StackedExperts empty_stack(const FamilyConfig& config, const MoeConfig& moe) {
    const std::size_t E = moe.sizes.num_experts, C = config.hidden_size,
                      F = moe.sizes.moe_intermediate_size;
    StackedExperts all{Tensor3(std::array{E, C, 2 * F}),
                       Tensor3(std::array{E, F, C}),
                       {},
                       {},
                       config.family->layout.alternate_columns};
    if (!moe.bias) return all;
    all.gate_up_bias = Matrix(std::array{E, 2 * F});
    all.down_bias = Matrix(std::array{E, C});
    return all;
}

}  // namespace

bool has_fused_experts(const SafeTensors& tensors, const std::string& name) {
    return tensors.has(name + "gate_up_proj");
}

void read_fused_experts(const SafeTensors& tensors, const MoeConfig& moe,
                        std::size_t hidden_size, const std::string& name,
                        std::vector<Expert>& experts) {
    const std::size_t E = experts.size(), C = hidden_size, F = moe.sizes.moe_intermediate_size;
    const Tensor3 gate_up = tensors.read(name + "gate_up_proj", {E, 2 * F, C});
    const Tensor3 down = tensors.read(name + "down_proj", {E, C, F});
    for (std::size_t e = 0; e < E; ++e) {
        auto& expert = std::get<GatedMlp>(experts[e]);
        expert.gate_proj.weight = xt::view(gate_up, e, xt::range(0, F), xt::all());
        expert.up_proj.weight = xt::view(gate_up, e, xt::range(F, 2 * F), xt::all());
        expert.down_proj.weight = xt::view(down, e, xt::all(), xt::all());
    }
}

void read_stacked_experts(const SafeTensors& tensors, const FamilyConfig& config,
                          const MoeConfig& moe, const std::string& name,
                          std::vector<Expert>& experts) {
    const std::size_t E = moe.sizes.num_experts, C = config.hidden_size,
                      F = moe.sizes.moe_intermediate_size;
    StackedExperts all = empty_stack(config, moe);
    if (tensors.has(name + "gate_up_proj_blocks")) {
        all.gate_up_proj = read_mxfp4(tensors, name + "gate_up_proj", E, 2 * F, C);
        all.down_proj = read_mxfp4(tensors, name + "down_proj", E, C, F);
    } else {
        all.gate_up_proj = tensors.read(name + "gate_up_proj", {E, C, 2 * F});
        all.down_proj = tensors.read(name + "down_proj", {E, F, C});
    }
    if (moe.bias) {
        all.gate_up_bias = tensors.read(name + "gate_up_proj_bias", {E, 2 * F});
        all.down_bias = tensors.read(name + "down_proj_bias", {E, C});
    }
    for (std::size_t e = 0; e < E; ++e)
        std::visit([&](auto& expert) { read_expert(all, e, expert); }, experts[e]);
}

StackedExperts stack_experts(const std::vector<Expert>& experts, const FamilyConfig& config,
                             const MoeConfig& moe) {
    StackedExperts all = empty_stack(config, moe);
    for (std::size_t e = 0; e < experts.size(); ++e)
        std::visit([&](const auto& expert) { write_expert(expert, e, all); }, experts[e]);
    return all;
}

}  // namespace llm::models
