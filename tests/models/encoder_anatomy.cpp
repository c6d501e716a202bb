// The choices and the size of encoders.
#include "chapters/models/encoders/encoder_anatomy.hpp"

#include "chapters/models/load.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const std::vector<std::string> shown_encoders = {"bert", "modernbert", "modernbert_biased"};

EncoderFamilyConfig config_of_fixture(const std::string& name) {
    return *find_encoder_config(fixture_path("models/" + name));
}

std::string text_of_choice(const Anatomy& anatomy, const std::string& name) {
    for (const Choice& choice : anatomy.choices)
        if (choice.name == name) return choice.text;
    return "there is no " + name;
}

// The elements of the matrices of all layers, whose names contain none of the others.
std::uint64_t matrix_elements(const std::string& name) {
    std::uint64_t elements = 0;
    const nlohmann::json header =
        nlohmann::json::parse(header_of(fixture_path("models/" + name) + "/model.safetensors"));
    for (const auto& [tensor, entry] : header.items())
        if (tensor.find(".layer") != tensor.npos && entry["shape"].size() == 2)
            elements += std::uint64_t(entry["shape"][0]) * std::uint64_t(entry["shape"][1]);
    return elements;
}

// Of a text of this length: the pairs that the mask does not hide.
std::uint64_t visible_pairs(std::size_t seq_len, std::optional<std::size_t> window) {
    std::uint64_t pairs = 0;
    for (const Real score : bidirectional_mask(xt::ones<Id>({std::size_t{1}, seq_len}), window))
        pairs += score == 0 ? 1 : 0;
    return pairs;
}

}  // namespace

TEST_CASE("flops_of_text: two for each element of a matrix, four for each visible pair") {
    for (const std::string& name : shown_encoders) {
        CAPTURE(name);
        const EncoderFamilyConfig config = config_of_fixture(name);
        for (const std::size_t seq_len : {1, 3, 13}) {
            std::uint64_t pairs = 0;
            for (const bool has_window : config.windows)
                pairs +=
                    visible_pairs(seq_len, has_window ? std::optional(config.windowed->window)
                                                      : std::nullopt);
            CHECK(flops_of_text(config, seq_len) ==
                  double(2 * matrix_elements(name) * seq_len + 4 * config.hidden_size * pairs));
        }
    }
}

TEST_CASE("the choices of encoders have the names of those of other models") {
    const Anatomy llama = find_anatomy("Llama 2 7B");
    for (const std::string& name : encoder_fixtures()) {
        const Anatomy encoder = find_anatomy(fixture_path("models/" + name));
        REQUIRE(encoder.choices.size() == llama.choices.size());
        for (std::size_t n = 0; n < llama.choices.size(); ++n)
            CHECK(encoder.choices[n].name == llama.choices[n].name);
    }
    CHECK(text_of_choice(llama, "attends to") == "the past");
}

TEST_CASE("the choices of BERT and of ModernBERT, which its biases change") {
    const auto check = [](const std::string& name,
                          const std::map<std::string, std::string>& expected) {
        CAPTURE(name);
        const Anatomy anatomy = find_anatomy(fixture_path("models/" + name) + "/config.json");
        for (const auto& [choice, text] : expected)
            CHECK(text_of_choice(anatomy, choice) == text);
    };
    check("bert", {{"attends to", "both sides"},
                   {"positions", "learned"},
                   {"theta", "-"},
                   {"window", "-"},
                   {"heads", "3"},
                   {"head_dim", "8"},
                   {"norm", "LayerNorm"},
                   {"placement", "post-norm"},
                   {"biases", "all"},
                   {"MLP", "GELU"},
                   {"F / C", "0.58"},
                   {"tied", "yes"},
                   {"parameters", "12,171"}});
    check("modernbert", {{"positions", "RoPE"},
                         {"theta", "160, 10"},
                         {"window", "± 2, 3/5"},
                         {"norm", "LayerNorm, no bias"},
                         {"placement", "pre-norm"},
                         {"biases", "-"},
                         {"MLP", "GeGLU"},
                         {"C / L", "5"},
                         {"vocabulary", "31"},
                         {"context", "16"}});
    check("modernbert_biased", {{"theta", "160"},  // the windows have the same
                                {"norm", "LayerNorm"},
                                {"biases", "all"},
                                {"MLP", "gated, silu"},
                                {"tied", "no"}});
    check("bert_classifier", {{"MLP", "relu"}});
}

TEST_CASE("find_encoder_config: none for other models, and for other files") {
    CHECK_FALSE(find_encoder_config(fixture_path("models/gpt2")));
    CHECK_FALSE(find_encoder_config("Llama 2 7B"));
    CHECK_THROWS_WITH_AS(show_size("bert", config_of_fixture("bert"), 17, 1),
                         "--context 17 exceeds max_position_embeddings of 16", ValueError);
}
