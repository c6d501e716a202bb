#include "chapters/09_full_model/parameters.hpp"
#include "chapters/11_generation/sampling.hpp"
#include "chapters/16_quantization/fake_quantize.hpp"
#include "chapters/16_quantization/kernels/integer_products.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "chapters/models/gguf/quantized_gguf.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/gguf.hpp"
#include "tests/support/fast_helpers.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

std::string gguf(const std::string& name) { return fixture_path("gguf/" + name + ".gguf"); }

// Rows of 256 and 512 weights, so that every type fits without a fallback.
Model large_model(AttentionBias bias = AttentionBias::none) {
    Config config = odd_config();
    config.hidden_size = 256;
    config.intermediate_size = 512;
    config.num_attention_heads = 8;
    config.num_key_value_heads = 2;
    config.head_dim = 32;
    config.attention_bias = bias;
    Generator generator(3);
    return make_test_model(config, generator);
}

// The weights of quantize_model as floats.
Model restored_model(const Model& model, DType wanted) {
    return dequantized_model(model, [&](std::size_t in_features) -> const WeightKernels& {
        return quantization_kernels(stored_dtype(wanted, in_features));
    });
}

// Root mean square of the difference, relative to that of the expected values.
double relative_rms(const Matrix& actual, const Matrix& expected) {
    REQUIRE(actual.shape() == expected.shape());
    return relative_error(actual, expected);
}

}  // namespace

TEST_CASE("fake_quantize rounds to integers times the scale of each block") {
    Generator generator(1);
    const Matrix weights = randn({3, 70}, generator);
    for (const std::size_t block_size : {1u, 16u, 32u, 70u, 100u})
        for (const int num_bits : {2, 4, 8}) {
            INFO(block_size, " weights, ", num_bits, " bits");
            const Matrix rounded = fake_quantize(weights, block_size, num_bits);
            const int m = (1 << (num_bits - 1)) - 1;
            for (const auto [row, i] : every_index(3, 70)) {
                const std::size_t begin = i / block_size * block_size;
                double absmax = 0;
                for (std::size_t j = begin; j < std::min<std::size_t>(begin + block_size, 70);
                     ++j)
                    absmax = std::max(absmax, std::abs(double(weights(row, j))));
                const double steps = double(rounded(row, i)) / absmax * m;
                CHECK(std::abs(steps - std::round(steps)) < 1e-4);
                CHECK(std::abs(double(rounded(row, i)) - double(weights(row, i))) <=
                      absmax / m / 2 * 1.0001);
            }
        }
    CHECK(fake_quantize(Matrix(weights * Real(0)), 32, 4) == Matrix(weights * Real(0)));
    CHECK_THROWS_WITH_AS(fake_quantize(weights, 0, 4),
                         "fake_quantize: no blocks of 0 weights with 4 bits", ValueError);
    CHECK_THROWS_AS(fake_quantize(weights, 32, 1), ValueError);
    CHECK_THROWS_AS(fake_quantize(weights, 32, 9), ValueError);
}

TEST_CASE("fake_quantize of a model rounds all of its matrices, and nothing else") {
    for (const std::string name : {"an untied head", "biases"}) {
        const Model& model = model_named(name);
        const Model rounded = fake_quantize(model, 32, 4);
        const auto original = named_parameters(model), changed = named_parameters(rounded);
        REQUIRE(original.size() == changed.size());
        for (std::size_t i = 0; i < original.size(); ++i) {
            INFO(original[i].name);
            const auto before = original[i].values, after = changed[i].values;
            CHECK(std::ranges::equal(before, after) == (original[i].shape.size() == 1));
        }
        CHECK(rounded.layers[1].mlp.up_proj.weight ==
              fake_quantize(model.layers[1].mlp.up_proj.weight, 32, 4));
    }
}

TEST_CASE("weight-only quantization gives the logits of the model with dequantized weights") {
    const std::vector<Id> ids = some_ids(40);
    for (const AttentionBias bias : {AttentionBias::none, AttentionBias::qkvo}) {
        const Model model = large_model(bias);
        for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q5_0, DType::q4_k,
                                  DType::q6_k, DType::float16}) {
            INFO(to_text(dtype));
            const FastModel quantized = quantize_model(model, dtype, Activations::float32);
            const Matrix expected = logits_of(restored_model(model, dtype), ids);
            CHECK_CLOSE(in_one_call(quantized, ids), expected, 1e-5);
            CHECK_CLOSE(in_chunks(quantized, ids, {1, 4, 16, 1, 18}), expected, 1e-5);
        }
    }
}

