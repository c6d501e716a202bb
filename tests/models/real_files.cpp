// Files as other people's software writes them: text models inside others, quantized weights,
// classes without a language-model head, keys that are missing.
#include <cstring>
#include <iostream>
#include <sstream>

#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/model_folders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

std::uint64_t parameters_of(const std::string& json) {
    const Scratch scratch;
    overwrite(scratch.folder / "config.json", json);
    return count_parameters(read_any_config(open_config(scratch.folder / "config.json")))
        .total();
}

// Replaces texts in the header of a safetensors file, which begins with its length.
void edit_header(const fs::path& file,
                 const std::vector<std::pair<std::string, std::string>>& replaced) {
    std::string all = content(file);
    std::uint64_t size = 0;
    std::memcpy(&size, all.data(), 8);
    std::string header = all.substr(8, size);
    for (const auto& [old_text, new_text] : replaced)
        for (std::size_t at = 0; (at = header.find(old_text, at)) != header.npos;
             at += new_text.size())
            header.replace(at, old_text.size(), new_text);
    const std::uint64_t new_size = header.size();
    std::string length(8, '\0');
    std::memcpy(length.data(), &new_size, 8);
    overwrite(file, length + header + all.substr(8 + size));
}

// Adds a vector of two numbers to a safetensors file.
void add_tensor(const fs::path& file, const std::string& name) {
    const std::string all = content(file);
    std::uint64_t header_size = 0;
    std::memcpy(&header_size, all.data(), 8);
    const std::size_t size = all.size() - 8 - header_size;
    overwrite(file, all + std::string(8, '\0'));
    const std::string first = all.substr(8, all.find(':', 8) - 8);  // {"NAME"
    edit_header(file, {{first, "{\"" + name + R"(": {"dtype": "F32", "shape": [2], )" +
                                   R"("data_offsets": [)" + to_text(size) + ", " +
                                   to_text(size + 8) + "]}, " + first.substr(1)}});
}

// Puts all settings of a folder into text_config of a file with this beginning.
void wrap_config(const std::string& folder, const std::string& beginning) {
    const std::string text = content(folder + "/config.json");
    overwrite(folder + "/config.json", "{" + beginning + R"(, "text_config": )" + text + "}");
}

const std::string mistral_7b =
    R"("model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
       "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
       "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": null)";

}  // namespace

TEST_CASE("Mini-LLM's config.json, as its repository writes it") {
    CHECK(parameters_of(R"({"dim": 384, "n_layers": 16, "n_heads": 6, "n_kv_heads": 6,
        "vocab_size": 32000, "multiple_of": 32, "max_seq_len": 2048, "dropout": 0.0,
        "device": "cpu", "architectures": ["MiniLLM"], "model_type": "mini-llm"})") ==
          50'049'408);
}

