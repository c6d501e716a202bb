// Models whose weights are stored in FP8, with scales of blocks or of whole matrices.
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <sstream>

#include "common/numbers/ceil_div.hpp"
#include "common/tensors/float8.hpp"
#include "tests/support/model_folders.hpp"
#include "tests/support/rejection.hpp"
#include "tests/support/stored_tensors.hpp"

using namespace llm;
using namespace llm::models;

namespace {

StoredTensor float32(const std::string& name, const std::vector<std::size_t>& shape,
                     const std::vector<Real>& elements) {
    return {name, "F32", shape,
            std::string(reinterpret_cast<const char*>(elements.data()), 4 * elements.size())};
}

// The byte whose value is closest.
char nearest_e4m3(Real number) {
    const Float8Values& values = e4m3_values();
    std::size_t best = 0;
    for (std::size_t byte = 0; byte < 256; ++byte)
        if (std::abs(values[byte] - number) < std::abs(values[best] - number)) best = byte;
    return static_cast<char>(best);
}

// Two copies of a model of the fixtures: with matrices in FP8, and with the float32 numbers
// that these stand for. Without blocks, each matrix has one scale.
struct Copies {
    Scratch scratch;
    std::string fp8, dequantized;
    std::vector<StoredTensor> stored{}, expected{};  // tensors of the two

    explicit Copies(const std::string& name, std::array<std::size_t, 2> block = {0, 0}) {
        fp8 = scratch.copy_of(name);
        dequantized = fp8 + "_dequantized";
        fs::copy(fp8, dequantized);
        const std::string file = fp8 + "/model.safetensors";
        const SafeTensors tensors(file);
        for (const StoredTensor& tensor : read_tensors(file)) {
            std::vector<Real> elements(element_count(tensor.shape));
            tensors.read(tensor.name, tensor.shape, elements);
            add(tensor.name, tensor.shape, std::move(elements), block);
        }
        write();
        const std::string size_of_blocks =
            block[0] > 0 ? "[" + to_text(block[0]) + ", " + to_text(block[1]) + "]" : "null";
        edit(fp8 + "/config.json", "{",
             R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": )" +
                 size_of_blocks + "}, ");
    }

    void add(const std::string& name, const std::vector<std::size_t>& shape,
             std::vector<Real> elements, std::array<std::size_t, 2> block) {
        if (shape.size() < 2 || stays_as_it_is(name)) {
            for (std::vector<StoredTensor>* list : {&stored, &expected})
                list->push_back(float32(name, shape, elements));
            return;
        }
        const std::size_t rows = shape[shape.size() - 2], columns = shape.back();
        const bool has_blocks = block[0] > 0;
        if (!has_blocks) block = {rows, columns};
        std::vector<std::size_t> scale_shape = shape;
        scale_shape[shape.size() - 2] = ceil_div(rows, block[0]);
        scale_shape.back() = ceil_div(columns, block[1]);
        std::vector<Real> scales(element_count(scale_shape));
        const auto scale_of = [&](std::size_t i) -> Real& {
            const std::size_t matrix = i / columns / rows, row = i / columns % rows;
            return scales[(matrix * scale_shape[shape.size() - 2] + row / block[0]) *
                              scale_shape.back() +
                          i % columns / block[1]];
        };
        for (std::size_t i = 0; i < elements.size(); ++i)
            scale_of(i) = std::max(scale_of(i), std::abs(elements[i]) / 448);
        std::string bytes;
        for (std::size_t i = 0; i < elements.size(); ++i) {
            bytes += nearest_e4m3(elements[i] / scale_of(i));
            elements[i] = e4m3_values()[static_cast<unsigned char>(bytes[i])] * scale_of(i);
        }
        if (!has_blocks && shape.size() == 2) scale_shape.clear();
        stored.push_back({name, "F8_E4M3", shape, bytes});
        stored.push_back(float32(name + "_scale_inv", scale_shape, scales));
        expected.push_back(float32(name, shape, elements));
    }
    // The usual modules_to_not_convert.
    static bool stays_as_it_is(const std::string& name) {
        return std::any_of(parts.begin(), parts.end(),
                           [&](const char* part) { return name.find(part) != name.npos; });
    }
    static constexpr std::array parts = {"embed", "head", "vision", "projector"};