TEST_CASE("with int8 activations, decode steps change by the rounding of the activations") {
    const std::vector<Id> ids = some_ids(40);
    const Model model = large_model();
    for (const DType dtype : block_dtypes) {
        INFO(to_text(dtype));
        const FastModel quantized = quantize_model(model, dtype);
        const Matrix expected = logits_of(restored_model(model, dtype), ids);
        const Matrix logits = token_by_token(quantized, ids);
        const double error = relative_rms(logits, expected);
        CHECK(error < 0.03);
        CHECK(error > 1e-4);  // the integer products have been used
        // A few tokens at once multiply the same integers, and so does a prefill if the
        // processor multiplies integers of 8 bits. Their sums differ in the last digits only,
        // but such a difference can round the next input to another integer.
        CHECK(relative_rms(in_chunks(quantized, ids, {1, 4, 16, 1, 16, 2}), logits) < error);
        if (is_fast_for_many_tokens(dtype))
            CHECK(relative_rms(in_one_call(quantized, ids), logits) < error);
        else
            CHECK_CLOSE(in_one_call(quantized, ids), expected, 1e-5);
    }
}

TEST_CASE("repack: a matrix keeps its weights, and without it no product is computed") {
    Generator generator(4);
    const Matrix inputs = randn({2, 256}, generator), weights = randn({19, 256}, generator);
    for (const Activations activations : {Activations::quantized, Activations::float32})
        for (const DType dtype : block_dtypes) {
            INFO(to_text(dtype));
            const WeightMatrix rows =
                quantize(weights, quantization_kernels(dtype, activations));
            Matrix outputs = xt::zeros<Real>({2, 19});
            MatmulWorkspace workspace;
            const std::string message = "matmul: weights of " + std::string(to_text(dtype)) +
                                        " are not in the layout of their kernels (repack)";
            CHECK_THROWS_WITH_AS(
                matmul_by_rows(view_of(inputs), rows, view_of(outputs), workspace),
                message.c_str(), ValueError);
            CHECK_THROWS_WITH_AS(
                matmul_transposed(view_of(inputs), rows, view_of(outputs), workspace),
                message.c_str(), ValueError);
            const WeightMatrix repacked = repack(rows);
            CHECK(repacked.nbytes() == rows.nbytes());
            CHECK(dequantize(repacked) == dequantize(rows));
            matmul_by_rows(view_of(inputs), repacked, view_of(outputs), workspace);
            CHECK(relative_rms(outputs, matmul_transposed(inputs, dequantize(rows))) < 0.01);
        }
    const WeightMatrix plain = quantize(weights, DType::bfloat16);
    CHECK(repack(plain).bytes == plain.bytes);
}

TEST_CASE("load_quantized_model: files that llama.cpp has quantized give PyTorch's logits") {
    const IdMatrix ids{{3, 16, 0, 5, 5}, {9, 1, 2, 3, 4}};
    for (const std::string name :
         {"llama", "qwen2", "qwen3", "llama_q4_k_m", "llama_q4_0", "qwen3_q8_0"}) {
        INFO(name);
        const FastModel model = models::load_quantized_model(gguf(name), Activations::float32);
        const FastModel with_integers = models::load_quantized_model(gguf(name));
        const Tensor3 expected = name.find("_q") == name.npos
                                     ? fixture<3>("09_full_model/" + name + "_logits")
                                     : fixture<3>("gguf/" + name + "_logits");
        for (const std::size_t b : {0u, 1u}) {
            const std::span<const Id> text(&ids(b, 0), 5);
            const Matrix rows = xt::view(expected, b);
            CHECK_CLOSE(in_one_call(model, text), rows, 1e-5);
            CHECK_CLOSE(token_by_token(model, text), rows, 1e-5);
            const double error = relative_rms(token_by_token(with_integers, text), rows);
            CHECK(error < 0.03);
            CHECK((error > 1e-4) == (name.find("_q") != name.npos));
        }
    }
    // Projections of different types stay apart; weights of one type are fused.
    const FastModel mixed = models::load_quantized_model(gguf("llama_q4_k_m"));
    CHECK(std::ranges::any_of(mixed.layers, [](const FastLayer& layer) {
        return layer.qkv_proj.weights.size() > 1;
    }));
    CHECK(models::load_quantized_model(gguf("llama_q4_0"))
              .layers[0]
              .gate_up_proj.weights.size() == 1);
}

TEST_CASE("load_quantized_model keeps the bytes of the file") {
    for (const std::string name : {"llama_q4_k_m", "llama_q4_0", "qwen3_q8_0"}) {
        const Gguf file(gguf(name));
        std::uint64_t in_file = 0, in_memory = 0;
        for (const auto& [tensor_name, tensor] : file.tensors())
            if (tensor.shape.size() == 2) in_file += tensor.bytes.size();
        const FastModel model = models::load_quantized_model(gguf(name));
        in_memory = model.weight_bytes() + (model.lm_head ? model.embed_tokens.nbytes() : 0);
        CHECK(in_memory == in_file);
    }
}

