// A model of each family, exported as a GGUF file and read again, is the same model.
#include <cmath>
#include <map>

#include "common/files/gguf.hpp"
#include "tests/support/random_family.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// A file with the metadata of a model, changed, and of its tensors the embedding and the norm
// of the last layer.
std::string write_metadata(const Scratch& scratch, const FamilyModel& model,
                           const std::string& architecture, std::size_t num_layers,
                           const std::function<void(GgufMetadata&)>& change) {
    const std::string path = (scratch.folder / "model.gguf").string();
    GgufMetadata metadata = {{"general.architecture", architecture}};
    for (const auto& entry : models::size_metadata(architecture, model.config))
        metadata.push_back(entry);
    if (model.config.family->add_gguf) model.config.family->add_gguf(model.config, metadata);
    change(metadata);
    models::GgufTensorList list(DType::float32);
    list.add_matrix("token_embd.weight", model.embed_tokens);
    list.add_vector("blk." + to_text(num_layers - 1) + ".attn_norm.weight",
                    xt::ones<Real>({model.config.hidden_size}));
    write_gguf(path, metadata, list.tensors());
    return path;
}

}  // namespace

TEST_CASE("load_family_gguf: the file of each family has the logits of the exported model") {
    Generator generator(11);
    for (const std::string& type : exportable_models()) {
        CAPTURE(type);
        const FamilyModel model = random_model(type);
        const Scratch scratch;
        const std::string path = (scratch.folder / "model.gguf").string();
        models::export_gguf(model, shipped_tokenizer(), path);
        const FamilyModel loaded = load_family_gguf(path);
        const IdMatrix ids = randint(0, 1024, {2, 19}, generator);
        // A GLM-4.7-Flash is a DeepSeek-V3 there.
        const Family* const family = model.config.family;
        CHECK(loaded.config.family ==
              (family == &glm4_moe_lite_family() ? &deepseek_v3_family() : family));
        CHECK_CLOSE(loaded(ids), model(ids), 2e-6);
        // A phi3 on the other side of the original length.
        const IdMatrix few = xt::view(ids, xt::all(), xt::range(0, 9));
        CHECK_CLOSE(loaded(few), model(few), 2e-6);

        // What was quantized is read, too; the loaded model can be exported again.
        const std::string quantized = (scratch.folder / "q8_0.gguf").string();
        models::export_gguf(model, shipped_tokenizer(), quantized, DType::q8_0);
        CHECK(difference(load_family_gguf(quantized)(ids), model(ids), 1e-6) != "");
        CHECK(Gguf(quantized).integer("general.quantization_version") == 2);
        CHECK_FALSE(Gguf(path).has("general.quantization_version"));
        const std::string prefix = model.config.family->gguf_architecture + ".";
        const Config& sizes = model.config;
        for (const auto& [key, size] : {std::pair{"block_count", sizes.num_hidden_layers},
                                        {"context_length", sizes.max_position_embeddings},
                                        {"embedding_length", sizes.hidden_size},
                                        {"feed_forward_length", sizes.intermediate_size},
                                        {"vocab_size", sizes.vocab_size},
                                        {"attention.head_count", sizes.num_attention_heads}})
            CHECK(Gguf(path).size(prefix + key) == size);
        models::export_gguf(loaded, shipped_tokenizer(),
                            (scratch.folder / "again.gguf").string());
        const Gguf first(path), again((scratch.folder / "again.gguf").string());
        CHECK(first.tensors().size() == again.tensors().size());
    }
}

