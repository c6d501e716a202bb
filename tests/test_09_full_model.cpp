#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "chapters/09_full_model/checkpoint.hpp"
#include "common/files/safetensors.hpp"
#include "tests/check.hpp"
#include "tests/files.hpp"

using namespace llm;

namespace {

const IdMatrix small_ids{{3, 16, 0, 5, 5}, {9, 1, 2, 3, 4}};

std::string checkpoint(const std::string& name) {
    return fixture_path("09_full_model/" + name);
}
Tensor3 expected_logits(const std::string& name) {
    return fixture<3>("09_full_model/" + name + "_logits");
}

ModelConfig small_config() {
    ModelConfig config;
    config.hidden_size = 16;
    config.intermediate_size = 20;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 17;
    config.max_position_embeddings = 64;
    return config;
}

// Every 97th logit, as the fixtures of the walk have them.
Tensor3 thinned(const Tensor3& logits) {
    return xt::view(logits, xt::all(), xt::all(), xt::range(0, 32000, 97));
}

// The one line with which a checkpoint is refused.
std::string refusal(const std::string& path) try {
    load_model(path);
    return "it was accepted";
} catch (const FileError& error) {
    const std::string line = error.what();
    CHECK(line.find(path) != line.npos);
    CHECK(line.find('\n') == line.npos);
    CHECK(line.size() < 500);
    return line;
}

void check_same(const ModelConfig& a, const ModelConfig& b) {
    CHECK(a.hidden_size == b.hidden_size);
    CHECK(a.intermediate_size == b.intermediate_size);
    CHECK(a.num_hidden_layers == b.num_hidden_layers);
    CHECK(a.num_attention_heads == b.num_attention_heads);
    CHECK(a.num_key_value_heads == b.num_key_value_heads);
    CHECK(a.head_dim == b.head_dim);
    CHECK(a.vocab_size == b.vocab_size);
    CHECK(a.max_position_embeddings == b.max_position_embeddings);
    CHECK(a.rms_norm_eps == b.rms_norm_eps);
    CHECK(a.rope_theta == b.rope_theta);
    CHECK(a.tie_word_embeddings == b.tie_word_embeddings);
    CHECK(a.use_qk_norm == b.use_qk_norm);
    CHECK(a.attention_bias == b.attention_bias);
    CHECK(a.attention_output_bias == b.attention_output_bias);
    REQUIRE(a.rope_scaling.has_value() == b.rope_scaling.has_value());
    if (!a.rope_scaling) return;
    CHECK(a.rope_scaling->factor == b.rope_scaling->factor);
    CHECK(a.rope_scaling->low_freq_factor == b.rope_scaling->low_freq_factor);
    CHECK(a.rope_scaling->high_freq_factor == b.rope_scaling->high_freq_factor);
    CHECK(a.rope_scaling->original_max_position_embeddings ==
          b.rope_scaling->original_max_position_embeddings);
}

// A safetensors file with this header and as many bytes of numbers.
std::string safetensors(const std::string& header, std::size_t bytes) {
    const std::uint64_t length = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    return text + header + std::string(bytes, '\0');
}

}  // namespace

TEST_CASE("the walk: Mini-LLM's first logits equal PyTorch's") {
    ModelConfig config;
    config.interleaved_rope = true;
    Generator generator(77);
    Model model = make_model(config, generator);
    CHECK_FALSE(model.config.interleaved_rope);  // reordered, and so never again
    const IdMatrix ids{{1, 334, 3855, 288}};
    const Tensor3 pinned = fixture<3>("09_full_model/walk_stream");  // (17, 4, 24)
    const auto every_16th = [](const Tensor3& stream) {
        return Matrix(xt::view(stream, 0, xt::all(), xt::range(0, 384, 16)));
    };

    const Placement placement = model.placement(1, 4);
    Tensor3 stream = model.embed(ids);
    CHECK_CLOSE(every_16th(stream), Matrix(xt::view(pinned, 0)), 1e-5);
    for (std::size_t layer = 0; layer < 16; ++layer) {
        stream = model.layers[layer](stream, placement);
        CHECK_CLOSE(every_16th(stream), Matrix(xt::view(pinned, layer + 1)), 1e-5);
    }
    CHECK_CLOSE(thinned(model.logits(stream)), expected_logits("walk"), 1e-5);
    CHECK_CLOSE(model(ids), model.logits(stream), 0);

    draw_normal(model, Real(0.02), generator);
    CHECK_CLOSE(thinned(model(ids)), expected_logits("walk_small"), 1e-5);
}

