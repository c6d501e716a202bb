// Passes arbitrary bytes to each function that reads files. The result must be what it reads,
// or an error of the file. The first byte selects the function, the rest is the file. Built
// with Clang's libFuzzer by the fuzz preset; the corpus is made from
// tests/fixtures.
#include <array>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include <unistd.h>

#include "chapters/14_fine_tuning/conversations.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/models/chat/chat_templates.hpp"
#include "chapters/models/chat/peft_files.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/encoders/sentence_transformers.hpp"
#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/family_gguf.hpp"
#include "chapters/models/gguf/quantized_gguf.hpp"
#include "chapters/models/llama/config_json.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/safetensors.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/small_sizes.hpp"

namespace fs = std::filesystem;

namespace {

const fs::path folder =
    fs::temp_directory_path() / ("fuzz_readers_" + std::to_string(getpid()));

using File = std::span<const char>;

void write(const std::string& name, File file) {
    std::ofstream(folder / name, std::ios::binary)
        .write(file.data(), static_cast<std::streamsize>(file.size()));
}

std::string written(const std::string& name, File file) {
    write(name, file);
    return (folder / name).string();
}

// A configuration that matches the small safetensors files of the corpus.
const std::string config =
    "{" + llm::small_sizes + R"(, "model_type": "mistral", "num_hidden_layers": 2,
        "max_position_embeddings": 64, "rms_norm_eps": 0.001})";

// The same settings, without weights; those of an adapter are random.
const llm::Model& model() {
    static const llm::Model model = [] {
        write("config.json", config);
        llm::Generator generator(1);
        return llm::make_model(llm::models::read_config(llm::JsonFile(folder / "config.json")),
                               generator);
    }();
    return model;
}

// An adapter of that model, of which one file is replaced.
void read_adapter(const std::string& replaced, File file) {
    const fs::path adapter = folder / "adapter";
    fs::remove_all(adapter);
    llm::Generator generator(1);
    llm::models::save_adapter(llm::make_lora(model(), {}, generator), adapter.string());
    write("adapter/" + replaced, file);
    llm::models::load_adapter(adapter.string(), model());
}

void read_tokenizer(const std::string& file, std::size_t vocab_size) {
    const llm::Tokenizer tokenizer = llm::models::load_tokenizer(file, vocab_size);
    tokenizer.decode(tokenizer.encode("The café: 12\n<s>  中<|im_end|>"));
}

// The number of each function is the first byte of its files.
const std::array<void (*)(File), 20> readers = {
    [](File file) { llm::models::load_model(written("model.bin", file)); },
    [](File file) {
        write("config.json", config);
        write("model.safetensors", file);
        llm::models::load_model(folder.string());
    },
    [](File file) { llm::models::read_config(llm::JsonFile(written("config.json", file))); },
    [](File file) {
        write("model.safetensors.index.json", file);
        llm::SafeTensors tensors(folder);
    },
    [](File file) { read_tokenizer(written("tokenizer.json", file), 1000); },
    [](File file) { read_tokenizer(written("tokenizer.bin", file), 12); },
    [](File file) { llm::models::load_model(written("model.gguf", file)); },
    [](File file) { read_tokenizer(written("model.gguf", file), 1000); },
    [](File file) {
        llm::models::load_quantized_model(written("model.gguf", file),
                                          llm::Activations::float32);
    },
    [](File file) { read_adapter("adapter_config.json", file); },
    [](File file) { read_adapter("adapter_model.safetensors", file); },
    [](File file) { llm::read_conversations(written("lines.jsonl", file)); },
    [](File file) { llm::read_preferences(written("lines.jsonl", file)); },
    [](File file) {
        llm::models::read_family_config(llm::JsonFile(written("config.json", file)));
    },
    [](File file) {
        write("tokenizer_config.json", file);
        llm::Tokenizer tokenizer;
        llm::models::read_special_tokens(folder.string(), tokenizer);
        llm::models::find_chat_template(folder.string());
    },
    [](File file) {
        const std::string path = written("model.gguf", file);
        if (llm::models::find_family(llm::Gguf(path))) llm::models::load_family_gguf(path);
    },
    [](File file) {
        llm::models::read_encoder_config(llm::JsonFile(written("config.json", file)));
    },
    [](File file) {
        const std::string path = written("model.gguf", file);
        if (llm::models::find_encoder_family(path)) llm::models::load_encoder_gguf(path);
    },
    [](File file) { read_tokenizer(written("vocab.txt", file), 1000); },
    // One file for all that sentence-transformers reads.
    [](File file) {
        fs::create_directories(folder / "1_Pooling");
        for (const char* name :
             {"1_Pooling/config.json", "modules.json", "config_sentence_transformers.json",
              "sentence_bert_config.json"})
            write(name, file);
        llm::models::read_sentence_transformer(folder.string());
    }};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    fs::create_directories(folder);
    std::atexit([] { fs::remove_all(folder); });
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const char* data, std::size_t size) {
    if (size == 0) return 0;
    for (const char* file : {"config.json", "model.safetensors.index.json", "tokenizer.json",
                             "tokenizer_config.json"})
        fs::remove(folder / file);
    try {
        readers[static_cast<unsigned char>(data[0]) % readers.size()]({data + 1, size - 1});
    } catch (const llm::FileError&) {
    } catch (const llm::TextError&) {
    }
    return 0;
}
