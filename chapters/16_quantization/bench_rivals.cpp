#include "chapters/16_quantization/bench_rivals.hpp"

#include <cstdlib>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "common/files/gguf.hpp"
#include "common/files/json_file.hpp"
#include "common/files/safetensors.hpp"
#include "common/output/show.hpp"
#include "common/tensors/block_types.hpp"

namespace llm {
namespace {

const std::string folder_of_tests = LLM_TESTS_FOLDER;

const std::array<const char*, 4> benchmark_names = {"prefill 512", "decode at 0",
                                                    "decode at 256", "decode at 1024"};

// Runs a command whose output is JSON with seconds, and keeps the fastest of each. False, with
// a line that says so, if it fails.
bool run(const std::string& command, const std::string& result, RivalTimes& times) {
    if (std::system((command + " > '" + result + "'").c_str()) != 0) {
        say("this command failed: " + command);
        return false;
    }
    const JsonFile json(result);
    for (const char* name : benchmark_names) {
        const auto [found, is_new] = times.emplace(name, json.number(name));
        if (!is_new) found->second = std::min(found->second, json.number(name));
    }
    return true;
}

// The weights in the bytes of a dtype, row by row.
std::vector<std::byte> stored_bytes(std::span<const Real> weights, std::size_t in_features,
                                    DType dtype) {
    const std::size_t row_size = bytes_per_row(dtype, in_features);
    std::vector<std::byte> bytes(weights.size() / in_features * row_size);
    for (std::size_t row = 0; row < weights.size() / in_features; ++row)
        quantize_row(dtype, weights.subspan(row * in_features, in_features),
                     std::span(bytes).subspan(row * row_size, row_size));
    return bytes;
}

// The metadata that llama.cpp needs, with made-up tokens.
GgufMetadata metadata_of(const Config& config) {
    const auto integer = [](std::size_t size) { return static_cast<std::int64_t>(size); };
    std::vector<std::string> tokens;
    for (std::size_t id = 0; id < config.vocab_size; ++id) tokens.push_back("t" + to_text(id));
    return {{"general.architecture", std::string("llama")},
            {"llama.context_length", integer(config.max_position_embeddings)},
            {"llama.embedding_length", integer(config.hidden_size)},
            {"llama.block_count", integer(config.num_hidden_layers)},
            {"llama.feed_forward_length", integer(config.intermediate_size)},
            {"llama.attention.head_count", integer(config.num_attention_heads)},
            {"llama.attention.head_count_kv", integer(config.num_key_value_heads)},
            {"llama.attention.layer_norm_rms_epsilon", double(config.rms_norm_eps)},
            {"llama.rope.dimension_count", integer(config.head_dim)},
            {"llama.rope.freq_base", double(config.rope_theta)},
            {"tokenizer.ggml.model", std::string("gpt2")},
            {"tokenizer.ggml.pre", std::string("gpt-2")},
            {"tokenizer.ggml.tokens", tokens},
            {"tokenizer.ggml.token_type", std::vector<std::int64_t>(tokens.size(), 1)},
            {"tokenizer.ggml.merges", std::vector<std::string>{"t 0"}},
            {"tokenizer.ggml.bos_token_id", std::int64_t{0}},
            {"tokenizer.ggml.eos_token_id", std::int64_t{0}}};
}

// The rows of q and k stay in the order of split halves, which llama.cpp does not expect: it
// computes other logits, in the same time.
void write_model(const std::string& file, const Model& model, DType dtype) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<NamedGgufTensor> tensors;
    const auto add = [&](const std::string& name, const auto& weights, DType type) {
        const auto& shape = weights.shape();
        memory.push_back(stored_bytes({weights.data(), weights.size()}, shape.back(), type));
        tensors.push_back(
            {name + ".weight", {type, {shape.begin(), shape.end()}, memory.back()}});
    };
    add("token_embd", model.embed_tokens, dtype);
    add("output_norm", model.norm.weight, DType::float32);
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const auto& [self_attn, mlp, attention_norm, ffn_norm] = model.layers[n];
        const auto& [q_proj, k_proj, v_proj, o_proj] = self_attn.projections;
        const std::string layer = "blk." + to_text(n) + ".";
        add(layer + "attn_norm", attention_norm.weight, DType::float32);
        add(layer + "ffn_norm", ffn_norm.weight, DType::float32);
        add(layer + "attn_q", q_proj.weight, dtype);
        add(layer + "attn_k", k_proj.weight, dtype);
        add(layer + "attn_v", v_proj.weight, dtype);
        add(layer + "attn_output", o_proj.weight, dtype);
        add(layer + "ffn_gate", mlp.gate_proj.weight, dtype);
        add(layer + "ffn_up", mlp.up_proj.weight, dtype);
        add(layer + "ffn_down", mlp.down_proj.weight, dtype);
    }
    write_gguf(file, metadata_of(model.config), tensors);
}

}  // namespace

RivalTimes times_of_pytorch(const Model& model, const Matrix& logits) {
    if (std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") != 0) {
        say("PyTorch: /usr/bin/python3 cannot import torch");
        return {};
    }
    const std::string folder = model_folder("bench"), result = folder + "/pytorch.json";
    export_model(model, folder);
    write_safetensors(
        folder + "/logits",
        {{"logits", {logits.shape(0), logits.shape(1)}, {logits.data(), logits.size()}}});
    RivalTimes times;
    for (const char* environment : {"", "OPENBLAS_NUM_THREADS=1 "}) {
        const std::string command = environment + std::string("/usr/bin/python3 '") +
                                    folder_of_tests + "/time_inference.py' '" + folder + "'";
        if (!run(command, result, times)) return {};
        const double difference = JsonFile(result).number("largest difference");
        show("largest difference to PyTorch's logits", difference);
        if (difference > 1e-3) return {};
    }
    return times;
}

RivalTimes times_of_llama_cpp(const Model& model, DType dtype) {
    const std::string installed = folder_of_tests + "/../build/llama_cpp";
    if (!is_folder(installed + "/node_modules/node-llama-cpp")) {
        say("llama.cpp: there is no build/llama_cpp");
        return {};
    }
    const std::string folder = model_folder("bench"), file = folder + "/model.gguf";
    make_folder(folder);
    write_model(file, model, dtype);
    RivalTimes times;
    run("node '" + folder_of_tests + "/time_llama_cpp.mjs' '" + installed + "' '" + file + "'",
        folder + "/llama_cpp.json", times);
    std::filesystem::remove(file);  // up to 200 MB
    return times;
}

}  // namespace llm