TEST_CASE("parameters: Mini-LLM has 50,049,408, by its tensors and by its configuration") {
    Generator generator(1);
    const ModelConfig config;
    const ParameterCount counted = count_parameters(config);
    CHECK(counted.embedding == 12288000);
    CHECK(counted.attention == 9437184);
    CHECK(counted.mlp == 28311552);
    CHECK(counted.norms == 12672);
    CHECK(counted.head == 0);
    CHECK(counted.total() == 50049408);
}

TEST_CASE("parameters counted from a configuration are those of the tensors") {
    for (const bool tied : {false, true})
        for (const bool qk_norm : {false, true})
            for (const int bias : {0, 1, 2}) {
                ModelConfig config = small_config();
                config.tie_word_embeddings = tied;
                config.use_qk_norm = qk_norm;
                config.attention_bias = bias > 0;
                config.attention_output_bias = bias > 1;
                config.head_dim = 6;
                Generator generator(1);
                const ParameterCount tensors = count_parameters(make_model(config, generator));
                const ParameterCount counted = count_parameters(config);
                CHECK(counted.embedding == tensors.embedding);
                CHECK(counted.attention == tensors.attention);
                CHECK(counted.mlp == tensors.mlp);
                CHECK(counted.norms == tensors.norms);
                CHECK(counted.head == tensors.head);
                CHECK(tensors.total() == tensors.embedding + tensors.attention + tensors.mlp +
                                             tensors.norms + tensors.head);
            }
}

TEST_CASE("parameters of published models") {
    ModelConfig llama;
    llama.hidden_size = 4096;
    llama.num_attention_heads = llama.num_key_value_heads = 32;
    llama.num_hidden_layers = 32;
    llama.intermediate_size = 11008;
    llama.tie_word_embeddings = false;
    CHECK(count_parameters(llama).total() == 6738415616);  // Llama-2-7B

    ModelConfig qwen;
    qwen.hidden_size = 1024;
    qwen.num_attention_heads = 16;
    qwen.num_key_value_heads = 8;
    qwen.head_dim = 128;
    qwen.num_hidden_layers = 28;
    qwen.intermediate_size = 3072;
    qwen.vocab_size = 151936;
    qwen.use_qk_norm = true;
    CHECK(count_parameters(qwen).total() == 596049920);  // Qwen3-0.6B
}

TEST_CASE("operations per token: two for each number of a matrix, four for each that is seen") {
    ModelConfig config = small_config();
    config.head_dim = 6;
    config.attention_bias = true;  // additions of biases are not counted
    // Attention 2 * (2 * 24 * 16 + 2 * 12 * 16), MLP 2 * 3 * 16 * 20, head 17 * 16.
    const std::size_t matrices = 2304 + 1920 + 272;
    CHECK(operations_per_token(config, 0) == 2 * matrices + 4 * 2 * 24);
    CHECK(operations_per_token(config, 9) == 2 * matrices + 4 * 10 * 2 * 24);
    config.tie_word_embeddings = false;
    CHECK(operations_per_token(config, 0) == 2 * matrices + 4 * 2 * 24);
}

TEST_CASE("an untied head is a matrix of its own") {
    ModelConfig config = small_config();
    config.tie_word_embeddings = false;
    Generator generator(1);
    Model model = make_model(config, generator);
    REQUIRE(model.lm_head.has_value());
    CHECK(dims(*model.lm_head) == std::array<std::size_t, 2>{17, 16});
    const Tensor3 untied = model(small_ids);
    model.lm_head = model.embed_tokens;
    const Tensor3 copied = model(small_ids);
    model.lm_head.reset();
    CHECK_CLOSE(model(small_ids), copied, 0);
    CHECK_FALSE(difference(untied, copied, 0.1).empty());
}