// As transformers constructs LlamaConfig(), MistralConfig(), ...; counted by hand for their
// sizes. The numbers of GPT-2, Gemma, Gemma 2, Phi-3, Mixtral and gpt-oss are published.
TEST_CASE("config.json: missing keys have the defaults of the class") {
    const std::vector<std::pair<std::string, std::uint64_t>> cases = {
        {"llama", 6'738'415'616},        {"mistral", 7'241'732'096},
        {"gpt2", 124'439'808},           {"gemma", 8'537'680'896},
        {"gemma2", 2'614'341'888},       {"phi3", 3'821'079'552},
        {"mixtral", 46'702'792'704},     {"gpt_oss", 116'829'156'672},
        {"smollm3", 3'075'098'624},      {"deepseek_v3", 671'026'404'352},
        {"llama4_text", 107'769'861'120}};
    for (const auto& [type, expected] : cases) {
        const std::string& name = type;
        CAPTURE(name);
        CHECK(parameters_of(R"({"model_type": ")" + type + "\"}") == expected);
    }
    CHECK(parameters_of(R"({"model_type": "gemma3", "text_config": {"hidden_size": 2560,
        "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})") == 3'880'263'168);
    // A missing number of key/value heads is the class's, null is that of the query heads.
    const std::string wide = R"({"model_type": "mistral", "num_attention_heads": 16)";
    CHECK(parameters_of(wide + R"(, "num_key_value_heads": null})") -
              parameters_of(wide + "}") ==
          std::uint64_t{32} * 2 * 8 * 256 * 4096);  // k_proj and v_proj of 8 heads more
    // The sizes of Llama 2 7B with 64 more tokens: LLaVA 1.5.
    CHECK(parameters_of(R"({"model_type": "llava", "image_token_index": 32000,
        "vision_config": {"hidden_size": 1024}, "text_config": {"vocab_size": 32064,
        "model_type": "llama", "max_position_embeddings": 4096}})") ==
          6'738'415'616 + 2 * 64 * 4096);
    CHECK(parameters_of(R"({"architectures": ["GPT2LMHeadModel"], "n_ctx": 1024})") ==
          124'439'808);  // the first files have no model_type
}

TEST_CASE("architectures: a class without a language-model head, or with another one") {
    const auto with = [](const std::string& architecture, const std::string& more = "") {
        return parameters_of("{" + mistral_7b + R"(, "architectures": [")" + architecture +
                             "\"]" + more + "}");
    };
    const std::uint64_t whole = 7'241'732'096, head = 32000 * 4096;
    CHECK(with("MistralForCausalLM") == whole);
    CHECK(with("MistralModel") == whole - head);
    CHECK(with("MistralForSequenceClassification") == whole - head + 2 * 4096);
    CHECK(with("MistralForSequenceClassification", R"(, "num_labels": 1)") ==
          whole - head + 4096);
    CHECK(with("MistralForTokenClassification",
               R"(, "id2label": {"0": "A", "1": "B", "2": "C"})") == whole - head + 3 * 4097);
    CHECK(with("MistralForQuestionAnswering") == whole - head + 2 * 4097);
    CHECK(with("SomethingOfItsOwn") == whole);
    const auto active = [](const std::string& architecture) {
        const Scratch scratch;
        const fs::path file = scratch.folder / "config.json";
        overwrite(file, "{" + mistral_7b + R"(, "architectures": [")" + architecture + "\"]}");
        return count_parameters(read_any_config(open_config(file))).active_matrix_elements;
    };
    CHECK(active("MistralForCausalLM") - active("MistralForSequenceClassification") ==
          head - 2 * 4096);
    // Neither a class that ends in Model nor one without a head: GPT-2's.
    const auto class_named = [](const std::string& name) {
        const Scratch scratch;
        overwrite(scratch.folder / "config.json", R"({"architectures": [")" + name + "\"]}");
        return read_head(JsonFile(scratch.folder / "config.json"));
    };
    CHECK(class_named("GPT2LMHeadModel").is_language_model);
    CHECK_FALSE(class_named("GPT2Model").is_language_model);
    // Of a text model inside another, the class of the whole counts.
    const auto inside = [&](const std::string& of_all, const std::string& of_text) {
        return parameters_of(R"({"model_type": "mistral3", "architectures": [")" + of_all +
                             R"("], "text_config": {)" + mistral_7b +
                             R"(, "architectures": [")" + of_text + "\"]}}");
    };
    CHECK(inside("Mistral3ForConditionalGeneration", "MistralModel") == whole);
    CHECK(inside("Mistral3Model", "MistralForCausalLM") == whole - head);

    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    edit(folder + "/config.json", "{", R"({"architectures": ["MistralModel"], )");
    CHECK(mentions(rejection_of_folder(folder),
                   "architectures MistralModel has no language-model head (lm_head)"));
    // A head that is tied to the embedding is there, as in AutoModelForCausalLM.
    const std::string tied = scratch.copy_of("models/gemma");
    edit(tied + "/config.json", "{", R"({"architectures": ["GemmaModel"], )");
    CHECK(rejection_of_folder(tied) == "it was loaded");
    edit(tied + "/config.json", "GemmaModel", "GemmaForSequenceClassification");
    CHECK(mentions(rejection_of_folder(tied), "GemmaForSequenceClassification has no"));
}

