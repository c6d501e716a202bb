// Published ViTs against a plain PyTorch reference (tests/make/make_vit_fixtures.py), their
// settings, and what is rejected.
#include <cstring>

#include "chapters/models/encoders/vit.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "common/files/safetensors.hpp"
#include "tests/support/change_members.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const std::vector<std::string> vit_fixtures = {"vit", "vit_classifier"};

Tensor4 pictures_of(const std::string& name, const std::string& size = "native") {
    return fixture<4>("27_vision/" + name + "_" + size + "_pixel_values");
}
VitFamilyModel vit_fixture(const std::string& name) {
    return load_vit(fixture_path("models/" + name));
}

void check_output(const std::optional<Matrix>& actual, const std::string& file) {
    CAPTURE(file);
    REQUIRE(actual.has_value() == fs::exists(fixture_file("27_vision/" + file)));
    if (actual) CHECK_CLOSE(*actual, fixture<2>("27_vision/" + file), 2e-5);
}

bool differs(const std::optional<Matrix>& a, const std::optional<Matrix>& b) {
    return a.has_value() != b.has_value() || (a && difference(*a, *b, 1e-4) != "");
}

// The settings of a config.json with these members.
VitFamilyConfig read_vit(const std::string& members) {
    const Scratch scratch;
    overwrite(scratch.folder / "config.json",
              R"({"model_type": "vit")" + (members.empty() ? "" : ", " + members) + "}");
    return read_vit_config(open_config(scratch.folder / "config.json"));
}

// The message without the path of the file and the advice to --ignore the setting.
std::string rejection_of_vit(const std::string& members) {
    try {
        read_vit(members);
    } catch (const FileError& error) {
        const std::string message = error.what();
        const std::size_t begin = message.find(": ") + 2;
        return message.substr(begin, message.find(" (--ignore ") - begin);
    }
    return "not rejected";
}

// The message with which a copy of a fixture with changed settings is rejected.
std::string rejection_of_vit_copy(const std::string& name, const nlohmann::json& changes) {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/" + name);
    change_members(folder + "/config.json", changes);
    try {
        load_vit(folder);
    } catch (const FileError& error) {
        const std::string message = error.what();
        REQUIRE(message.starts_with(folder + "/"));
        return message.substr(folder.size() + 1);
    }
    return "not rejected";
}

}  // namespace

TEST_CASE("load_vit: the fixtures equal PyTorch, also for pictures of other sizes") {
    for (const std::string& name : vit_fixtures) {
        const VitFamilyModel model = vit_fixture(name);
        for (const std::string size : {"native", "large", "wide"}) {
            const std::string file = name + "_" + size;
            if (!fs::exists(fixture_file("27_vision/" + file + "_pixel_values"))) continue;
            const VitOutputs outputs = encode(model, pictures_of(name, size), true);
            CHECK_CLOSE(outputs.last_hidden_state,
                        fixture<3>("27_vision/" + file + "_last_hidden_state"), 2e-5);
            check_output(outputs.pooler_output, file + "_pooler_output");
            check_output(outputs.logits, file + "_logits");
        }
    }
}

TEST_CASE("a ViT has two classes of published files, and reads either without a prefix") {
    CHECK(vit_fixture("vit").pooler);
    CHECK_FALSE(vit_fixture("vit").classifier);
    const VitFamilyModel model = vit_fixture("vit_classifier");
    CHECK_FALSE(model.pooler);
    REQUIRE(model.classifier);
    CHECK(model.config.id2label.at("2") == "cross");

    // A file of ViTForImageClassification whose encoder has no prefix, and a token for masked
    // pictures, which nothing reads here.
    const Scratch scratch;
    VitFamilyModel base = vit_fixture("vit_classifier");
    const VitOutputs outputs = encode(base, pictures_of("vit_classifier"));
    const std::string folder = scratch.folder.string();
    models::export_model(base, folder);
    std::string bytes = content(folder + "/model.safetensors");
    std::uint64_t header_size = 0;
    std::memcpy(&header_size, bytes.data(), sizeof header_size);
    for (std::size_t at = 0; (at = bytes.find("\"vit.", at)) != bytes.npos; header_size -= 4)
        bytes.replace(at, 5, "\"");
    std::memcpy(bytes.data(), &header_size, sizeof header_size);
    overwrite(folder + "/model.safetensors", bytes);
    const VitOutputs same = encode(load_vit(folder), pictures_of("vit_classifier"));
    CHECK_CLOSE(*same.logits, *outputs.logits, 0);
}