TEST_CASE("draw_normal: every matrix anew, with the standard deviation asked for") {
    ModelConfig config = small_config();
    config.tie_word_embeddings = false;
    Generator generator(1);
    Model model = make_model(config, generator);
    draw_normal(model, Real(0.02), generator);
    const GatedMlp& mlp = model.layers[1].mlp;
    const Projections& projections = model.layers[1].self_attn.projections;
    for (const Matrix* matrix : std::initializer_list<const Matrix*>{
             &model.embed_tokens, &projections.q_proj.weight, &projections.k_proj.weight,
             &projections.v_proj.weight, &projections.o_proj.weight, &mlp.gate_proj.weight,
             &mlp.up_proj.weight, &mlp.down_proj.weight, &*model.lm_head}) {
        double squares = 0;
        for (const Real number : *matrix) squares += double(number) * double(number);
        const double deviation = std::sqrt(squares / static_cast<double>(matrix->size()));
        CHECK(deviation == doctest::Approx(0.02).epsilon(0.25));
    }
}

TEST_CASE("a model names a token that it does not have and a sequence that is too long") {
    Generator generator(1);
    const Model model = make_model(small_config(), generator);
    CHECK_THROWS_WITH_AS(model(IdMatrix{{3, 17}}),
                         "model: there is no token 17 in a vocabulary of 17", ShapeError);
    CHECK_THROWS_AS(model(IdMatrix{{-1}}), ShapeError);
    CHECK_THROWS_WITH_AS(model(IdMatrix(xt::zeros<Id>({1, 65}))),
                         "model: a sequence of 65 tokens exceeds max_position_embeddings of 64",
                         ShapeError);
    CHECK_NOTHROW(model(IdMatrix(xt::zeros<Id>({1, 64}))));
    CHECK_NOTHROW(check_input(model.config, IdMatrix(xt::zeros<Id>({65, 1}))));
    CHECK_THROWS_AS(check_input(model.config, IdMatrix(xt::zeros<Id>({1, 65}))), ShapeError);
    CHECK(ModelConfig().max_position_embeddings == 2048);
    ModelConfig smallest = small_config();
    smallest.vocab_size = smallest.intermediate_size = smallest.num_hidden_layers = 1;
    CHECK_NOTHROW(complete(smallest));
    ModelConfig empty = small_config();
    empty.num_hidden_layers = 0;
    CHECK_THROWS_AS(complete(empty), ShapeError);
    empty = small_config();
    empty.intermediate_size = 0;
    CHECK_THROWS_AS(complete(empty), ShapeError);
    empty = small_config();
    empty.vocab_size = 0;
    CHECK_THROWS_AS(count_parameters(empty), ShapeError);
}

TEST_CASE("checkpoints of every kind give PyTorch's logits") {
    for (const std::string name : {"llama", "qwen2", "qwen3", "mistral", "mini_llm"}) {
        INFO(name);
        const Model model = load_model(checkpoint(name));
        CHECK_CLOSE(model(small_ids), expected_logits(name), 1e-5);
        CHECK_FALSE(model.config.interleaved_rope);  // reordered, and so never again
    }
    for (const std::string name : {"llama2c", "llama2c_tied"}) {
        const Model model = load_model(checkpoint(name + ".bin"));
        CHECK_CLOSE(model(small_ids), expected_logits(name), 1e-5);
        CHECK(model.lm_head.has_value() == (name == "llama2c"));
        CHECK_FALSE(model.config.interleaved_rope);
    }
}

TEST_CASE("export writes what Hugging Face reads: the same logits after loading it again") {
    const Scratch scratch;
    for (const std::string name :
         {"llama", "qwen2", "qwen3", "mistral", "mini_llm", "llama2c.bin"}) {
        INFO(name);
        const Model model = load_model(checkpoint(name));
        const std::string folder = (scratch.folder / name).string();
        export_model(model, folder);
        const Model again = load_model(folder);
        CHECK_CLOSE(again(small_ids), model(small_ids), 0);
        CHECK(count_parameters(again).total() == count_parameters(model).total());
        check_same(again.config, model.config);
    }
    CHECK(mentions(content(scratch.folder / "qwen3/config.json"), "\"Qwen3ForCausalLM\""));
    CHECK(mentions(content(scratch.folder / "qwen2/config.json"), "\"model_type\": \"qwen2\""));
}