TEST_CASE("load_family_gguf names what the file lacks or what it does not read") {
    const FamilyModel model = random_model("granite");
    const auto rejection = [&](const std::function<void(GgufMetadata&)>& change) {
        const Scratch scratch;
        const std::string path = write_metadata(scratch, model, "granite", 4, change);
        try {
            load_family_gguf(path);
        } catch (const FileError& error) {
            return std::string(error.what()).substr(path.size() + 2);
        }
        return std::string("not rejected");
    };
    const auto without = [](const std::string& key) {
        return [key](GgufMetadata& metadata) {
            std::erase_if(metadata, [&](const auto& entry) { return entry.first == key; });
        };
    };
    CHECK(mentions(rejection([](GgufMetadata&) {}), "blk.0.attn_norm.weight"));
    CHECK(mentions(rejection([](GgufMetadata& metadata) {
                       for (auto& [key, value] : metadata)
                           if (key == "granite.block_count") value = std::int64_t{1 << 24};
                   }),
                   "blk.16777215.attn_norm.weight"));
    CHECK(mentions(rejection(without("granite.residual_scale")), "granite.residual_scale"));
    CHECK(mentions(rejection([](GgufMetadata& metadata) {
                       metadata.emplace_back("granite.attention.clamp_kqv", 8.0);
                   }),
                   "granite.attention.clamp_kqv"));
    CHECK(mentions(rejection([](GgufMetadata& metadata) {
                       metadata.emplace_back("granite.attention.clamp_kqv", 0.0);  // none
                   }),
                   "blk.0.attn_norm.weight"));
    CHECK(mentions(rejection([](GgufMetadata& metadata) {
                       for (auto& [key, value] : metadata)
                           if (key == "granite.logit_scale") value = 0.0;
                   }),
                   "granite.logit_scale must be above 0 and below 1e30, not 0"));
    CHECK(mentions(rejection([](GgufMetadata& metadata) {
                       for (auto& [key, value] : metadata)
                           if (key == "granite.rope.dimension_count") value = std::int64_t{8};
                   }),
                   "granite.rope.dimension_count 8 is not supported; supported: at most the "
                   "head_dim, 6"));
}

TEST_CASE("read_family_config: sizes that decide settings, and experts that are too few") {
    const auto config_with = [](const std::string& type, const std::string& architecture,
                                const std::map<std::string, std::int64_t>& numbers,
                                std::size_t num_layers) {
        const Scratch scratch;
        const FamilyModel model = random_model(type);
        const std::string path = write_metadata(
            scratch, model, architecture, num_layers, [&](GgufMetadata& metadata) {
                for (auto& [name, value] : metadata)
                    for (const auto& [key, number] : numbers)
                        if (name == architecture + "." + key) value = number;
            });
        return read_family_config(Gguf(path));
    };
    // Gemma 2 of 27 billion parameters scales scores by C / H.
    const auto gemma2 = [&](std::int64_t num_layers) {
        return config_with("gemma2", "gemma2",
                           {{"block_count", num_layers}, {"attention.head_count", 2}},
                           std::size_t(num_layers));
    };
    CHECK(attention(gemma2(4)).scale == 1 / std::sqrt(6.0));  // head_dim
    CHECK(attention(gemma2(46)).scale == 1 / std::sqrt(12.0));
    CHECK_THROWS_AS(config_with("mixtral", "llama", {{"expert_used_count", 100}}, 4),
                    FileError);
}

TEST_CASE("find_family: a llama without experts is chapter 09's") {
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    for (const auto& [architecture, experts, expected] :
         {std::tuple{"llama", 0, (const Family*)nullptr},
          {"llama", 8, &mixtral_family()},
          {"qwen3", 0, nullptr},
          {"gemma3", 0, &gemma3_family()}}) {
        const std::string name = architecture;
        write_gguf(
            path,
            {{"general.architecture", name}, {name + ".expert_count", std::int64_t{experts}}},
            {});
        CHECK(find_family(Gguf(path)) == expected);
    }
}

TEST_CASE("a GGUF file of qwen3_next whose decay is not below 0 is rejected by name") {
    FamilyModel model = random_model("qwen3_next");
    auto& attention = std::get<QwenNextBlock>(model.layers[1]).self_attn;
    attention.decay->A_log(2) = -200;  // -e^-200 is stored as 0
    const Scratch scratch;
    const std::string file = (scratch.folder / "model.gguf").string();
    models::export_gguf(model, shipped_tokenizer(), file, DType::float32);
    CHECK_THROWS_WITH_AS(load_family_gguf(file),
                         (file + ": blk.1.ssm_a must be below 0").c_str(), FileError);
}

TEST_CASE("find_family: an unknown architecture is answered with all that can be read") {
    const Scratch scratch;
    const auto family_of = [&](const std::string& architecture) {
        write_gguf(scratch.folder / "model.gguf", {{"general.architecture", architecture}}, {});
        return find_family(Gguf(scratch.folder / "model.gguf"));
    };
    CHECK(family_of("gemma2") == &gemma2_family());
    CHECK(family_of("qwen3") == nullptr);  // chapter 09 reads it
    CHECK_THROWS_WITH_AS(
        family_of("mamba"),
        doctest::Contains("general.architecture mamba is not supported; supported: bert, "
                          "cohere2, deepseek2, gemma, gemma2, gemma3, "),
        FileError);
}