TEST_CASE("quantized weights: a size, but no model") {
    for (const auto& [member, method] :
         {std::pair{R"("quantization_config": {"quant_method": "gptq", "bits": 4})", "gptq"},
          {R"("compression_config": {"quant_method": "compressed-tensors"})",
           "compressed-tensors"},
          {R"("quantization": {"group_size": 64, "bits": 4})", "mlx"}}) {
        CHECK(parameters_of("{" + mistral_7b + ", " + member + "}") == 7'241'732'096);
        for (const std::string name : {"09_full_model/mistral", "18_experts/mixtral"}) {
            const Scratch scratch;
            const std::string folder = scratch.copy_of(name);
            edit(folder + "/config.json", "{", "{" + std::string(member) + ", ");
            CHECK(mentions(rejection_of_folder(folder),
                           "the weights are quantized (" + std::string(method) + ")"));
        }
    }
    CHECK(parameters_of("{" + mistral_7b + R"(, "quantization_config": {}})") == 7'241'732'096);
}

TEST_CASE("a text model inside another: its settings in text_config, its tensors renamed") {
    const std::vector<std::vector<std::pair<std::string, std::string>>> layouts = {
        {{"\"model.", "\"language_model.model."}, {"\"lm_head.", "\"language_model.lm_head."}},
        {{"\"model.", "\"model.language_model."}},
        {{"\"model.", "\"language_model."}},
        {}};
    for (const std::string name : {"09_full_model/mistral", "17_long_context/gemma3_text"}) {
        const IdMatrix ids = ids_of(name);
        const Tensor3 expected = logits_of(fixture_path(name), ids);
        for (const auto& layout : layouts) {
            const Scratch scratch;
            const std::string folder = scratch.copy_of(name);
            edit_header(folder + "/model.safetensors", layout);
            wrap_config(folder, R"("model_type": "some_model_with_pictures",
                "vision_config": {"hidden_size": 8, "alibi": true}, "alibi": true)");
            CHECK_CLOSE(logits_of(folder, ids), expected, 0);
            // Tensors of other parts are left out, if the settings name a part.
            edit_header(folder + "/model.safetensors",
                        {{".layers.1.mlp.up_proj.weight\"", ".layers.1.mlp.up.weight\""}});
            CHECK(mentions(rejection_of_folder(folder), "layers.1.mlp.up_proj.weight"));
        }
    }
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    edit_header(folder + "/model.safetensors", {{"\"model.norm", "\"visual.norm"}});
    CHECK(mentions(rejection_of_folder(folder), "model.norm"));
}

TEST_CASE("a text model beside other parts: their tensors, and embeddings of theirs") {
    const std::string name = "09_full_model/mistral";
    const IdMatrix ids = ids_of(name);
    const Tensor3 expected = logits_of(fixture_path(name), ids);
    // Without a key that names a part, its tensor is an error.
    for (const bool has_parts : {true, false}) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of(name);
        add_tensor(folder + "/model.safetensors", "vision_tower.patches.weight");
        if (has_parts)
            edit(folder + "/config.json", "{", R"({"vision_config": {"depth": 2}, )");
        if (has_parts)
            CHECK_CLOSE(logits_of(folder, ids), expected, 0);
        else
            CHECK(mentions(rejection_of_folder(folder), "vision_tower.patches.weight"));
    }
    // The text model's embedding is the one with the shortest name.
    const Scratch scratch;
    const std::string folder = scratch.copy_of(name);
    edit_header(folder + "/model.safetensors", {{"\"model.", "\"language_model.model."}});
    add_tensor(folder + "/model.safetensors", "audio_tower.decoder.layers.embed_tokens.weight");
    wrap_config(folder, R"("model_type": "some_model", "audio_config": {"depth": 2})");
    CHECK_CLOSE(logits_of(folder, ids), expected, 0);
}

TEST_CASE("what is left out of a file is noted once, on standard error") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "config.json";
    overwrite(file, R"({"model_type": "mistral3", "text_config": {)" + mistral_7b + "}}");
    std::ostringstream notes;
    std::streambuf* const before = std::cerr.rdbuf(notes.rdbuf());
    for (int i = 0; i < 2; ++i) read_any_config(open_config(file));
    std::cerr.rdbuf(before);
    CHECK(notes.str() ==
          "note: " + file.string() + ": only the text model is read: text_config\n");
}

TEST_CASE("linear scaling divides the frequency of each pair") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/llama");
    edit(folder + "/config.json", "{",
         R"({"rope_parameters": {"type": "linear", "factor": 4}, )");
    edit(folder + "/config.json", "\"rope_scaling\"", "\"_old\"");
    const FamilyConfig config = read_any_config(open_config(folder + "/config.json"));
    const auto& factors = std::get<FrequencyFactors>(*config.rope_scaling).factors;
    CHECK(factors.size() == config.head_dim / 2);
    CHECK(factors(0) == 4);
}