TEST_CASE(
    "export: a model with all four biases comes back, one that no model type has does not") {
    const Scratch scratch;
    ModelConfig config = small_config();
    config.attention_bias = config.attention_output_bias = true;
    Generator generator(5);
    const Model model = make_model(config, generator);
    const std::string folder = scratch.folder.string();
    export_model(model, folder);
    const Model again = load_model(folder);
    CHECK_CLOSE(again(small_ids), model(small_ids), 0);
    check_same(again.config, model.config);
    CHECK(mentions(content(folder + "/config.json"), "\"hidden_act\": \"silu\""));

    config.attention_output_bias = false;
    config.use_qk_norm = true;
    CHECK_THROWS_AS(export_model(make_model(config, generator), folder), ShapeError);
}

TEST_CASE("export into a folder of several files replaces what is read") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/qwen2");
    const Model model = load_model(checkpoint("mistral"));
    export_model(model, folder);
    CHECK_CLOSE(load_model(folder)(small_ids), model(small_ids), 0);
}

TEST_CASE("interleaved weights of shared key heads are drawn and reordered head by head") {
    ModelConfig config = small_config();
    Generator generator(4), same(4);
    const Model plain = make_model(config, generator);
    config.interleaved_rope = true;
    const Model reordered = make_model(config, same);
    const Projections &from = plain.layers[1].self_attn.projections,
                      &to = reordered.layers[1].self_attn.projections;
    CHECK_CLOSE(to.q_proj.weight, interleaved_to_split_half(from.q_proj, 4).weight, 0);
    CHECK_CLOSE(to.k_proj.weight, interleaved_to_split_half(from.k_proj, 2).weight, 0);
}

TEST_CASE("read_config: every field, and what a config may leave out") {
    const Scratch scratch;
    const auto read = [&](const std::string& json) {
        overwrite(scratch.folder / "config.json", json);
        return read_config(JsonFile(scratch.folder / "config.json"));
    };
    const std::string sizes =
        R"("hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 3,
           "num_attention_heads": 4, "vocab_size": 17, "max_position_embeddings": 64,
           "rms_norm_eps": 0.25)";
    const ModelConfig llama = read(R"({"model_type": "llama", )" + sizes + "}");
    CHECK(llama.hidden_size == 16);
    CHECK(llama.intermediate_size == 20);
    CHECK(llama.num_hidden_layers == 3);
    CHECK(llama.num_attention_heads == 4);
    CHECK(llama.num_key_value_heads == 4);  // as many as query heads
    CHECK(llama.head_dim == 4);
    CHECK(llama.vocab_size == 17);
    CHECK(llama.max_position_embeddings == 64);
    CHECK(llama.rms_norm_eps == Real(0.25));
    CHECK(llama.rope_theta == 10000);
    CHECK_FALSE(llama.tie_word_embeddings);
    CHECK_FALSE(llama.use_qk_norm);
    CHECK_FALSE(llama.attention_bias);

    // What it says of its type counts, whatever else it holds.
    CHECK(read(R"({"model_type": "llama", "dim": 8, )" + sizes + "}").hidden_size == 16);
    CHECK_THROWS_AS(read("{" + sizes + "}"), FileError);
    CHECK(read(R"({"dim": 16, "n_layers": 1, "n_heads": 4, "vocab_size": 17,
                   "multiple_of": 24, "max_seq_len": 32})")
              .interleaved_rope);

    const ModelConfig biased =
        read(R"({"model_type": "llama", "attention_bias": true, )" + sizes + "}");
    CHECK((biased.attention_bias && biased.attention_output_bias));
    const ModelConfig qwen2 = read(R"({"model_type": "qwen2", )" + sizes + "}");
    CHECK((qwen2.attention_bias && !qwen2.attention_output_bias));
    const ModelConfig qwen3 = read(R"({"model_type": "qwen3", )" + sizes + "}");
    CHECK(qwen3.head_dim == 128);
    CHECK(qwen3.use_qk_norm);

    const ModelConfig mini = read(
        R"({"model_type": "mini-llm", "dim": 16, "n_layers": 3, "n_heads": 4, "vocab_size": 17,
            "multiple_of": 24, "max_seq_len": 32})");
    CHECK(mini.num_key_value_heads == 4);
    CHECK(mini.intermediate_size == 72);
    CHECK(mini.max_position_embeddings == 32);
    CHECK(mini.rms_norm_eps == Real(1e-6));
    CHECK((mini.tie_word_embeddings && mini.interleaved_rope));

    // Windows: Mistral's default is 4096, the Qwens have none unless they say so.
    const std::string longer = std::string(sizes).replace(sizes.find(": 64"), 4, ": 8192");
    const auto refused = [&](const std::string& start) {
        CHECK_THROWS_AS(read("{" + start + ", " + longer + "}"), FileError);
    };
    const auto with_context = [&](const std::string& length) {
        return R"({"model_type": "mistral", )" +
               std::string(sizes).replace(sizes.find(": 64"), 4, length) + "}";
    };
    CHECK_NOTHROW(read(with_context(": 4096")));
    CHECK_THROWS_AS(read(with_context(": 4097")), FileError);
    refused(R"("model_type": "mistral")");
    refused(R"("model_type": "qwen2", "use_sliding_window": true)");
    refused(R"("model_type": "mistral", "sliding_window": 8, "use_sliding_window": false)");
    CHECK_NOTHROW(read(R"({"model_type": "mistral", "sliding_window": null, )" + longer + "}"));
    CHECK_NOTHROW(read(R"({"model_type": "qwen3", "sliding_window": 8, )" + longer + "}"));
}