    void write() const {
        write_tensors(fp8 + "/model.safetensors", stored);
        write_tensors(dequantized + "/model.safetensors", expected);
    }
};

}  // namespace

TEST_CASE("Qwen3 in FP8: PyTorch's logits, and in every bit those of the float32 weights") {
    const std::string folder = fixture_path("fp8/qwen3");
    const Tensor3 logits = load_model(folder)(small_ids);
    CHECK_CLOSE(logits, fixture<3>("fp8/qwen3_logits"), 1e-5);
    CHECK_CLOSE(logits, load_model(fixture_path("fp8/qwen3_dequantized"))(small_ids), 0);
    CHECK(has_fast_path(folder));
    CHECK_CLOSE(load_for_fast_path(folder)(small_ids), logits, 0);
    // They are other weights than those that were rounded.
    CHECK_FALSE(difference(logits, fixture<3>("09_full_model/qwen3_logits"), 1e-3).empty());
}

TEST_CASE("families in FP8: the logits of the float32 weights, in every bit") {
    for (const std::string& name : family_fixtures()) {
        if (name == "18_experts/gpt_oss_mxfp4") continue;
        CAPTURE(name);
        const IdMatrix ids = ids_of(name);
        for (const std::array<std::size_t, 2> block : {std::array<std::size_t, 2>{6, 10}, {}}) {
            const Copies copies(name, block);
            CHECK_CLOSE(logits_of(copies.fp8, ids), logits_of(copies.dequantized, ids), 0);
        }
    }
}

TEST_CASE("FP8 as Ministral 3: one scale for a matrix, scales of activations are left out") {
    const std::string name = "models/mistral3";
    Copies copies(name);
    const IdMatrix ids = ids_of(name);
    const Tensor3 expected = logits_of(copies.dequantized, ids);
    std::vector<StoredTensor> scales;
    for (const StoredTensor& tensor : copies.stored)
        if (tensor.type == "F8_E4M3")
            scales.push_back(float32(
                tensor.name.substr(0, tensor.name.rfind('.')) + ".activation_scale", {}, {2}));
    copies.stored.insert(copies.stored.end(), scales.begin(), scales.end());
    copies.write();
    const std::string config = copies.fp8 + "/config.json";
    edit(config, R"({"quantization_config": {)",
         R"({"quantization_config": {"activation_scheme": "static", "dequantize": false,
                 "modules_to_not_convert": ["model.vision_tower", "lm_head"], )");

    std::ostringstream notes;
    std::streambuf* const before = std::cerr.rdbuf(notes.rdbuf());
    const Tensor3 logits = logits_of(copies.fp8, ids);
    std::cerr.rdbuf(before);
    CHECK_CLOSE(logits, expected, 0);
    CHECK(mentions(notes.str(),
                   "activation_scheme static: activations are not rounded to FP8, "
                   "so 21 scales of activations are not read"));
    // Without that scheme, they are tensors that nothing describes.
    edit(config, "\"static\"", "\"dynamic\"");
    CHECK(mentions(rejection_of_folder(copies.fp8), "down_proj.activation_scale, which these"));
}

TEST_CASE("FP8: a head of its own in a text model inside another") {
    Copies copies("09_full_model/mistral", {6, 10});
    for (auto* list : {&copies.stored, &copies.expected}) {
        const std::vector<StoredTensor> tensors = *list;
        list->clear();
        for (StoredTensor tensor : tensors) {
            tensor.name = "language_model." + tensor.name;
            list->push_back(tensor);
        }
    }
    const std::vector<std::size_t> shape = {17, 16};
    const auto is_head = [](const StoredTensor& tensor) {
        return tensor.name == "language_model.lm_head.weight";
    };
    std::erase_if(copies.stored, is_head);
    std::erase_if(copies.expected, is_head);
    std::vector<Real> head(element_count(shape));
    for (std::size_t i = 0; i < head.size(); ++i) head[i] = Real(i % 7) - 3;
    const std::string name = "language_model.an_output.weight";
    copies.add(name, shape, head, {6, 10});
    for (auto* list : {&copies.stored, &copies.expected})
        for (StoredTensor& tensor : *list)
            if (tensor.name.starts_with(name))
                tensor.name.replace(0, name.size(), "language_model.lm_head.weight");
    copies.write();
    CHECK_CLOSE(logits_of(copies.fp8, small_ids), logits_of(copies.dequantized, small_ids), 0);
}

