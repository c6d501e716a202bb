#include "chapters/apps/bench/bench_rivals.hpp"

#include <cstdlib>
#include <fstream>
#include <limits>

#include "chapters/apps/bench/bench_timing.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/gguf/gguf_export.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "common/files/safetensors.hpp"

namespace llm::bench {
namespace {

const std::string folder_of_tests = LLM_TESTS_FOLDER;
const std::string build_folder = folder_of_tests + "/../build/";
const std::string difference = "largest difference";

std::string quoted(const std::string& path) { return "'" + path + "'"; }

bool succeeds(const std::string& command) { return std::system(command.c_str()) == 0; }

// Prints a line if there is none.
bool has_pytorch() {
    const bool found = succeeds("/usr/bin/python3 -c 'import torch' 2>/dev/null");
    if (!found) say("PyTorch: /usr/bin/python3 cannot import torch");
    return found;
}

// A new file in build/models/bench.
std::string new_file(const std::string& name) {
    make_folder(model_folder("bench"));
    const std::string file = model_folder("bench") + "/" + name;
    std::filesystem::remove(file);
    return file;
}

// The rows of q_proj or k_proj in the order of interleaved pairs.
Matrix interleaved_rows(const Matrix& weight, std::size_t head_dim) {
    Matrix reordered = weight;
    for (std::size_t row = 0; row < weight.shape(0); ++row) {
        xt::view(reordered, row) = xt::view(weight, split_half_index(row, head_dim));
    }
    return reordered;
}

std::vector<std::int32_t> llama2c_header(const Config& config) {
    std::vector<std::int32_t> header;
    for (const std::size_t size :
         {config.hidden_size, config.intermediate_size, config.num_hidden_layers,
          config.num_attention_heads, config.num_key_value_heads, config.vocab_size,
          config.max_position_embeddings})
        header.push_back(static_cast<std::int32_t>(size));
    return header;
}

// Writes a model with tied weights as a file of llama2.c, version 0, which load_llama2c
// (chapter 09) reads.
void write_llama2c(const Model& model, const std::string& path) {
    const Config& config = model.config;
    std::ofstream file(path, std::ios::binary);
    const auto write = [&](const auto& numbers) {
        file.write(reinterpret_cast<const char*>(numbers.data()),
                   static_cast<std::streamsize>(numbers.size() * 4));
    };
    write(llama2c_header(model.config));
    write(model.embed_tokens);
    const std::size_t head_dim = config.head_dim;
    const auto& layers = model.layers;
    for (const auto& layer : layers) write(layer.attention_norm.weight);
    for (const auto& layer : layers)
        write(interleaved_rows(layer.self_attn.projections.q_proj.weight, head_dim));
    for (const auto& layer : layers)
        write(interleaved_rows(layer.self_attn.projections.k_proj.weight, head_dim));
    for (const auto& layer : layers) write(layer.self_attn.projections.v_proj.weight);
    for (const auto& layer : layers) write(layer.self_attn.projections.o_proj.weight);
    for (const auto& layer : layers) write(layer.ffn_norm.weight);
    for (const auto& layer : layers) write(layer.mlp.gate_proj.weight);
    for (const auto& layer : layers) write(layer.mlp.down_proj.weight);
    for (const auto& layer : layers) write(layer.mlp.up_proj.weight);
    write(model.norm.weight);
    // The rotary table, which run.c computes itself.
    write(std::vector<Real>(config.max_position_embeddings * head_dim));
}

// Writes rows of numbers for a script of tests/time, which times PyTorch.
Rival pytorch_rival(const std::string& script, const std::string& folder,
                    const std::string& name, const Matrix& rows) {
    write_safetensors(folder + "/" + name,
                      {{name, {rows.shape(0), rows.shape(1)}, {rows.data(), rows.size()}}});
    const std::string command = "/usr/bin/python3 " +
                                quoted(folder_of_tests + "/time/" + script) + " " +
                                quoted(folder);
    return {{command, "OPENBLAS_NUM_THREADS=1 " + command}, {}};
}

// Prints a line if there is none.
bool has_llama_cpp() {
    const bool found = is_folder(build_folder + "llama_cpp/node_modules");
    if (!found) say("llama.cpp: there is no build/llama_cpp");
    return found;
}

Rival llama_cpp_rival(const std::string& file, const std::string& work) {
    return {{"/usr/bin/python3 " + quoted(folder_of_tests + "/time/time_llama_cpp.py") + " " +
             quoted(build_folder + "llama_cpp") + " " + quoted(file) + " " + work},
            {}};
}

}  // namespace

void Rival::run() {
    const std::string output = new_file("times.txt");
    for (const std::string& command : commands) {
        if (!succeeds(command + " > " + quoted(output))) {
            say("this command failed: " + command);
            *this = {};
            return;
        }
        // Each line has seconds, options and the name of the benchmark.
        std::ifstream lines(output);
        for (std::string time, options, name; std::getline(lines, time, '\t') &&
                                              std::getline(lines, options, '\t') &&
                                              std::getline(lines, name);)
            seconds[name][options].push_back(std::stod(time));
    }
    for (const auto& [options, differences] : seconds[difference])
        if (differences.back() > 1e-3) {
            say("its logits differ by " + brief(differences.back()) + ": " + commands[0]);
            *this = {};
            return;
        }
}

std::string Rival::speedup(const std::string& name, double our_seconds) const {
    const auto found = seconds.find(name);
    if (found == seconds.end()) return "-";
    double fastest = std::numeric_limits<double>::infinity();
    for (const auto& [options, calls] : found->second)
        fastest = std::min(fastest, median(calls));
    return fixed(fastest / our_seconds, 2);
}

Rival make_pytorch_rival(const Model& model, const Matrix& logits) {
    if (!has_pytorch()) return {};
    const std::string folder = model_folder("bench");
    models::export_model(model, folder);
    return pytorch_rival("time_inference.py", folder, "logits", logits);
}

Rival make_pytorch_rival(const models::AnyEncoder& encoder, const Matrix& vectors) {
    if (!has_pytorch()) return {};
    const std::string folder = model_folder("bench/encoder");
    models::export_model(encoder, folder);
    return pytorch_rival("time_encoder.py", folder, "vectors", vectors);
}

Rival make_pytorch_training_rival() {
    if (!has_pytorch()) return {};
    const std::string command =
        "/usr/bin/python3 " + quoted(folder_of_tests + "/time/time_training.py");
    return {{command, "OPENBLAS_NUM_THREADS=1 " + command}, {}};
}

Rival make_llama_cpp_rival(const Model& model, const Tokenizer& tokenizer, DType dtype,
                           const std::string& work) {
    if (!has_llama_cpp()) return {};
    const std::string file = new_file(to_text(model.config.hidden_size) + "-" +
                                      std::string(to_text(dtype)) + ".gguf");
    models::export_gguf(model, tokenizer, file, dtype);
    return llama_cpp_rival(file, work);
}

Rival make_llama_cpp_rival(const models::AnyEncoder& encoder, DType dtype,
                           std::span<const Real> vector) {
    if (!has_llama_cpp()) return {};
    const std::string file = new_file("encoder-" + std::string(to_text(dtype)) + ".gguf");
    models::export_gguf(encoder, file, {.dtype = dtype, .pooling = Pooling::mean});
    std::ofstream expected(file + ".vector");
    for (const Real element : vector) expected << element << '\n';
    return llama_cpp_rival(file, "encoder");
}

void remove_files_of_rivals() { std::filesystem::remove_all(model_folder("bench")); }

Rival make_llama2c_rival(const Model& model, std::span<const Real> logits) {
    const std::string folder = build_folder + "llama2_c";
    if (!is_file(folder + "/run.c")) {
        say("llama2.c: there is no build/llama2_c");
        return {};
    }
    const std::string size = to_text(model.config.hidden_size);
    const std::string file = new_file(size + ".bin"), expected = new_file(size + ".logits");
    write_llama2c(model, file);
    std::ofstream(expected, std::ios::binary)
        .write(reinterpret_cast<const char*>(logits.data()),
               static_cast<std::streamsize>(logits.size_bytes()));
    Rival rival;
    // The options of the targets runfast and runomp of its Makefile.
    for (const std::string options : {"", "-fopenmp"}) {
        const std::string program = new_file("llama2_c" + options);
        const std::string compile = "cc -Ofast -march=native " + options + " -I " +
                                    quoted(folder) + " -o " + quoted(program) + " " +
                                    quoted(folder_of_tests + "/time/time_llama2_c.c") + " -lm";
        if (succeeds(compile))
            rival.commands.push_back(quoted(program) + " " + quoted(file) + " " +
                                     quoted(expected) + " 'options: " + options + "'");
        else
            say("this command failed: " + compile);
    }
    return rival;
}

}  // namespace llm::bench
