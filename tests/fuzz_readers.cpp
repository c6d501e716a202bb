// Passes arbitrary bytes to each function that reads files. The result must be a model, a
// tokenizer or a FileError or TextError. The first byte selects the function, the rest is the
// file. Built with Clang's libFuzzer by the sanitize preset (target fuzz_readers); the corpus
// is made from tests/fixtures.
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/09_full_model/config_json.hpp"
#include "chapters/10_tokenizer/load_tokenizer.hpp"
#include "common/files/safetensors.hpp"
#include "common/files/unicode.hpp"

namespace fs = std::filesystem;

namespace {

const fs::path folder =
    fs::temp_directory_path() / ("fuzz_readers_" + std::to_string(getpid()));

void write(const std::string& name, const char* data, std::size_t size) {
    std::ofstream(folder / name, std::ios::binary)
        .write(data, static_cast<std::streamsize>(size));
}

// A configuration that matches the small safetensors files of the corpus.
const std::string config =
    R"({"model_type": "mistral", "hidden_size": 16, "intermediate_size": 20,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 17, "max_position_embeddings": 64, "rms_norm_eps": 0.001})";

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    fs::create_directories(folder);
    std::atexit([] { fs::remove_all(folder); });
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const char* data, std::size_t size) {
    if (size == 0) return 0;
    const char kind = data[0] % 8;
    fs::remove(folder / "model.safetensors.index.json");
    try {
        if (kind == 0) {
            write("model.bin", data + 1, size - 1);
            llm::load_model((folder / "model.bin").string());
        } else if (kind == 1) {
            write("config.json", config.data(), config.size());
            write("model.safetensors", data + 1, size - 1);
            llm::load_model(folder.string());
        } else if (kind == 2) {
            write("config.json", data + 1, size - 1);
            llm::read_config(llm::JsonFile(folder / "config.json"));
        } else if (kind == 3) {
            write("model.safetensors.index.json", data + 1, size - 1);
            llm::SafeTensors tensors(folder);
        } else if (kind == 6) {
            write("model.gguf", data + 1, size - 1);
            llm::load_model((folder / "model.gguf").string());
        } else {
            const std::string name = kind == 4   ? "tokenizer.json"
                                     : kind == 5 ? "tokenizer.bin"
                                                 : "model.gguf";
            write(name, data + 1, size - 1);
            const llm::Tokenizer tokenizer =
                llm::load_tokenizer((folder / name).string(), kind == 5 ? 12 : 1000);
            tokenizer.decode(tokenizer.encode("The café: 12\n<s>  中<|im_end|>"));
        }
    } catch (const llm::FileError&) {
    } catch (const llm::TextError&) {
    }
    return 0;
}