TEST_CASE("STORIES260K: a trained model of 260,032 parameters gives llama2.c's logits") {
    const std::string file = stories260k();
    if (file.empty()) {
        MESSAGE(
            "skipped: karpathy's stories260K.bin lies neither here nor where STORIES260K says");
        return;
    }
    const Model model = load_model(file);
    CHECK(count_parameters(model).total() == 260032);
    const Tensor3 logits = model(IdMatrix{{1}});
    const Vector first = xt::view(logits, 0, 0, xt::range(0, 6));
    CHECK_CLOSE(first, (Vector{-6.2229, 8.4043, -6.2237, -6.2225, -6.2220, -6.2229}), 1e-5);
    const Vector all = xt::view(logits, 0, 0);
    CHECK(std::max_element(all.begin(), all.end()) - all.begin() == 403);
}

TEST_CASE("a configuration that asks for what is not here is refused by name") {
    const std::vector<std::array<std::string, 3>> cases = {
        {"\"model_type\": \"mistral\"", "\"model_type\": \"gpt2\"", "model_type gpt2"},
        {"\"silu\"", "\"gelu\"", "hidden_act gelu"},
        {"\"sliding_window\": null", "\"sliding_window\": 8", "sliding_window"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"", "yarn"},
        {"\"sliding_window\": null", "\"mlp_bias\": true", "mlp_bias"},
        {"\"sliding_window\": null", "\"quantization_config\": {}", "quantization_config"},
        {"\"hidden_size\": 16", "\"hidden_size\": 0", "hidden_size must be a whole number"},
        {"\"hidden_size\": 16", "\"hidden_size\": 1e3", "hidden_size must be a whole number"},
        {"\"hidden_size\": 16", "\"hidden_size\": \"16\"", "not \"16\""},
        {"\"hidden_size\": 16", "\"hidden_size\": 99999999999", "not 99999999999"},
        {"\"hidden_size\": 16", "\"other\": 16", "hidden_size is missing"},
        {"\"num_attention_heads\": 4", "\"num_attention_heads\": 3", "3 query heads"},
        {"\"rms_norm_eps\": 0.001", "\"rms_norm_eps\": true", "rms_norm_eps must be a number"},
        {"\"rms_norm_eps\": 0.001", "\"rms_norm_eps\": 0", "rms_norm_eps must be above 0"},
        {"\"rope_theta\": 500.0", "\"rope_theta\": -1", "rope_theta must be above 0"},
        {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 0",
         "must be true or false"},
        {"\"hidden_act\"", "hidden_act", "not a JSON object"},
        {"\"rope_type\": \"default\"", "\"type\": \"linear\"", "linear"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"", "factor is missing"},
        {"\"rope_theta\": 500.0", "\"other\": 1", "rope_parameters.rope_theta is missing"},
        {"\"sliding_window\": null", "\"rope_scaling\": {}", "contradict"},
        {"\"head_dim\": 4", "\"head_dim\": 5", "head_dim must be even"},
        {"\"hidden_size\": 16", "\"hidden_size\": " + std::string(200000, '['), "not a JSON"},
        {"\"hidden_size\": 16",
         "\"hidden_size\": " + std::string(200000, '[') + std::string(200000, ']'),
         "not a list"},
        {"\"silu\"", "\"" + std::string(100000, 'x') + "\"", "hidden_act xxx"},
    };
    for (const auto& [old_text, new_text, message] : cases) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("09_full_model/mistral");
        edit(folder + "/config.json", old_text, new_text);
        CHECK(mentions(refusal(folder), message));
    }
    for (const auto& [old_text, new_text] : std::vector<std::array<std::string, 2>>{
             {"\"factor\": 8.0", "\"factor\": 0"},
             {"\"low_freq_factor\": 1.0", "\"low_freq_factor\": 4.0"},
             {"\"low_freq_factor\": 1.0", "\"low_freq_factor\": 0"},
             {"\"original_max_position_embeddings\": 32",
              "\"original_max_position_embeddings\": 0"}}) {
        const Scratch damaged;
        const std::string folder = damaged.copy_of("09_full_model/llama");
        edit(folder + "/config.json", old_text, new_text);
        CHECK(mentions(refusal(folder), "rope_scaling needs"));
    }
    const Scratch unscaled;  // a factor of 1 is a factor
    const std::string llama = unscaled.copy_of("09_full_model/llama");
    edit(llama + "/config.json", "\"factor\": 8.0", "\"factor\": 1.0");
    CHECK_NOTHROW(load_model(llama));

    const Scratch scratch;  // a window as wide as the model's context hides nothing
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    edit(folder + "/config.json", "\"sliding_window\": null", "\"sliding_window\": 64");
    CHECK_NOTHROW(load_model(folder));
}