TEST_CASE("an exported ViT has the tensors of the file, and the same settings") {
    for (const std::string& name : vit_fixtures) {
        CAPTURE(name);
        const Scratch scratch;
        const std::string first = (scratch.folder / "first").string(),
                          second = (scratch.folder / "second").string();
        VitFamilyModel model = vit_fixture(name);
        models::export_model(model, first);
        const SafeTensors written(first), read(fixture_path("models/" + name));
        CHECK(written.names() == read.names());
        CHECK(written.checksum() == read.checksum());
        VitFamilyModel copy = load_vit(first);
        const VitOutputs a = encode(model, pictures_of(name)),
                         b = encode(copy, pictures_of(name));
        CHECK_CLOSE(a.last_hidden_state, b.last_hidden_state, 0);
        CHECK(copy.config.id2label == model.config.id2label);
        models::export_model(copy, second);
        for (const std::string file : {"/config.json", "/model.safetensors"})
            CHECK(content(first + file) == content(second + file));
        models::export_model(copy, second, DType::bfloat16);
        CHECK(mentions(content(second + "/config.json"), "\"bfloat16\""));
        load_vit(second);
    }
}

TEST_CASE("every change of a ViT's changes.json changes an output") {
    const VitOutputs unchanged = encode(vit_fixture("vit"), pictures_of("vit"));
    const std::string file = fixture_path("models/vit") + "/changes.json";
    for (const nlohmann::json& changes : nlohmann::json::parse(content(file))) {
        CAPTURE(changes.dump());
        const Scratch scratch;
        const std::string folder = scratch.copy_of("models/vit");
        change_members(folder + "/config.json", changes);
        const VitOutputs outputs = encode(load_vit(folder), pictures_of("vit"), true);
        const bool other_states =
            difference(outputs.last_hidden_state, unchanged.last_hidden_state, 1e-4) != "";
        const bool other_pooler = differs(outputs.pooler_output, unchanged.pooler_output);
        CHECK((other_states || other_pooler));
    }
}

TEST_CASE("the pooler of a ViT may have another width than the model") {
    VitFamilyModel model = vit_fixture("vit");
    const VitOutputs outputs = encode(model, pictures_of("vit"));
    model.config.pooler_output_size = 5;  // the first five rows
    const Matrix weight = xt::view(model.pooler->weight, xt::range(0, 5), xt::all());
    const Vector bias = xt::view(*model.pooler->bias, xt::range(0, 5));
    model.pooler = Linear{weight, bias};
    const Scratch scratch;
    models::export_model(model, scratch.folder.string());
    const VitOutputs narrow = encode(load_vit(scratch.folder.string()), pictures_of("vit"));
    const Matrix expected = xt::view(*outputs.pooler_output, xt::all(), xt::range(0, 5));
    CHECK_CLOSE(*narrow.pooler_output, expected, 1e-6);
}

TEST_CASE("count_parameters of a ViT: embeddings, layers and heads") {
    VitFamilyModel vit = vit_fixture("vit");
    const std::uint64_t C = 24, F = 14;
    const VitParameters count = count_parameters(vit);
    CHECK(count.embeddings == C * (3 * 4 * 4) + C + C + (1 + 15) * C);
    CHECK(count.layers == 2 * (4 * C * C + 4 * C + 2 * C * F + F + C + 4 * C) + 2 * C);
    CHECK(count.heads == C * C + C);
    CHECK(count.total() == count.embeddings + count.layers + count.heads);
    VitFamilyModel classifier = vit_fixture("vit_classifier");
    CHECK(count_parameters(classifier).heads == 5 * C + 5);
}

TEST_CASE("the defaults of ViT are those of transformers, and published keys are read") {
    const VitFamilyConfig config = read_vit("");
    CHECK(config.architecture == "ViTModel");
    CHECK(config.image_height == 224);
    CHECK(config.image_width == 224);
    CHECK(config.patch_size == 16);
    CHECK(config.num_channels == 3);
    CHECK(config.hidden_size == 768);
    CHECK(config.intermediate_size == 3072);
    CHECK(config.num_hidden_layers == 12);
    CHECK(config.num_attention_heads == 12);
    CHECK(config.layer_norm_eps == Real(1e-12));
    CHECK(config.hidden_act.name == "gelu");
    CHECK(config.pooler_act.name == "tanh");
    CHECK(config.pooler_output_size == 768);
    CHECK(config.qkv_bias);
    // The keys of google/vit-base-patch16-224.
    const VitFamilyConfig google = read_vit(
        R"("_name_or_path": "google/vit-base-patch16-224-in21k",
        "architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0,
        "encoder_stride": 16, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
        "hidden_size": 768, "id2label": {"0": "tench, Tinca tinca", "1": "goldfish"},
        "image_size": 224, "initializer_range": 0.02, "intermediate_size": 3072,
        "label2id": {"tench, Tinca tinca": 0, "goldfish": 1}, "layer_norm_eps": 1e-12,
        "num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12,
        "patch_size": 16, "qkv_bias": true, "transformers_version": "4.13.0.dev0")");
    CHECK(google.num_labels == 2);
    CHECK(google.id2label.at("0") == "tench, Tinca tinca");
    CHECK(read_vit(R"("image_size": [32, 48], "patch_size": [8, 8])").image_width == 48);
}

