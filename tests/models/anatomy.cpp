// The choices of published models.
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/model_size.hpp"
#include "chapters/models/parameter_count.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using namespace llm::models;

namespace {

std::string text_of(const Anatomy& anatomy, const std::string& name) {
    for (const Choice& choice : anatomy.choices)
        if (choice.name == name) return choice.text;
    return "there is no " + name;
}

Anatomy anatomy_of_named(const std::string& name) { return anatomy_of(find_example(name)); }

}  // namespace

TEST_CASE("published models have as many parameters as their makers' files") {
    // The sizes of the safetensors files, or what the makers count: GPT-2 1558M, Granite 2.53
    // billion, gpt-oss 20.91 billion (3.61 active), Llama 4 Scout 109 billion with its vision
    // encoder, DeepSeek-V2-Lite 15.7, DeepSeek-V3 671 (37 active), Qwen3-Next 80 billion,
    // Qwen3.5 9B without its vision encoder and multi-token prediction.
    // LFM2-8B-A1B 8.3 billion.
    const std::map<std::string, std::string> published = {
        {"GPT-2 XL", "1,557,611,200"},
        {"Llama 2 7B", "6,738,415,616"},
        {"Mistral 7B", "7,241,732,096"},
        {"Mixtral 8x7B", "46,702,792,704"},
        {"Gemma 7B", "8,537,680,896"},
        {"Phi-3 mini", "3,821,079,552"},
        {"StarCoder2 7B", "7,173,923,840"},
        {"GLM-4 9B 0414", "9,400,279,040"},
        {"Gemma 2 9B", "9,241,705,984"},
        {"Llama 3.1 8B", "8,030,261,248"},
        {"Qwen2.5 7B", "7,615,616,512"},
        {"OLMo 2 7B", "7,298,617,344"},
        {"Granite 3.1 2B", "2,533,531,648"},
        {"Command R7B", "8,028,033,024"},
        {"Gemma 3 1B", "999,885,952"},
        {"Llama 4 Scout", "107,769,861,120"},
        {"Qwen3 8B", "8,190,735,360"},
        {"Qwen3 30B-A3B", "30,532,122,624"},
        {"SmolLM3 3B", "3,075,098,624"},
        {"gpt-oss-20b", "20,914,757,184"},
        {"DeepSeek-V2-Lite", "15,706,484,224"},
        {"DeepSeek-V3", "671,026,404,352"},
        {"Qwen3-Next 80B-A3B", "79,674,391,296"},
        {"GLM-4.7-Flash", "29,943,390,976"},
        {"Granite SWASH 2B", "2,144,463,840"},
        {"Qwen3.5 9B", "8,953,803,264"},
        {"Qwen3.5 35B-A3B", "34,660,610,688"},
        {"OLMo 3 7B", "7,298,011,136"},
        {"Ministral 3 8B", "8,489,553,920"},
        {"LFM2 1.2B", "1,170,340,608"},
        {"LFM2 8B-A1B", "8,339,929,856"}};
    const std::vector<Anatomy> anatomies = published_anatomies();
    CHECK(anatomies.size() == published.size());
    for (const Anatomy& anatomy : anatomies) {
        CAPTURE(anatomy.name);
        CHECK(text_of(anatomy, "parameters") == published.at(anatomy.name));
    }
    CHECK(text_of(anatomy_of_named("gpt-oss-20b"), "active") == "3,608,307,264");
    CHECK(text_of(anatomy_of_named("DeepSeek-V3"), "active") == "36,625,603,584");
}