TEST_CASE("YaRN without an original length: that of the context") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/qwen2");
    const auto original = [&] {
        const FamilyConfig config = read_any_config(open_config(folder + "/config.json"));
        return scaling_of<YarnScaling>(config)->original_max_position_embeddings;
    };
    edit(folder + "/config.json", "{", R"({"rope_scaling": {"type": "yarn", "factor": 4.0}, )");
    CHECK(original() == 64);
    edit(folder + "/config.json", "4.0", R"(4.0, "original_max_position_embeddings": 16)");
    CHECK(original() == 16);
}

TEST_CASE("text_config without a type: its own class says what it is") {
    CHECK(parameters_of(R"({"architectures": ["SomethingOfItsOwn"], "text_config": {)" +
                        mistral_7b.substr(mistral_7b.find(',') + 1) +
                        R"(, "architectures": ["MistralForCausalLM"]}})") == 7'241'732'096);
}

TEST_CASE("Qwen2: windows only if they are used, from layer 0 on, and its biases by name") {
    const auto patterns = [](const std::string& used, const std::string& window,
                             const std::string& more = "") {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("09_full_model/qwen2");
        edit(folder + "/config.json", R"("use_sliding_window": false)",
             R"("use_sliding_window": )" + used + more);
        edit(folder + "/config.json", R"("sliding_window": 8)",
             R"("sliding_window": )" + window);
        std::string text;
        for (const std::string& type :
             layer_types(read_any_config(open_config(folder + "/config.json"))))
            text += type[0];
        return text;
    };
    CHECK(patterns("true", "3", R"(, "max_window_layers": 0)") == "ss");
    CHECK(patterns("true", "3", R"(, "max_window_layers": 1)") == "fs");
    CHECK(patterns("true", "3") == "ff");  // from layer 28 on
    CHECK(patterns("true", "null", R"(, "max_window_layers": 0)") == "ff");
    CHECK(patterns("false", "3", R"(, "max_window_layers": 0)") == "ff");
    // transformers reads the window only if it is said to be used.
    const FamilyConfig windows =
        read_any_config(open_config(fixture_path("models/qwen2_odd") + "/config.json"));
    const Json written = JsonObject(config_json(windows, DType::float32));
    REQUIRE(sliding_window(windows));
    CHECK(*written.find("use_sliding_window") == Json(true));
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/qwen2");
    edit(folder + "/config.json", "{", R"({"qkv_bias": true, )");
    CHECK(rejection_of_folder(folder) == "it was loaded");
}

TEST_CASE("a text model whose tensors have no prefix") {
    const IdMatrix ids = fixture_ids("models/ids");
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/gemma");
    edit_header(folder + "/model.safetensors", {{"\"model.", "\""}});
    CHECK_CLOSE(logits_of(folder, ids), fixture<3>("models/gemma_logits"), 2e-5);
}

TEST_CASE("mrope: the positions of a text are equal in all three axes") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/qwen2");
    const IdMatrix ids = ids_of("09_full_model/qwen2");
    const Tensor3 expected = logits_of(folder, ids);
    edit(folder + "/config.json", "\"qwen2\"", "\"qwen2_vl\"");
    edit(folder + "/config.json", "{", R"({"vision_config": {"depth": 32},
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 0]}, )");
    CHECK_CLOSE(logits_of(folder, ids), expected, 0);
    edit(folder + "/config.json", R"("type": "mrope")",
         R"("rope_type": "default", "mrope_interleaved": true, "type": "mrope")");
    CHECK_CLOSE(logits_of(folder, ids), expected, 0);
}