TEST_CASE("a damaged safetensors file is refused with one line that names the tensor") {
    const auto after = [](const std::string& file_content) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("09_full_model/mistral");
        overwrite(folder + "/model.safetensors", file_content);
        return refusal(folder);
    };
    const std::string good = content(checkpoint("mistral") + "/model.safetensors");
    CHECK(mentions(after(""), "is empty"));
    CHECK(mentions(after("abc"), "too short"));
    CHECK(mentions(after(std::string(100, '\xff')), "does not fit into a file of 100"));
    CHECK(mentions(after(good.substr(0, good.size() - 1)), "claims bytes"));
    CHECK(mentions(after(safetensors("[]", 0)), "not a JSON object"));
    CHECK(mentions(after(safetensors("{\"a\": 1}", 0)), "a lacks a dtype"));
    CHECK(mentions(after(safetensors("{}", 0)),
                   "model.embed_tokens.weight of shape (17, 16) is "
                   "missing"));
    const auto one = [](const std::string& type, const std::string& shape,
                        const std::string& offsets) {
        return "{\"a\": {\"dtype\": \"" + type + "\", \"shape\": " + shape +
               ", \"data_offsets\": " + offsets + "}}";
    };
    CHECK(mentions(after(safetensors(one("F32", "[2]", "[0, 4]"), 8)), "does not fill its 4"));
    CHECK(mentions(after(safetensors(one("F32", "[2]", "[8, 0]"), 8)), "claims bytes 8 to 0"));
    CHECK(mentions(after(safetensors(one("F32", "[-1]", "[0, 4]"), 8)), "lacks a dtype"));
    CHECK(mentions(after(safetensors(one("F32", "[4294967296, 4294967297]", "[0, 4]"), 8)),
                   "does not fill"));
    CHECK(mentions(after(safetensors(one("F32", "[2]", "[0, 18446744073709551615]"), 8)),
                   "claims bytes"));
    CHECK(
        mentions(after(safetensors(
                     "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
                     "\"b\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, 12]}}",
                     12)),
                 "overlaps"));
}