TEST_CASE("the choices of published models, each family's own") {
    const auto check = [](const std::string& model,
                          const std::map<std::string, std::string>& expected) {
        CAPTURE(model);
        const Anatomy anatomy = anatomy_of_named(model);
        for (const auto& [name, text] : expected) {
            const std::string& choice = name;  // a lambda cannot capture a structured binding
            CAPTURE(choice);
            CHECK(text_of(anatomy, choice) == text);
        }
    };
    check("GPT-2 XL", {{"positions", "learned"},
                       {"theta", "-"},
                       {"norm", "LayerNorm"},
                       {"MLP", "GELU"},
                       {"F / C", "4.00"},
                       {"biases", "all"},
                       {"tied", "yes"},
                       {"KV heads", "25"},
                       {"C / L", "33"}});
    check("Llama 3.1 8B", {{"positions", "RoPE"},
                           {"theta", "500,000"},
                           {"scaling", "Llama 3, 8"},
                           {"window", "-"},
                           {"KV heads", "8"},
                           {"QK norm", "-"},
                           {"placement", "pre-norm"},
                           {"biases", "-"},
                           {"tied", "no"}});
    check("DeepSeek-V3", {{"KV heads", "latent, 512 + 64"},
                          {"head_dim", "192"},
                          {"scaling", "YaRN, 40"},
                          {"F / C", "2.57, 0.29 each"},
                          {"experts", "8 of 256, one shared"}});
    check("Qwen3-Next 80B-A3B", {{"window", "linear, 36/48"},
                                 {"KV heads", "2"},
                                 {"F / C", "0.25 each"},
                                 {"experts", "10 of 512, one shared"}});
    check("LFM2 1.2B", {{"window", "convolution, 10/16"},
                        {"positions", "RoPE"},
                        {"QK norm", "each head"},
                        {"F / C", "4.00"},
                        {"tied", "yes"}});
    check("LFM2 8B-A1B", {{"experts", "4 of 32"}, {"F / C", "3.50, 0.88 each"}});
    check("Mistral 7B", {{"window", "4096"}, {"context", "32,768"}});
    check("Qwen2.5 7B", {{"biases", "q, k, v"}, {"F / C", "5.29"}});
    check("Qwen3 30B-A3B", {{"H · D / C", "2.00"},
                            {"QK norm", "each head"},
                            {"experts", "8 of 128"},
                            {"F / C", "0.38 each"}});
    check("Gemma 2 9B", {{"norm", "RMSNorm, 1 + w"},
                         {"placement", "sandwich"},
                         {"MLP", "GeGLU"},
                         {"window", "4096, 21/42"},
                         {"multipliers", "embeddings √C, caps 50 and 30"}});
    check("Gemma 3 1B", {{"theta", "1,000,000, 10,000"}, {"window", "512, 22/26"}});
    check("StarCoder2 7B", {{"norm", "LayerNorm"},
                            {"MLP", "GELU"},
                            {"biases", "all"},
                            {"window", "4096"},
                            {"tied", "yes"}});
    check("GLM-4 9B 0414", {{"placement", "sandwich"}, {"biases", "q, k, v"}});
    check("OLMo 2 7B", {{"placement", "res-post-norm"}, {"QK norm", "all heads"}});
    check("OLMo 3 7B",
          {{"placement", "res-post-norm"}, {"scaling", "YaRN, 8"}, {"window", "4096, 24/32"}});
    check("Ministral 3 8B", {{"theta", "1,000,000"}, {"scaling", "YaRN, 16"}, {"window", "-"}});
    check("SmolLM3 3B", {{"positions", "RoPE, 27/36"}});
    check("Granite 3.1 2B", {{"multipliers", "four of muP"}});
    check("Command R7B", {{"positions", "RoPE, 24/32"},
                          {"norm", "LayerNorm, no bias"},
                          {"placement", "parallel"},
                          {"multipliers", "logits 0.25"}});
    check("gpt-oss-20b", {{"scaling", "YaRN, 32"},
                          {"window", "128, 12/24"},
                          {"MLP", "SwiGLU, clamped"},
                          {"multipliers", "sinks"}});
    check("Llama 4 Scout", {{"window", "chunks 8192, 36/48"},
                            {"QK norm", "no weights"},
                            {"experts", "1 of 16, one shared"},
                            {"multipliers", "temperature"}});
}

