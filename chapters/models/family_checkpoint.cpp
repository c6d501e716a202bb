#include "chapters/models/family_checkpoint.hpp"

#include <list>
#include <set>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/models/gguf/gguf_export.hpp"
#include "chapters/models/layer_tensors.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/stacked_experts.hpp"
#include "chapters/models/tensor_list.hpp"

namespace llm::models {
namespace {

struct WeightReader : TensorReader<const SafeTensors> {
    const FamilyConfig& config;

    void router(const std::string& name, Linear& router, std::size_t out, std::size_t in) {
        linear(name, router, out, in);
    }
    void linear(const std::string& name, Linear& linear, std::size_t out, std::size_t in) {
        if (!config.family->layout.transposed)
            return TensorReader::linear(name, linear, out, in);
        linear.weight = xt::transpose(tensors.read(name + ".weight", {in, out}));
        if (linear.bias) linear.bias = tensors.read(name + ".bias", {out});
    }
    void norm(const std::string& name, Vector& weight, std::size_t size) {
        TensorReader::norm(name, weight, size);
        weight = weight + config.family->layout.norm_offset;
    }
    void vector(const std::string& name, Vector& values, std::size_t size) {
        values = tensors.read(name, {size});
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<Linear>, N>& parts,
                 std::size_t in, std::size_t num_groups) {
        split_groups(*this, name, parts, in, num_groups);
    }
    void convolution(const std::string& name, Matrix& weight, std::size_t channels,
                     std::size_t kernel_size) {
        const Tensor3 stored =  // of nn.Conv1d
            tensors.read(name + ".weight", {channels, std::size_t{1}, kernel_size});
        weight = reshape(stored, {channels, kernel_size});
    }
    void a_log(const std::string& name, Vector& values, std::size_t size) {
        vector(name, values, size);
    }
    void rotated(const std::string& name, Linear& stored, std::size_t out, std::size_t in,
                 const RotatedRows& rows) {
        linear(name, stored, out, in);
        stored = reorder_rows(stored, rows, interleaved_index);
    }
    void latent_up(const std::string& layer, const FamilyLayerNames& names, Linear& kv_b_proj,
                   const LatentSizes& sizes) {
        linear(layer + names.kv_b_proj, kv_b_proj,
               sizes.num_attention_heads * (sizes.qk_nope_head_dim + sizes.v_head_dim),
               sizes.kv_lora_rank);
    }
    void experts(const std::string& layer, const FamilyLayerNames& names, const MoeConfig& moe,
                 std::vector<Expert>& experts) {
        const std::string prefix = layer + names.experts;
        if (names.expert.gate_proj.empty())
            return read_stacked_experts(tensors, config, moe, prefix, experts);
        if (has_fused_experts(tensors, prefix))
            return read_fused_experts(tensors, moe, config.hidden_size, prefix, experts);
        for (std::size_t e = 0; e < experts.size(); ++e)
            visit_mlp(std::get<GatedMlp>(experts[e]), prefix + std::to_string(e) + ".",
                      names.expert, config.hidden_size, moe.sizes.moe_intermediate_size, *this);
    }
};

// Lists what the file stores: the tensors of the model, and those that are stored in another
// layout, which the lists own.
struct TensorWriter : TensorList {
    const FamilyConfig& config;
    std::list<Matrix> transposed{};
    std::list<Vector> norms{};
    std::list<StackedExperts> stacked{};
    std::list<Tensor3> convolutions{};