TEST_CASE("the text models of the VL classes have defaults of their own") {
    struct Class {
        std::string type;
        Real rope_theta, rms_norm_eps;
    };
    const std::vector<Class> classes = {{"qwen2", 10000, 1e-6},
                                        {"qwen2_vl", 1e6, 1e-5},
                                        {"qwen2_5_vl_text", 1e6, 1e-5},
                                        {"qwen3_vl", 5e5, 1e-6}};
    for (const Class& each : classes) {
        const Scratch scratch;
        const auto read = [&](const std::string& more) {
            const std::filesystem::path file = scratch.folder / "config.json";
            overwrite(file, "{\"model_type\": \"" + each.type + R"(", "vocab_size": 7,
                      "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1,
                      "max_position_embeddings": 9, "num_attention_heads": 2,
                      "num_key_value_heads": 1)" +
                                more + "}");
            return read_any_config(open_config(file));
        };
        INFO(each.type);
        CHECK(read("").rope_theta == each.rope_theta);
        CHECK(read("").rms_norm_eps == each.rms_norm_eps);
        CHECK(read(R"(, "rope_theta": 77, "rms_norm_eps": 0.1)").rope_theta == 77);
        CHECK(read(R"(, "rope_theta": 77, "rms_norm_eps": 0.1)").rms_norm_eps == Real(0.1));
        CHECK(read(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 77})")
                  .rope_theta == 77);
    }
}

TEST_CASE("settings that Llama and Qwen2 allow and chapter 09 lacks equal PyTorch") {
    for (const std::string name : {"models/llama_odd", "models/qwen2_odd"}) {
        CAPTURE(name);
        const std::string path = fixture_path(name);
        CHECK(family_of(path) != nullptr);
        CHECK_FALSE(has_fast_path(path));
        const IdMatrix ids = fixture_ids("models/ids");
        const FamilyModel model = std::get<FamilyModel>(load_any_model(path));
        CHECK_CLOSE(model(ids), fixture<3>(name + "_logits"), 2e-5);
        const Scratch scratch;
        models::export_model(model, scratch.folder.string(), DType::float32);
        CHECK_CLOSE(logits_of(scratch.folder.string(), ids), model(ids), 0);
        CHECK(mentions(rejection_of_gguf(model), "export: llama.cpp's "));
    }
}

TEST_CASE("settings that a class allows, with two values each, change the logits") {
    const std::vector<std::array<std::string, 3>> cases = {
        {"models/llama_odd", "\"gelu\"", "\"gelu_pytorch_tanh\""},
        {"models/llama_odd", "\"gelu\"", "\"sigmoid\""},
        {"models/llama_odd", "\"factor\": 4.0", "\"factor\": 3.0"},
        {"models/llama_odd", "\"linear\"", "\"dynamic\""},
        {"models/qwen2_odd", "\"relu\"", "\"silu\""},
        {"models/qwen2_odd", "\"max_window_layers\": 1", "\"max_window_layers\": 2"},
        {"models/qwen2_odd", "\"sliding_window\": 5", "\"sliding_window\": 4"},
        {"models/qwen2_odd", "\"use_sliding_window\": true", "\"use_sliding_window\": false"},
        {"models/qwen2_odd", "\"factor\": 4.0", "\"factor\": 5.0"},
        {"models/qwen2_odd", "\"original_max_position_embeddings\": 200",
         "\"original_max_position_embeddings\": 2000"},
        {"models/qwen2_odd", "\"rope_type\": \"yarn\"",
         "\"rope_type\": \"yarn\", \"truncate\": false"},
        {"models/qwen2_odd", "\"rope_type\": \"yarn\"",
         "\"rope_type\": \"yarn\", \"attention_factor\": 1.3"},
        {"models/smollm3", "\"hidden_act\"",
         "\"use_sliding_window\": true, \"sliding_window\": 4, \"hidden_act\""},
        {"18_experts/qwen3_moe", "\"num_experts\"",
         "\"use_sliding_window\": true, \"sliding_window\": 4, \"num_experts\""},
        {"18_experts/mixtral", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\""},
        {"models/granite", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\""},
        {"20_linear_attention/qwen3_next", "\"rope_scaling\": null",
         "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
         "\"original_max_position_embeddings\": 16}"}};
    for (const auto& [name, old_text, new_text] : cases) {
        const std::string& edited = new_text;
        CAPTURE(edited);
        const Scratch scratch;
        const std::string folder = scratch.copy_of(name);
        const IdMatrix ids = ids_of(name);
        const Tensor3 before = logits_of(folder, ids);
        edit(folder + "/config.json", old_text, new_text);
        const Real difference = xt::amax(xt::abs(logits_of(folder, ids) - before))();
        CHECK(difference > Real(1e-3));
    }
}
