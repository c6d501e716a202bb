// GGUF files as other programs write them: layouts of earlier converters, files that llama.cpp
// saved, MXFP4.
#include "chapters/18_experts/mxfp4.hpp"
#include "chapters/models/llama/gguf_config.hpp"
#include "common/files/gguf.hpp"
#include "tests/support/random_family.hpp"

using namespace llm;
using namespace llm::models;

namespace {

using Metadata = std::map<std::string, GgufValue>;
using Tensors = std::map<std::string, std::pair<std::vector<std::size_t>, std::vector<Real>>>;

// Writes the file of a model in float32 again, after a change of its metadata and tensors.
void rewrite(const std::string& path, const std::function<void(Metadata&, Tensors&)>& change) {
    Metadata metadata;
    Tensors tensors;
    {
        const Gguf file(path);
        metadata = file.metadata();
        for (const auto& [name, tensor] : file.tensors()) {
            std::vector<Real> elements(tensor.bytes.size() / sizeof(float));
            std::memcpy(elements.data(), tensor.bytes.data(), tensor.bytes.size());
            tensors[name] = {tensor.shape, elements};
        }
    }
    change(metadata, tensors);
    std::vector<NamedGgufTensor> list;
    for (const auto& [name, tensor] : tensors)
        list.push_back(
            {name, {DType::float32, tensor.first, std::as_bytes(std::span(tensor.second))}});
    write_gguf(path, {metadata.begin(), metadata.end()}, list);
}

// The largest difference of the logits of a model and of its exported file after a change.
std::string difference_after(const FamilyModel& model,
                             const std::function<void(Metadata&, Tensors&)>& change) {
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    models::export_gguf(model, shipped_tokenizer(), path);
    rewrite(path, change);
    Generator generator(11);
    const IdMatrix ids = randint(0, 1024, {2, 19}, generator);
    return difference(load_family_gguf(path)(ids), model(ids), 2e-6);
}

// The rows of kv_b_proj from the two tensors of a layer of the newer layout.
std::vector<Real> rows_of_kv_b(const std::vector<Real>& keys, const std::vector<Real>& values,
                               std::size_t num_heads, std::size_t rank, std::size_t nope_dim,
                               std::size_t value_dim) {
    std::vector<Real> rows;
    for (std::size_t h = 0; h < num_heads; ++h) {
        for (std::size_t d = 0; d < nope_dim; ++d)
            for (std::size_t r = 0; r < rank; ++r)
                rows.push_back(keys[(h * rank + r) * nope_dim + d]);
        for (std::size_t d = 0; d < value_dim; ++d)
            for (std::size_t r = 0; r < rank; ++r)
                rows.push_back(values[(h * value_dim + d) * rank + r]);
    }
    return rows;
}

}  // namespace

TEST_CASE("deepseek2 of before April 2025: attn_kv_b, and the sizes of the expanded heads") {
    for (const std::string type : {"deepseek_v2", "deepseek_v3"}) {
        CAPTURE(type);
        for (const bool keeps_both : {false, true}) {
            const auto older = [&](Metadata& metadata, Tensors& tensors) {
                const std::size_t H = 4, R = 10, Dn = 6, Dv = 5;
                for (int n = 0; n < 4; ++n) {
                    const std::string layer = "blk." + std::to_string(n) + ".";
                    tensors[layer + "attn_kv_b.weight"] = {
                        {H * (Dn + Dv), R},
                        rows_of_kv_b(tensors.at(layer + "attn_k_b.weight").second,
                                     tensors.at(layer + "attn_v_b.weight").second, H, R, Dn,
                                     Dv)};
                    if (keeps_both) continue;
                    tensors.erase(layer + "attn_k_b.weight");
                    tensors.erase(layer + "attn_v_b.weight");
                }
                if (keeps_both) return;
                const std::string attention = "deepseek2.attention.";
                metadata[attention + "head_count_kv"] = std::int64_t(H);
                metadata[attention + "key_length"] = metadata.at(attention + "key_length_mla");
                metadata[attention + "value_length"] =
                    metadata.at(attention + "value_length_mla");
                metadata.erase(attention + "key_length_mla");
                metadata.erase(attention + "value_length_mla");
            };
            CHECK(difference_after(random_model(type), older) == "");
        }
    }
}

TEST_CASE("mixtral of before April 2024: a tensor for each expert") {
    CHECK(difference_after(random_model("mixtral"), [](Metadata&, Tensors& tensors) {
              Tensors separate;
              for (const auto& [name, tensor] : tensors) {
                  const std::size_t at = name.find("_exps.");
                  if (at == name.npos) {
                      separate[name] = tensor;
                      continue;
                  }
                  const auto& [shape, elements] = tensor;
                  const std::size_t size = elements.size() / shape[0];
                  for (std::size_t e = 0; e < shape[0]; ++e) {
                      const auto begin = elements.begin() + std::ptrdiff_t(e * size);
                      separate[name.substr(0, at) + "." + std::to_string(e) + ".weight"] = {
                          {shape[1], shape[2]}, {begin, begin + std::ptrdiff_t(size)}};
                  }
              }
              tensors = separate;
          }) == "");
}

