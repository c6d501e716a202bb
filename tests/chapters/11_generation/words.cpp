#include <filesystem>

#include "chapters/01_masking/masking.hpp"
#include "chapters/11_generation/words.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Words computed_words() {
    const std::string folder = asset("king_james");
    return words_of(models::load_model(folder),
                    models::load_tokenizer(folder + "/tokenizer.json"));
}

void check_equal(const Words& actual, const Words& expected) {
    CHECK(actual.tokens == expected.tokens);
    CHECK_CLOSE(actual.residual_stream, expected.residual_stream, 1e-5);
    CHECK_CLOSE(actual.attention_input, expected.attention_input, 1e-5);
    CHECK_CLOSE(actual.queries, expected.queries, 1e-5);
    CHECK_CLOSE(actual.keys, expected.keys, 1e-5);
    CHECK_CLOSE(actual.values, expected.values, 1e-5);
    CHECK_CLOSE(actual.attentions, expected.attentions, 1e-5);
    CHECK_CLOSE(actual.head_query_weight, expected.head_query_weight, 1e-5);
    CHECK_CLOSE(actual.head_queries, expected.head_queries, 1e-5);
    CHECK_CLOSE(actual.head_keys, expected.head_keys, 1e-5);
    CHECK_CLOSE(actual.head_values, expected.head_values, 1e-5);
    CHECK_CLOSE(actual.gate, expected.gate, 1e-5);
    CHECK_CLOSE(actual.up, expected.up, 1e-5);
}

}  // namespace

TEST_CASE("words_of: the shipped model still computes the tensors of assets/words") {
    check_equal(computed_words(), load_words());
}

TEST_CASE("words: the head's weights are those of the model's forward pass") {
    const Words words = load_words();
    const Matrix mask = causal_mask(5, 5);
    const Matrix weights =
        attention(words.head_queries, words.head_keys, words.head_values, mask).weights;

    const Matrix head_4 = xt::view(words.attentions, 4);
    CHECK_CLOSE(weights, head_4, 1e-5);
}

TEST_CASE(
    "words: the most likely next tokens are those of the table on the page of chapter 01") {
    const Model model = models::load_model(asset("king_james"));
    const Tensor3 logits = model(IdMatrix{{103, 66, 148, 195, 127}});
    const Matrix probabilities = softmax(Matrix(xt::view(logits, 0)));
    const std::vector<std::size_t> next = {66, 148, 628, 127,
                                           494};  // the LORD spake unto Moses
    const std::vector<Real> expected = {0.28F, 0.12F, 0.50F, 0.75F, 0.58F};
    for (std::size_t t = 0; t < next.size(); ++t) {
        const Vector row = xt::view(probabilities, t);
        const auto largest = std::max_element(row.begin(), row.end()) - row.begin();
        CHECK(static_cast<std::size_t>(largest) == next[t]);
        CHECK(row(next[t]) == doctest::Approx(expected[t]).epsilon(0.02));
    }
}

TEST_CASE("words: what is saved is loaded again") {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / "llm_words_test";
    std::filesystem::create_directories(folder);
    const Words words = load_words();
    save_words(folder, words);
    check_equal(load_words(folder), words);
    std::filesystem::remove_all(folder);
}

TEST_CASE("words_of: the words of another text are those of a forward pass, also spaces") {
    const std::string folder = asset("king_james"), text = "In the  beginning\n";
    const Model model = models::load_model(folder);
    const Tokenizer tokenizer = models::load_tokenizer(folder + "/tokenizer.json");
    const Words words = words_of(model, tokenizer, text);
    const std::vector<Id> ids = tokenizer.encode(text);
    CHECK(words.tokens ==
          std::vector<std::string>{"In", "the", "▁", "beg", "in", "n", "ing", "\\n"});
    CHECK(words.count() == "8 tokens");
    IdMatrix input_ids({1, ids.size()});
    std::copy(ids.begin(), ids.end(), input_ids.begin());
    const ModelOutput output = model.forward(input_ids, {.output_hidden_states = true});
    const Matrix last = xt::view(output.hidden_states.back(), 0);
    CHECK_CLOSE(Matrix(xt::view(words.residual_stream, 4)), last, 1e-5);
}

TEST_CASE("words: a text has from 2 to 16 tokens") {
    const std::string folder = asset("king_james");
    const Model model = models::load_model(folder);
    const Tokenizer tokenizer = models::load_tokenizer(folder + "/tokenizer.json");
    for (const std::string text : {"", "And",
                                   "And And And And And And And And And And And And "
                                   "And And And And And"})
        CHECK_THROWS_AS(words_of(model, tokenizer, text), ValueError);
    CHECK(words_of(model, tokenizer, "And the").tokens.size() == 2);
}

TEST_CASE("words_of rejects a model of other sizes") {
    Config config = models::load_model(asset("king_james")).config;
    config.intermediate_size = 256;
    Generator generator(1);
    const Model other = make_model(config, generator);
    const Tokenizer tokenizer = models::load_tokenizer(asset("king_james") + "/tokenizer.json");
    CHECK_THROWS_WITH_AS(words_of(other, tokenizer),
                         "words: the model does not have the sizes of assets/king_james",
                         ValueError);
}

TEST_CASE("load_words names a file that does not exist") {
    CHECK_THROWS_AS(load_words("no_such_folder"), FileError);
}