TEST_CASE("ViT: settings that would change a result are rejected by name") {
    for (const auto& [members, message] : std::vector<std::pair<std::string, std::string>>{
             {R"("image_size": 220)",
              "a patch_size of 16 does not divide an image_size of 220 x 220"},
             {R"("image_size": [224, 230])",
              "a patch_size of 16 does not divide an image_size of 224 x 230"},
             {R"("image_size": [1, 2, 3])",
              "image_size must be one number, or height and width"},
             {R"("image_size": 0)",
              "a patch_size of 16 does not divide an image_size of 0 x 0"},
             {R"("image_size": [224, 0])",
              "a patch_size of 16 does not divide an image_size of 224 x 0"},
             {R"("patch_size": [16, 8])",
              "patch_size [16,8] is not supported; supported: squares"},
             {R"("patch_size": 0)",
              "a patch_size of 0 does not divide an image_size of 224 x 224"},
             {R"("num_attention_heads": 5)",
              "5 heads do not divide a hidden size of 768 into even parts"},
             {R"("hidden_act": "xielu")",
              "hidden_act xielu is not supported; supported: silu, gelu, relu and the others "
              "of ACT2FN but prelu and xielu"},
             {R"("architectures": ["ViTForMaskedImageModeling"])",
              "architectures ViTForMaskedImageModeling is not supported; supported: "
              "ViTForImageClassification, ViTModel"},
             {R"("qkv_bias": 1)", "qkv_bias must be true or false, not 1"},
             {R"("rope_scaling": {"factor": 2})",
              "rope_scaling an object is not supported: nothing reads it"}})
        CHECK(rejection_of_vit(members) == message);
}

TEST_CASE("weights that do not fit the settings of a ViT are named, with both shapes") {
    CHECK(rejection_of_vit_copy("vit", {{"hidden_size", 18}}) ==
          "model.safetensors: tensor embeddings.cls_token should have the shape (1, 1, 18), it "
          "has (1, 1, 24)");
    CHECK(rejection_of_vit_copy("vit", {{"image_size", 20}}) ==
          "model.safetensors: tensor embeddings.position_embeddings should have the shape (1, "
          "26, 24), it has (1, 16, 24)");
    CHECK(rejection_of_vit_copy("vit", {{"num_channels", 1}}) ==
          "model.safetensors: tensor embeddings.patch_embeddings.projection.weight should have "
          "the shape (24, 1, 4, 4), it has (24, 3, 4, 4)");
    CHECK(rejection_of_vit_copy("vit", {{"intermediate_size", 15}}) ==
          "model.safetensors: tensor encoder.layer.1.intermediate.dense.bias should have the "
          "shape (15,), it has (14,)");
    CHECK(rejection_of_vit_copy("vit", {{"pooler_output_size", 5}}) ==
          "model.safetensors: tensor pooler.dense.bias should have the shape (5,), it has "
          "(24,)");
    CHECK(rejection_of_vit_copy("vit", {{"num_hidden_layers", 16'000'000}}) ==
          "model.safetensors: tensor encoder.layer.15999999.intermediate.dense.bias of shape "
          "(14,) is missing");
    CHECK(rejection_of_vit_copy("vit_classifier", {{"num_hidden_layers", 2}}) ==
          "config.json: the weights have a tensor "
          "vit.encoder.layer.2.attention.attention.key.weight, which these settings do not "
          "describe");
    CHECK(rejection_of_vit_copy("vit_classifier", {{"qkv_bias", true}}) ==
          "model.safetensors: tensor vit.encoder.layer.0.attention.attention.query.bias of "
          "shape (24,) is missing");
    CHECK(mentions(rejection_of_vit_copy("vit", {{"qkv_bias", false}}),
                   "which these settings do not describe"));
    CHECK(mentions(rejection_of_vit_copy("vit_classifier", {{"architectures", {"ViTModel"}}}),
                   "the weights have a tensor classifier.bias"));
    CHECK(rejection_of_vit_copy("vit", {{"quantization_config", {{"quant_method", "gptq"}}}}) ==
          "config.json: quantization_config says that the weights are quantized (gptq); "
          "supported for vit: float32, float16 and bfloat16");
}

TEST_CASE("a ViT names pictures that it does not read") {
    const VitFamilyModel model = vit_fixture("vit");
    const auto pixels = [](std::size_t channels, std::size_t height, std::size_t width) {
        return Tensor4(xt::zeros<Real>({std::size_t{1}, channels, height, width}));
    };
    CHECK_THROWS_WITH_AS(encode(model, pixels(1, 12, 20)),
                         "vit: the pictures have 1 channels, not 3", ValueError);
    CHECK_THROWS_WITH_AS(encode(model, pixels(3, 20, 12)),
                         "vit: the pictures have 20 x 12 pixels, the model's positions are "
                         "those of 12 x 20; --interpolate interpolates them",
                         ValueError);
    CHECK_THROWS_WITH_AS(encode(model, pixels(3, 20, 18), true),
                         "patchify: patches of 4 x 4 pixels do not divide 20 x 18", ValueError);
    CHECK_THROWS_WITH_AS(encode(model, pixels(3, 0, 20), true),
                         "vit: pixel values of (1, 3, 0, 20) hold no pixel", ValueError);
}