    void linear(const std::string& name, const Linear& linear, std::size_t out,
                std::size_t in) {
        if (!config.family->layout.transposed) return TensorList::linear(name, linear, out, in);
        matrix(name, transposed.emplace_back(xt::transpose(linear.weight)), in, out);
        if (linear.bias) bias(name, *linear.bias, out);
    }
    void router(const std::string& name, const Linear& router, std::size_t out,
                std::size_t in) {
        linear(name, router, out, in);
    }
    void norm(const std::string& name, const Vector& weight, std::size_t) {
        const Real offset = config.family->layout.norm_offset;
        tensors.push_back(named(name + ".weight", norms.emplace_back(weight - offset)));
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<const Linear>, N>& parts,
                 std::size_t in, std::size_t num_groups) {
        linear(name, reordered.emplace_back(fuse_groups(parts, num_groups)), 0, in);
    }
    void convolution(const std::string& name, const Matrix& weight, std::size_t channels,
                     std::size_t kernel_size) {
        const Tensor3& stored =
            convolutions.emplace_back(reshape(weight, {channels, std::size_t{1}, kernel_size}));
        tensors.push_back(named(name + ".weight", stored));
    }
    void a_log(const std::string& name, const Vector& values, std::size_t size) {
        vector(name, values, size);
    }
    void rotated(const std::string& name, const Linear& stored, std::size_t out, std::size_t in,
                 const RotatedRows& rows) {
        linear(name, reordered.emplace_back(reorder_rows(stored, rows, split_half_index)), out,
               in);
    }
    void latent_up(const std::string& layer, const FamilyLayerNames& names,
                   const Linear& kv_b_proj, const LatentSizes&) {
        linear(layer + names.kv_b_proj, kv_b_proj, 0, 0);
    }
    void experts(const std::string& layer, const FamilyLayerNames& names, const MoeConfig& moe,
                 const std::vector<Expert>& experts) {
        const std::string prefix = layer + names.experts;
        if (!names.expert.gate_proj.empty()) {
            for (std::size_t e = 0; e < experts.size(); ++e)
                visit_mlp(std::get<GatedMlp>(experts[e]), prefix + std::to_string(e) + ".",
                          names.expert, 0, 0, *this);
            return;
        }
        const StackedExperts& all = stacked.emplace_back(stack_experts(experts, config, moe));
        tensors.push_back(named(prefix + "gate_up_proj", all.gate_up_proj));
        tensors.push_back(named(prefix + "down_proj", all.down_proj));
        if (all.down_bias.size() == 0) return;
        tensors.push_back(named(prefix + "gate_up_proj_bias", all.gate_up_bias));
        tensors.push_back(named(prefix + "down_proj_bias", all.down_bias));
    }
};

// Mixtral's MLP is called block_sparse_moe in published files; transformers 5 may write mlp.
void name_as_published(const Family& family, SafeTensors& tensors) {
    const std::string published = "block_sparse_moe.", written = "mlp.";
    if (!family.names.router.starts_with(published)) return;
    tensors.rename([&](const std::string& name) -> std::string {
        const std::size_t at = name.find("." + written);
        if (at == name.npos) return name;
        return name.substr(0, at + 1) + published + name.substr(at + 1 + written.size());
    });
}

// The number of layers among the tensors that were not read whose names begin so.
std::size_t count_unread_layers(const SafeTensors& tensors, const std::string& begin) {
    std::set<std::string> numbers;
    for (const std::string& name : tensors.unread())
        if (!begin.empty() && name.starts_with(begin))
            numbers.insert(
                name.substr(begin.size(), name.find('.', begin.size()) - begin.size()));
    return numbers.size();
}

}  // namespace

FamilyModel load_family_model(const std::string& folder) {
    return load_family_model(folder, family_named_in(open_config(folder + "/config.json")));
}

FamilyModel load_family_model(const std::string& folder, const Family& family) {
    const JsonFile json = open_config(folder + "/config.json");
    const FamilyConfig config = read_family_config(json, family);
    const bool stacked = !family.names.experts.empty() && family.names.expert.gate_proj.empty();
    if (!stacked || quantization_method(json) != "mxfp4") reject_quantized_weights(json);
    reject_other_head(json, config.tie_word_embeddings);
    const TensorNames& names = family.model_names;
    SafeTensors tensors(folder);
    name_as_causal_lm(json, names.embed_tokens, names.lm_head, tensors);
    name_as_published(family, tensors);
    check_last_layer(config, tensors, names, family.names);
    check_experts(config, tensors, names, family.names);
    FamilyModel model = make_empty_model(config);
    WeightReader reader{{tensors}, model.config};
    visit_model(model, names, family.names, family.layout.rope, reader);
    // Layers for multi-token prediction follow those of the model.
    std::vector<std::string> unused = family.unused_tensors;
    for (std::size_t n = 0; n < config.num_nextn_predict_layers; ++n)
        unused.push_back(names.layer + std::to_string(config.num_hidden_layers + n) + ".");
    model.config.num_nextn_predict_layers += count_unread_layers(tensors, family.nextn_layers);
    reject_unread_tensors(tensors, json, names.lm_head, model.embed_tokens, unused);
    return model;
}

void export_model(const FamilyModel& model, const std::string& folder, DType dtype) {
    TensorWriter writer{{}, model.config};
    const Family& family = *model.config.family;
    visit_model(model, family.model_names, family.names, family.layout.rope, writer);
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", writer.tensors, dtype);
    write_json(folder + "/config.json", config_json(model.config, dtype));
}

}  // namespace llm::models
