// Experts as transformers 5 saves them with save_original_format=False: one tensor for gate and
// up of all experts of a layer, (E, 2F, C), and one for down, (E, C, F).
#include <map>
#include <regex>

#include "tests/support/published_models.hpp"
#include "tests/support/stored_tensors.hpp"

using namespace llm;
using namespace llm::models;

namespace {

using StoredTensors = std::map<std::string, StoredTensor>;

StoredTensors read_stored(const std::string& file) {
    StoredTensors tensors;
    for (const StoredTensor& tensor : read_tensors(file)) tensors[tensor.name] = tensor;
    return tensors;
}

void write_stored(const std::string& file, const StoredTensors& tensors) {
    std::vector<StoredTensor> list;
    for (const auto& [name, tensor] : tensors)
        list.push_back({name, tensor.type, tensor.shape, tensor.bytes});
    write_tensors(file, list);
}

// Gate and up of each expert, one after the other, or down.
StoredTensor fused(const StoredTensors& tensors, const std::string& prefix,
                   const std::vector<std::string>& parts) {
    StoredTensor result = tensors.at(prefix + "0." + parts[0] + ".weight");
    result.bytes.clear();
    std::size_t num_experts = 0;
    for (; tensors.contains(prefix + to_text(num_experts) + "." + parts[0] + ".weight");
         ++num_experts)
        for (const std::string& part : parts)
            result.bytes +=
                tensors.at(prefix + to_text(num_experts) + "." + part + ".weight").bytes;
    result.shape = {num_experts, parts.size() * result.shape[0], result.shape[1]};
    return result;
}

// The same tensors with fused experts, under the names of transformers 5.
StoredTensors with_fused_experts(const StoredTensors& tensors, const MlpNames& expert) {
    StoredTensors result;
    const std::regex one_expert(R"((.*\.experts\.)(\d+)\..*)");
    const auto renamed = [](const std::string& name) {
        return std::regex_replace(name, std::regex("block_sparse_moe"), "mlp");
    };
    for (const auto& [name, tensor] : tensors) {
        std::smatch match;
        if (!std::regex_match(name, match, one_expert)) {
            result[renamed(name)] = tensor;
            continue;
        }
        const std::string prefix = match[1];
        result[renamed(prefix) + "gate_up_proj"] =
            fused(tensors, prefix, {expert.gate_proj, expert.up_proj});
        result[renamed(prefix) + "down_proj"] = fused(tensors, prefix, {expert.down_proj});
    }
    return result;
}

}  // namespace

TEST_CASE("fused experts: the same logits as from a tensor for each expert, in every bit") {
    std::size_t num_families = 0;
    for (const std::string& name : family_fixtures()) {
        const FamilyModel model = load_family_model(fixture_path(name));
        const Family& family = *model.config.family;
        if (!first_moe(model.config) || family.names.expert.gate_proj.empty()) continue;
        CAPTURE(name);
        const Scratch scratch;
        const std::string folder = (scratch.folder / "model").string();
        models::export_model(model, folder, DType::bfloat16);
        const std::string file = folder + "/model.safetensors";
        const StoredTensors separate = read_stored(file);
        const StoredTensors stacked = with_fused_experts(separate, family.names.expert);
        REQUIRE(stacked.size() < separate.size());
        write_stored(file, stacked);
        const IdMatrix ids = fixture_ids(name.substr(0, name.find('/')) + "/ids");
        CHECK_CLOSE(load_family_model(folder)(ids), model(ids), 0);
        ++num_families;
    }
    CHECK(num_families >= 5);
}

TEST_CASE("fused experts of another shape are rejected by name") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("18_experts/qwen3_moe");
    const std::string file = folder + "/model.safetensors";
    StoredTensors tensors =
        with_fused_experts(read_stored(file), qwen3_moe_family().names.expert);
    for (auto& [name, tensor] : tensors)
        if (name.ends_with("gate_up_proj")) std::swap(tensor.shape[1], tensor.shape[2]);
    write_stored(file, tensors);
    CHECK_THROWS_WITH_AS(load_family_model(folder),
                         doctest::Contains("mlp.experts.gate_up_proj should have the shape"),
                         FileError);
}