// The keys of a file of llama_model_save_to_file (libllama 0.5.0) that are not those of the
// architecture.
TEST_CASE("a file that llama.cpp saved has the defaults of all architectures") {
    for (const std::string type : {"granite", "deepseek_v3"}) {
        CAPTURE(type);
        const FamilyModel model = random_model(type);
        const std::string prefix = model.config.family->gguf_architecture + ".";
        const auto saved = [&](Metadata& metadata, Tensors&) {
            const Metadata defaults = {
                {"attn_logit_softcapping", 50.0},
                {"router_logit_softcapping", 30.0},
                {"final_logit_softcapping", 30.0},
                {"expert_group_scale", double(0.05F)},
                {"pooling_type", std::int64_t(0xFFFFFFFF)},
                {"decoder_start_token_id", std::int64_t(-1)},
                {"deepstack_mapping", std::vector<std::int64_t>(4, -1)},
                {"swiglu_clamp_exp", std::vector<double>(4, 0.0)},
                {"use_parallel_residual", false},
                {"token_shift_count", std::int64_t(2)},
                {"attention.causal", true},
                {"attention.rope_pattern", std::int64_t(1)},
                {"attention.key_length_swa", std::int64_t(6)},
                {"rope.freq_base_swa", 10000.0},
                {"rope.dimension_sections", std::vector<std::int64_t>(4, 0)},
                {"rope.scaling.attn_factor", 1.0},
                {"rope.scaling.yarn_ext_factor", -1.0},
                {"rope.scaling.yarn_beta_fast", 32.0},
                {"rope.scaling.yarn_beta_slow", 1.0},
                {"activation.situ_beta", 1.0},
                {"classifier.output_labels", std::vector<std::string>()}};
            for (const auto& [key, value] : defaults) metadata.emplace(prefix + key, value);
        };
        CHECK(difference_after(model, saved) == "");
        for (const auto& [key, value] : std::vector<std::pair<std::string, GgufValue>>{
                 {"attn_logit_softcapping", 40.0},
                 {"attention.causal", false},
                 {"rope.scaling.yarn_beta_fast", 16.0},
                 {"attention.rope_pattern", std::int64_t(2)},
                 {"swiglu_clamp_exp", std::vector<double>{0.0, 7.0}}}) {
            const std::string& name = key;
            CAPTURE(name);
            const GgufValue other = value;
            const auto changed = [&](Metadata& metadata, Tensors&) {
                metadata[prefix + name] = other;
            };
            CHECK_THROWS_WITH_AS(difference_after(model, changed),
                                 doctest::Contains((prefix + name).c_str()), FileError);
        }
    }
}

TEST_CASE("MXFP4 in GGUF: the halves of a byte are 16 weights apart") {
    // The same weights in the order of safetensors, which chapter 18 compares with PyTorch.
    std::vector<std::byte> blocks, halves, scales;
    for (unsigned i = 0; i < 64; ++i) blocks.push_back(std::byte((i * 37 + 11) & 255));
    for (const unsigned scale : {127u, 120u, 131u, 0u}) scales.push_back(std::byte(scale));
    const Vector expected = dequantize_mxfp4(blocks, scales);
    const auto nibble = [&](std::size_t block, std::size_t i) {
        const auto byte = std::to_integer<unsigned>(blocks[16 * block + i / 2]);
        return i % 2 == 0 ? byte & 15 : byte >> 4;
    };
    for (std::size_t block = 0; block < 4; ++block) {
        halves.push_back(scales[block]);
        for (std::size_t i = 0; i < 16; ++i)
            halves.push_back(std::byte(nibble(block, i) | nibble(block, 16 + i) << 4));
    }
    const Scratch scratch;
    const fs::path path = scratch.folder / "model.gguf";
    const auto write = [&] {
        write_gguf(path, {{"general.architecture", std::string("llama")}},
                   {{"w", {DType::mxfp4, {2, 64}, halves}}});
    };
    write();
    CHECK_CLOSE(Gguf(path).read("w", {2, 64}), reshape(expected, {2, 64}), 0);
    halves[17] = std::byte(255);
    write();
    CHECK_THROWS_WITH_AS(Gguf(path).read("w", {2, 64}),
                         doctest::Contains("tensor w has an element that is not finite"),
                         FileError);
}