TEST_CASE("find_example reads the config.json of a folder, or names what it knows") {
    const Anatomy longrope = anatomy_of_named(fixture_path("models/phi3_longrope"));
    CHECK(text_of(longrope, "scaling") == "LongRoPE");
    CHECK(text_of(anatomy_of_named(asset("king_james")), "positions") == "RoPE");
    CHECK_THROWS_WITH_AS(find_example("Llama 5"),
                         ("Llama 5 is neither a config.json or its folder nor one of " +
                          [] {
                              std::string names;
                              for (const Anatomy& anatomy : published_anatomies())
                                  names += (names.empty() ? "" : ", ") + anatomy.name;
                              return names;
                          }())
                             .c_str(),
                         ValueError);
}

TEST_CASE("./learn size: FLOPs and caches are those of the chapters") {
    for (const std::string name : {"Llama 2 7B", "Llama 3.1 8B", "Qwen2.5 7B", "Qwen3 8B"}) {
        CAPTURE(name);
        const FamilyConfig config = find_example(name).config;
        const Config& sizes = config;
        for (const std::size_t position : {0, 4095})
            CHECK(flops_per_token(config, position) == flops_per_token(sizes, position));
        CHECK(kv_cache_bytes(config, 100, 3, 2) ==
              300 * kv_cache_bytes_per_token(sizes.num_hidden_layers, sizes.num_key_value_heads,
                                             sizes.head_dim, 2));
    }
    // A forward pass of T tokens is T forward passes of one.
    FamilyConfig config = find_example("Gemma 3 1B").config;
    double sum = 0;
    for (std::uint64_t position = 0; position < 700; ++position)
        sum += double(flops_per_token(config, position));
    CHECK(flops_of_prefill(config, 700) == sum);
    // 22 of 26 layers have a window of 512, four see everything; one key/value head of 256.
    CHECK(flops_per_token(config, 699) - flops_per_token(config, 599) == 4 * 4 * 100 * 4 * 256);
    CHECK(kv_cache_bytes(config, 700, 1, 2) == 2 * 2 * 256 * (22 * 512 + 4 * 700));
    // Latent attention: 61 layers, absorbed at 4,096 tokens (512 + 64 + 512 features of 128
    // heads a token), expanded at the first; a prefill expands each token once.
    const FamilyConfig latent = find_example("DeepSeek-V3").config;
    const std::uint64_t matrices = 2 * models::count_parameters(latent).active_matrix_elements;
    CHECK(flops_per_token(latent, 4095) ==
          matrices + 61ull * 4096 * 2 * 128 * (512 + 64 + 512));
    CHECK(flops_per_token(latent, 0) == matrices + 61ull * 2 * 128 * (128 + 64 + 128));
    CHECK(flops_of_prefill(latent, 2) ==
          double(2 * matrices + 61ull * 3 * 2 * 128 * (128 + 64 + 128)));
    // Active matrices: a published number, 3.6 billion, which includes vectors.
    CHECK(double(flops_per_token(find_example("gpt-oss-20b").config, 0)) / 2 ==
          doctest::Approx(3.61e9).epsilon(0.005));
}

TEST_CASE("num_attended counts what the mask of a pattern shows") {
    for (const AttentionPattern& pattern :
         {AttentionPattern{FullAttention{}}, AttentionPattern{SlidingWindow{5}},
          AttentionPattern{ChunkedAttention{4}}, AttentionPattern{SinksAndWindow{2, 3}}}) {
        const Matrix mask = pattern_mask(pattern, 17, 17);
        for (std::size_t t = 0; t < 17; ++t) {
            const Vector row = xt::view(mask, t);
            CHECK(num_attended(pattern, t) ==
                  std::uint64_t(std::count(row.begin(), row.end(), Real(0))));
        }
    }
}
