#include "chapters/models/parameter_count.hpp"

#include <algorithm>
#include <utility>

#include "chapters/models/layer_tensors.hpp"

namespace llm::models {
namespace {

// A visitor (layer_tensors.hpp) that adds the sizes of tensors, which may be empty.
struct ParameterCounter {
    const FamilyConfig& config;
    ParametersByPart count{};

    // Hugging Face's names of all attention layers have "attn": self_attn, linear_attn. What
    // stands there instead counts with them: conv.
    std::uint64_t& part(const std::string& name) {
        const bool is_mixer =
            name.find("attn") != name.npos || name.find(".conv.") != name.npos;
        return is_mixer ? count.attention : count.dense_mlp;
    }
    void add_matrix(std::uint64_t& sum, std::uint64_t rows, std::uint64_t columns,
                    bool has_bias) {
        sum += rows * columns + (has_bias ? rows : 0);
        count.active_matrix_elements += rows * columns;
    }

    void matrix(const std::string& name, const Matrix&, std::uint64_t rows,
                std::uint64_t columns) {
        const TensorNames& names = config.family->model_names;
        std::uint64_t& sum = name == names.embed_tokens ? count.embedding
                             : name == names.lm_head    ? count.head
                                                        : count.positions;
        sum += rows * columns;
    }
    void linear(const std::string& name, const Linear& linear, std::size_t out,
                std::size_t in) {
        add_matrix(part(name), out, in, linear.bias.has_value());
    }
    void rotated(const std::string& name, const Linear& projection, std::size_t out,
                 std::size_t in, const RotatedRows&) {
        linear(name, projection, out, in);
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<const Linear>, N>& parts,
                 std::size_t in, std::size_t num_groups) {
        for (const auto& [layer, first, rows] : parts)
            linear(name, *layer, rows * num_groups, in);
    }
    void latent_up(const std::string& layer, const FamilyLayerNames& names,
                   const Linear& kv_b_proj, const LatentSizes& sizes) {
        linear(layer + names.kv_b_proj, kv_b_proj,
               sizes.num_attention_heads * (sizes.qk_nope_head_dim + sizes.v_head_dim),
               sizes.kv_lora_rank);
    }
    void convolution(const std::string& name, const Matrix&, std::size_t channels,
                     std::size_t kernel_size) {
        add_matrix(part(name), channels, kernel_size, false);
    }
    void router(const std::string&, const Linear& router, std::size_t out, std::size_t in) {
        // One output: the gate of the shared expert, which counts as dense.
        add_matrix(out == 1 ? count.dense_mlp : count.router, out, in, router.bias.has_value());
    }
    void experts(const std::string&, const FamilyLayerNames&, const MoeConfig& moe,
                 const std::vector<Expert>&) {
        const std::uint64_t C = config.hidden_size, F = moe.sizes.moe_intermediate_size;
        const std::uint64_t expert = 3 * C * F + (moe.bias ? 2 * F + C : 0);
        const std::uint64_t num_active = moe.sizes.num_experts_per_tok;
        count.experts += moe.sizes.num_experts * expert;
        count.active_experts += num_active * expert;
        count.active_matrix_elements += num_active * 3 * C * F;
    }
    void norm(const std::string&, const Vector&, std::size_t size) { count.norms += size; }
    void bias(const std::string&, const Vector&, std::size_t size) { count.norms += size; }
    void a_log(const std::string& name, const Vector& values, std::size_t size) {
        vector(name, values, size);
    }
    // The norm of linear attention's heads counts as a norm; attention sinks, A_log and dt_bias
    // as attention. The correction bias of a router, which no gradient changes, counts apart.
    void vector(const std::string& name, const Vector&, std::size_t size) {
        const FamilyLayerNames& names = config.family->names;
        const bool is_bias =
            !names.correction_bias.empty() && name.ends_with(names.correction_bias);
        const bool is_norm = !names.state_norm.empty() && name.ends_with(names.state_norm);
        (is_norm ? count.norms : is_bias ? count.router_biases : count.attention) += size;
    }
};

}  // namespace

std::uint64_t ParametersByPart::total() const {
    return embedding + positions + attention + router + experts + dense_mlp + norms + head;
}

std::uint64_t ParametersByPart::active() const {
    return attention + router + active_experts + dense_mlp + norms + (tied ? embedding : head);
}

ParametersByPart count_parameters(const FamilyConfig& config) {
    const Family& family = *config.family;
    // Build a single expert: the number in config.json has not been checked.
    FamilyConfig smaller = config;
    for (LayerConfig& layer : smaller.layers)
        if (auto* moe = std::get_if<MoeConfig>(&layer.mlp)) moe->sizes.num_experts = 1;
    FamilyModel model = make_empty_model(smaller);
    model.config.layers = config.layers;
    ParameterCounter counter{config};
    visit_model(std::as_const(model), family.model_names, family.names, RopeLayout::split_half,
                counter);
    ParametersByPart count = counter.count;
    count.tied = config.tie_word_embeddings && config.has_lm_head;
    if (!config.has_lm_head) count.head = config.other_head_parameters;
    // A language-model head has as many elements as the embedding, tied or not.
    count.active_matrix_elements +=
        config.has_lm_head ? count.embedding : config.other_head_parameters;
    return count;
}

}  // namespace llm::models