TEST_CASE("FP8: settings of quantization_config that are not supported, by name") {
    const auto after = [](const std::string& old_text, const std::string& new_text) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("fp8/qwen3");
        const std::string config = folder + "/config.json";
        std::string text = content(config);
        std::erase_if(text, [](char c) { return c == '\n' || c == ' '; });
        overwrite(config, text);
        edit(config, old_text, new_text);
        return rejection(folder);
    };
    const std::string block = R"("weight_block_size":[6,10])";
    CHECK(after(block, R"("weight_block_size": [6, 10])") == "it was loaded");
    CHECK(mentions(after(block, R"("weight_block_size": [6, 0])"),
                   "config.json: quantization_config.weight_block_size must be two numbers "
                   "above 0, or null, not [6,0]"));
    CHECK(mentions(after(block, R"("weight_block_size": [0, 10])"), "two numbers above 0"));
    CHECK(mentions(after(block, R"("weight_block_size": [6])"), "two numbers above 0"));
    CHECK(mentions(after(block, R"("weight_block_size": [6, 10, 10])"), "two numbers above 0"));
    CHECK(mentions(after(block, R"("weight_block_size": [10, 6])"),
                   "model.safetensors: tensor model.layers.0.self_attn.q_proj.weight_scale_inv "
                   "should have the shape (3, 3), it has (4, 2)"));
    CHECK(mentions(after(block, R"("weight_block_size": null)"),
                   "should have the shape (), it has (4, 2)"));
    // The default is 128 × 128.
    CHECK(mentions(after(block, R"("fmt": "e4m3")"), "the shape (1, 1), it has (4, 2)"));
    CHECK(after("\"dynamic\"", "\"static\"") == "it was loaded");
    CHECK(after("\"dynamic\"", "null") == "it was loaded");
    CHECK(mentions(after("\"dynamic\"", "\"other\""),
                   "quantization_config.activation_scheme other is not supported; supported: "
                   "dynamic and static"));
    CHECK(mentions(after("\"fp8\"", "\"fbgemm_fp8\""),
                   "the weights are quantized (fbgemm_fp8); supported: float32, float16, "
                   "bfloat16 and fp8, mxfp4 of gpt-oss, and GGUF files"));
    CHECK(mentions(after("\"quantization_config\"", "\"compression_config\""),
                   "the weights are quantized (fp8)"));
}

TEST_CASE("FP8: scales without weights, and weights without scales, are named") {
    const auto without = [](const std::string& suffix) {
        Copies copies("09_full_model/qwen3", {6, 10});
        std::erase_if(copies.stored, [&](const StoredTensor& tensor) {
            return tensor.name == "model.layers.1.mlp.up_proj.weight" + suffix;
        });
        copies.write();
        return rejection(copies.fp8);
    };
    CHECK(without(".") == "it was loaded");
    CHECK(mentions(without("_scale_inv"),
                   "model.safetensors: tensor model.layers.1.mlp.up_proj.weight_scale_inv of "
                   "shape (4, 2) is missing"));
    CHECK(mentions(without(""),
                   "tensor model.layers.1.mlp.up_proj.weight of shape (20, 16) "
                   "is missing"));
    Copies copies("09_full_model/qwen3", {6, 10});
    for (StoredTensor& tensor : copies.stored)
        if (tensor.name == "model.layers.1.mlp.up_proj.weight")
            tensor = float32(tensor.name, tensor.shape, std::vector<Real>(320));
    copies.write();
    CHECK(mentions(rejection(copies.fp8),
                   "config.json: the weights have the scales "
                   "model.layers.1.mlp.up_proj.weight_scale_inv, but no FP8 weights "
                   "model.layers.1.mlp.up_proj.weight"));
}