TEST_CASE("a tensor of another shape, type, or with NaN is refused with both shapes") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    edit(folder + "/config.json", "\"intermediate_size\": 20", "\"intermediate_size\": 24");
    CHECK(mentions(refusal(folder),
                   "model.layers.0.mlp.gate_proj.weight should have the shape "
                   "(24, 16), it has (20, 16)"));

    const std::string other_type = scratch.copy_of("09_full_model/qwen3");
    edit(other_type + "/model.safetensors", "\"F32\"", "\"I32\"");
    CHECK(mentions(refusal(other_type), "is of type I32"));

    const std::string with_nan = scratch.copy_of("09_full_model/llama");
    std::string bytes = content(with_nan + "/model.safetensors");
    bytes.replace(bytes.size() - 2, 2, "\xc0\x7f");  // NaN in bfloat16, in a head nobody reads
    overwrite(with_nan + "/model.safetensors", bytes);
    CHECK_NOTHROW(load_model(with_nan));
    edit(with_nan + "/config.json", "\"tie_word_embeddings\": true",
         "\"tie_word_embeddings\": false");
    CHECK(mentions(refusal(with_nan), "not finite"));
}

TEST_CASE("several files: a missing one, and names that lead elsewhere, are refused") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/qwen2");
    fs::remove(folder + "/model-00002-of-00002.safetensors");
    CHECK(mentions(refusal(folder), "model-00002-of-00002.safetensors"));
    overwrite(folder + "/model.safetensors.index.json",
              "{\"weight_map\": {\"a\": \"../elsewhere\"}}");
    CHECK(mentions(refusal(folder), "same folder"));
    overwrite(folder + "/model.safetensors.index.json", "{\"weight_map\": {}}");
    CHECK(mentions(refusal(folder), "names no file"));
    overwrite(folder + "/model.safetensors.index.json", "{\"weight_map\": {\"a\": 1}}");
    CHECK(mentions(refusal(folder), "must be a text"));
    overwrite(folder + "/model.safetensors.index.json",
              "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}");
    CHECK(mentions(refusal(folder), "a is not in model-00001"));
}

TEST_CASE("a damaged llama2.c file, a missing one, and a folder without a model are refused") {
    const Scratch scratch;
    const std::string good = content(checkpoint("llama2c.bin"));
    const std::string file = (scratch.folder / "model.bin").string();
    const auto after = [&](const std::string& bytes) {
        overwrite(file, bytes);
        return refusal(file);
    };
    CHECK(mentions(after(good.substr(0, 20)), "too short"));
    const std::string promised = "its header promises " + std::to_string(good.size());
    CHECK(mentions(after(good.substr(0, 5000)), promised));
    CHECK(mentions(after(good + "1234"), promised));
    const auto with_layers = [&](const std::string& layers) {
        return good.substr(0, 8) + layers + good.substr(12);
    };
    CHECK(mentions(after(with_layers(std::string("\0\0\0\1", 4))), "its header promises"));
    CHECK(mentions(after(std::string(4, '\0') + good.substr(4)), "field 0"));
    CHECK(mentions(after(std::string(28, '\x7f')), "field 0"));
    CHECK(mentions(after(std::string("\1\0\0\1", 4) + good.substr(4)), "field 0"));
    CHECK(mentions(after(good.substr(0, 12) + std::string("\3\0\0\0", 4) + good.substr(16)),
                   "query heads"));
    CHECK(mentions(after(good.substr(0, 28) + "\x01\x01\xc0\x7f" + good.substr(32)),
                   "not finite"));
    CHECK(mentions(refusal((scratch.folder / "nothing").string()), "cannot read"));
    CHECK(mentions(refusal(scratch.folder.string()), "config.json"));
    CHECK(mentions(refusal("/dev/null"), "is not a file"));
}
