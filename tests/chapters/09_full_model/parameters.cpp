#include <cstring>
#include <map>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

// The text between two others, from a position that moves to its end.
std::string between(const std::string& text, const std::string& before,
                    const std::string& after, std::size_t& position) {
    const std::size_t begin = text.find(before, position) + before.size();
    position = text.find(after, begin);
    return text.substr(begin, position - begin);
}

// The names and shapes of the tensors in safetensors files: "(16, 20)" by name.
std::map<std::string, std::string> tensors_of(const std::vector<std::string>& files) {
    std::map<std::string, std::string> shapes;
    for (const std::string& file : files) {
        const std::string text = content(checkpoint(file));
        std::uint64_t header_size = 0;
        std::memcpy(&header_size, text.data(), 8);
        std::string header = text.substr(8, header_size);
        for (std::size_t dtype; (dtype = header.find("\": {\"dtype\"")) != header.npos;) {
            const std::size_t quote = header.rfind('"', dtype - 1);
            const std::string name = header.substr(quote + 1, dtype - quote - 1);
            std::size_t position = dtype;
            const std::string sizes = between(header, "\"shape\": [", "]", position);
            shapes[name] = "(" + sizes + (sizes.find(',') == sizes.npos ? ",)" : ")");
            header = header.substr(position);
        }
    }
    return shapes;
}

}  // namespace

TEST_CASE("named_parameters are the tensors of a Hugging Face checkpoint, by name and shape") {
    const std::map<std::string, std::vector<std::string>> files = {
        {"llama", {"llama/model.safetensors"}},
        {"qwen3", {"qwen3/model.safetensors"}},
        {"qwen2",
         {"qwen2/model-00001-of-00002.safetensors", "qwen2/model-00002-of-00002.safetensors"}}};
    for (const auto& file : files) {
        const std::string& name = file.first;
        INFO(name);
        Model model = models::load_model(checkpoint(name));
        std::map<std::string, std::string> expected = tensors_of(file.second);
        CHECK(expected.erase("lm_head.weight") == 1);  // the llama file has one although tied
        if (model.lm_head) expected["lm_head.weight"] = "(17, 16)";

        std::map<std::string, std::string> listed;
        std::uint64_t total = 0;
        for (const Parameter& parameter : named_parameters(model)) {
            CHECK(listed.emplace(parameter.name, to_text(parameter.shape)).second);
            CHECK(parameter.values.size() == element_count(parameter.shape));
            total += parameter.values.size();
        }
        CHECK(listed.size() >= 20);
        CHECK((listed == expected));
        CHECK(total == count_parameters(model.config).total());
        CHECK(total == count_parameters(model).total());
        CHECK(listed.contains("model.layers.1.self_attn.q_norm.weight") == (name == "qwen3"));
        CHECK(listed.contains("model.layers.1.self_attn.k_proj.bias") == (name == "qwen2"));
        CHECK_FALSE(listed.contains("model.layers.1.self_attn.o_proj.bias"));
    }
}

TEST_CASE("named_parameters are views: what is written to them changes the model") {
    Model model = models::load_model(checkpoint("qwen3"));
    const Model& constant = model;
    std::vector<Parameter> parameters = named_parameters(model);
    const std::vector<ConstParameter> constants = named_parameters(constant);
    REQUIRE(constants.size() == parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        CHECK(constants[i].name == parameters[i].name);
        CHECK(constants[i].values.data() == parameters[i].values.data());
    }
    for (Parameter& parameter : parameters)
        if (parameter.name == "model.layers.1.mlp.down_proj.weight") parameter.values[3] = 42;
    CHECK(model.layers[1].mlp.down_proj.weight(0, 3) == 42);
}

TEST_CASE("count_parameters of Mini-LLM's configuration gives 50,049,408") {
    const ParameterCount count = count_parameters(mini_llm_config());
    CHECK(count.embedding == 12288000);
    CHECK(count.attention == 9437184);
    CHECK(count.mlp == 28311552);
    CHECK(count.norms == 12672);
    CHECK(count.head == 0);
    CHECK(count.total() == 50049408);
}

TEST_CASE("count_parameters of a configuration equals count_parameters of its model") {
    for (const bool tied : {false, true})
        for (const QKNormType qk_norm :
             {QKNormType::none, QKNormType::without_weights, QKNormType::with_weights})
            for (const AttentionBias bias :
                 {AttentionBias::none, AttentionBias::qkv, AttentionBias::qkvo}) {
                Config config = small_config();
                config.tie_word_embeddings = tied;
                config.qk_norm = qk_norm;
                config.attention_bias = bias;
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

TEST_CASE("count_parameters equals the published numbers of Llama-2-7B and Qwen3-0.6B") {
    Config llama = mini_llm_config();
    llama.hidden_size = 4096;
    llama.num_attention_heads = llama.num_key_value_heads = 32;
    llama.num_hidden_layers = 32;
    llama.intermediate_size = 11008;
    llama.tie_word_embeddings = false;
    CHECK(count_parameters(llama).total() == 6738415616);

    Config qwen = mini_llm_config();
    qwen.hidden_size = 1024;
    qwen.num_attention_heads = 16;
    qwen.num_key_value_heads = 8;
    qwen.head_dim = 128;
    qwen.num_hidden_layers = 28;
    qwen.intermediate_size = 3072;
    qwen.vocab_size = 151936;
    qwen.qk_norm = QKNormType::with_weights;
    CHECK(count_parameters(qwen).total() == 596049920);
}

TEST_CASE("flops_per_token: two per matrix element, four per query feature and position") {
    Config config = small_config();
    config.head_dim = 6;
    config.attention_bias = AttentionBias::qkvo;  // adding biases is not counted
    // Attention 2 * (2 * 24 * 16 + 2 * 12 * 16), MLP 2 * 3 * 16 * 20, head 17 * 16.
    const std::size_t matrices = 2304 + 1920 + 272;
    CHECK(flops_per_token(config, 0) == 2 * matrices + 4 * 2 * 24);
    CHECK(flops_per_token(config, 9) == 2 * matrices + 4 * 10 * 2 * 24);
    config.tie_word_embeddings = false;
    CHECK(flops_per_token(config, 0) == 2 * matrices + 4 * 2 * 24);
}