TEST_CASE("load_quantized_model rejects tensors that the model does not use") {
    const Scratch scratch;
    const std::string path = (scratch.folder / "shorter.gguf").string();
    std::string bytes = content(gguf("llama"));  // of two layers
    const std::string key = "llama.block_count";
    const std::size_t value = bytes.find(key) + key.size() + 4;  // after the type
    REQUIRE(bytes[value] == 2);
    bytes[value] = 1;
    overwrite(path, bytes);
    CHECK_THROWS_WITH_AS(
        models::load_quantized_model(path),
        (path + ": the model has a tensor blk.1.attn_k.weight, which is not supported").c_str(),
        FileError);

    // Nor does it ignore one of a type that it cannot read, which no layer asks for.
    const std::string tensor = "blk.1.attn_k.weight";
    const std::size_t type = bytes.find(tensor) + tensor.size() + 4 + 2 * 8;  // after two sizes
    REQUIRE(bytes[type] == 30);                                               // BF16
    bytes[type] = 17;                                                         // IQ2_XS
    overwrite(path, bytes);
    CHECK_THROWS_WITH_AS(models::load_quantized_model(path),
                         (path + ": tensor blk.1.attn_k.weight is of type IQ2_XS; F32, F16, "
                                 "BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q6_K and MXFP4 can be read")
                             .c_str(),
                         FileError);
}

TEST_CASE("quantize_model: on the text of the shipped model, q8_0 changes only near ties") {
    const Model model = models::load_model(asset("king_james"));
    const Tokenizer tokenizer =
        models::load_tokenizer(asset("king_james/tokenizer.json"), model.config.vocab_size);
    const std::vector<Id> prompt_ids = tokenizer.encode("And the LORD said unto Moses");
    const FastModel unquantized = quantize_model(model, DType::float32);
    const std::vector<Id> ids = greedy(unquantized, prompt_ids, 40);
    CHECK(greedy(quantize_model(model, DType::bfloat16), prompt_ids, 40) == ids);

    // The two largest logits differ by 0.005 to 7. q8_0 moves a logit by up to 0.2.
    const auto token_by_token_logits = [&](DType dtype) {
        return token_by_token(quantize_model(model, dtype), ids);
    };
    const Matrix expected = token_by_token(unquantized, ids);
    const Matrix eight_bits = token_by_token_logits(DType::q8_0);
    CHECK_CLOSE(eight_bits, expected, 0.04);
    CHECK(difference(eight_bits, expected, 1e-3) != "");
    const auto largest_loss = [&](const Matrix& logits) {
        Real largest = 0;
        for (std::size_t row = 0; row < ids.size(); ++row) {
            const Id best = argmax_token(xt::row(expected, row));
            const Id chosen = argmax_token(xt::row(logits, row));
            largest = std::max(largest, expected(row, best) - expected(row, chosen));
        }
        return largest;
    };
    CHECK(largest_loss(eight_bits) <= 0.2);
    CHECK(largest_loss(token_by_token_logits(DType::q4_0)) > 0.2);
}

TEST_CASE("quantize_model: with float32 activations, q8_0 generates PyTorch's tokens") {
    const Model model = models::load_model(asset("king_james"));
    const IdMatrix ids = id_fixture<2>("13_training/king_james_ids");
    const std::vector<Id> expected(ids.begin(), ids.end());
    CHECK(greedy(quantize_model(model, DType::q8_0, Activations::float32),
                 {expected.begin(), expected.begin() + 3}, 24) == expected);
}

TEST_CASE("quantize_model falls back where blocks do not divide a row, and counts the bytes") {
    const Model model = models::load_model(asset("king_james"));  // rows of 192 and 512
    const FastModel quantized = quantize_model(model, DType::q4_k);
    CHECK(quantized.embed_tokens.dtype() == DType::q5_0);
    CHECK(quantized.layers[0].qkv_proj.weights[0].dtype() == DType::q5_0);
    CHECK(quantized.layers[0].down_proj.weights[0].dtype() == DType::q4_k);
    const FastModel six_bits = quantize_model(model, DType::q6_k);
    CHECK(six_bits.embed_tokens.dtype() == DType::q8_0);
    CHECK(six_bits.layers[0].down_proj.weights[0].dtype() == DType::q6_k);
    const std::uint64_t weights = quantize_model(model, DType::float32).weight_bytes() / 4;
    CHECK(quantize_model(model, DType::q8_0).weight_bytes() == weights / 32 * 34);
    CHECK(quantize_model(model, DType::q4_0).weight_bytes() == weights / 32 * 18);
    CHECK(quantize_model(model, DType::float16).weight_bytes() == weights * 2);
}
