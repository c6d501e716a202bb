// Chapter 16 — How does a model fit in a quarter of its bytes? This program rounds weights to
// integers in blocks, multiplies integers, measures the error of each type on weights, logits
// and the loss, and writes and runs GGUF files.
#include <map>

#include "chapters/11_generation/generation.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/16_quantization/demo/block.hpp"
#include "chapters/16_quantization/demo/model.hpp"
#include "chapters/models/chat/peft_files.hpp"
#include "chapters/models/gguf/gguf_export.hpp"
#include "chapters/models/gguf/quantized_gguf.hpp"
#include "chapters/models/llama/gguf_config.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"
#include "common/system/timer.hpp"

using namespace llm;
using namespace llm::models;

struct Arguments {
    std::string model_path, tokenizer_path, adapter_path, export_path, export_adapter_path;
    std::string dtype = "q8_0", cache_dtype = "float32";
    std::string prompt = "And the LORD said unto Moses";
    std::size_t max_new_tokens = 100;
    bool keep_dtypes = false;
    bool no_timing = false;
};

void demo(const Model& model, const Tokenizer& tokenizer, const Arguments& arguments,
          Generator generator) {
    const std::vector<Id> ids = tokenizer.encode(read_text(asset("data/apocrypha.txt")));
    const Projections& projections = model.layers[0].self_attn.projections;
    const Matrix& down_proj = model.layers[0].mlp.down_proj.weight;  // (C, F)
    eight_weights(projections.q_proj.weight);
    scales_of_blocks(down_proj);
    k_quant_block(down_proj);
    errors_of_dtypes(down_proj, generator);

    const Tensor3 embeddings = model.embed(one_sequence(std::vector<Id>{ids[0]}));  // (1, 1, C)
    const Tensor3 normalized = model.layers[0].attention_norm(embeddings);          // (1, 1, C)
    integer_dot_product(projections.q_proj.weight, xt::view(normalized, 0, 0));
    outlier_features(model, ids);
    bits_and_blocks(model, ids);
    quantized_models(model, ids);
    greedy_generation(model, tokenizer, models::encode_prompt(tokenizer, arguments.prompt),
                      !arguments.no_timing);
}

void export_file(const Model& model, const Tokenizer& tokenizer, const Arguments& arguments) {
    const std::vector<models::TensorInOtherDType> in_other_dtype = models::export_gguf(
        model, tokenizer, arguments.export_path, dtype_named(arguments.dtype));
    step("Export as GGUF");
    std::map<DType, std::vector<std::string>> names;
    for (const auto& [name, dtype] : in_other_dtype) names[dtype].push_back(name);
    for (const auto& [dtype, tensors] : names)
        say("Blocks of " + arguments.dtype + " do not divide the rows of " +
            to_text(tensors.size()) + " matrices, from " + tensors.front() + " to " +
            tensors.back() + ". They are stored in " + std::string(to_text(dtype)) + ".");
    show("written", arguments.export_path);
    show("bytes", with_commas(std::filesystem::file_size(arguments.export_path)));
}

// The model, with the adapter merged into its weights.
Model load_merged(const Arguments& arguments) {
    const Model model = models::load_model(arguments.model_path);
    if (arguments.adapter_path.empty()) return model;
    return merge_lora(model, load_adapter(arguments.adapter_path, model));
}

// Without --dtype, the weights of a GGUF file stay in their types. Others are quantized.
FastModel load(const Arguments& arguments) {
    if (is_gguf(arguments.model_path) && arguments.keep_dtypes &&
        arguments.adapter_path.empty())
        return models::load_quantized_model(arguments.model_path);
    return quantize_model(load_merged(arguments), dtype_named(arguments.dtype));
}

void generate(const FastModel& model, const Tokenizer& tokenizer, const Arguments& arguments) {
    step("Greedy generation");
    const std::vector<Id> prompt_ids = models::encode_prompt(tokenizer, arguments.prompt);
    check_input(model.config, one_sequence(prompt_ids));
    std::vector<Id> ids;
    const double seconds = fastest_seconds(1, [&] {
        ids = generate_greedily(model, prompt_ids, arguments.max_new_tokens,
                                tokenizer.eos_token_ids, dtype_named(arguments.cache_dtype));
    });
    write_text(tokenizer.decode(ids));
    end_text();
    show("megabytes that each token reads", fixed(double(model.weight_bytes()) / 1e6, 1));
    if (!arguments.no_timing)
        show("tokens per second", fixed(double(ids.size() - prompt_ids.size()) / seconds, 0));
}

void export_adapter(const Arguments& arguments) {
    const Model model = models::load_model(arguments.model_path);
    models::export_gguf_adapter(load_adapter(arguments.adapter_path, model), model,
                                arguments.export_adapter_path);
    step("Export of an adapter as GGUF");
    show("written", arguments.export_adapter_path);
}

void run(Arguments arguments, std::uint32_t seed) {
    const bool generates = !arguments.model_path.empty() || !arguments.keep_dtypes;
    if (arguments.model_path.empty()) arguments.model_path = asset("king_james");
    if (generates && arguments.export_path.empty()) {
        const FastModel model = load(arguments);
        generate(model,
                 models::load_tokenizer_of_model(arguments.model_path, arguments.tokenizer_path,
                                                 model.config.vocab_size),
                 arguments);
        return;
    }
    const Model model = load_merged(arguments);
    const Tokenizer tokenizer = models::load_tokenizer_of_model(
        arguments.model_path, arguments.tokenizer_path, model.config.vocab_size);
    if (arguments.export_path.empty())
        demo(model, tokenizer, arguments, Generator(seed));
    else
        export_file(model, tokenizer, arguments);
}

int main(int argc, char** argv) {
    Arguments arguments;
    Options options("16_quantization", "How does a model fit in a quarter of its bytes?");
    models::add_model_path(
        options, arguments.model_path,
        "generate with this model: a folder, or a GGUF file, whose types are kept "
        "without --dtype");
    options.path("--tokenizer", arguments.tokenizer_path,
                 "its tokenizer, if it is neither beside nor in the model");
    options.needs("--tokenizer", "--model");
    options.path("--export", arguments.export_path, "write the model to this GGUF file");
    options.path("--adapter", arguments.adapter_path,
                 "a LoRA adapter in PEFT's format, which is merged into the weights");
    options.path("--export-adapter", arguments.export_adapter_path,
                 "write the adapter alone to this GGUF file");
    options.needs("--adapter", "--model");
    options.needs("--export-adapter", "--adapter");
    options.choice("--dtype", arguments.dtype, dtype_names(),
                   "the type of its weights, in the file or in memory; alone: generate with "
                   "king_james in this type");
    options.choice("--cache-dtype", arguments.cache_dtype, {"float32", "float16"},
                   "the type of the KV cache, with --model or --dtype");
    options.text("--prompt", arguments.prompt, "the text to continue");
    options.count("--max-new-tokens", arguments.max_new_tokens, 1, 1 << 20,
                  "tokens to generate");
    options.flag("--no-timing", arguments.no_timing,
                 "leave out run times, which differ from run to run");
    return options.run(argc, argv, [&] {
        arguments.keep_dtypes = !options.given("--dtype");
        if (!arguments.export_adapter_path.empty()) return export_adapter(arguments);
        run(arguments, options.seed());
    });
}
