#include "chapters/models/exercise.hpp"

#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace exercise;

namespace {

Real count_of(const Family& family, std::size_t num_key_value_heads, bool tied) {
    Config sizes;
    sizes.hidden_size = 64;
    sizes.intermediate_size = 256;
    sizes.num_hidden_layers = 2;
    sizes.num_attention_heads = 4;
    sizes.num_key_value_heads = num_key_value_heads;
    sizes.head_dim = 16;
    sizes.vocab_size = 1000;
    sizes.max_position_embeddings = 128;
    sizes.tie_word_embeddings = tied;
    return static_cast<Real>(count_parameters(config_with(family, sizes)).total());
}

IdMatrix input_ids() { return load_ids<2>(fixture_file("models/ids")); }

// The logits of the Command R7B of the fixtures, with a change of its config.json.
Tensor3 changed_logits(const std::string& from, const std::string& to) {
    const Scratch scratch;
    const fs::path folder = scratch.copy_of("models/cohere2");
    edit(folder / "config.json", from, to);
    return load_family_model(folder.string())(input_ids());
}

// What a change does: a, b, c or d of the exercise.
char symptom(const Tensor3& right, const Tensor3& wrong) {
    const auto differs_at = [&](std::size_t t) {
        const Matrix one = xt::view(right, xt::all(), t), other = xt::view(wrong, xt::all(), t);
        return !difference(one, other, 1e-4).empty();
    };
    if (!differs_at(0)) return differs_at(1) ? 'c' : differs_at(5) ? '?' : 'b';
    const Real factor = wrong(0, 0, 0) / right(0, 0, 0);
    return difference(wrong, Tensor3(right * factor), 1e-4).empty() ? 'a' : 'd';
}

}  // namespace

TEST_CASE("M.1 predict: the parameters of two families") {
    CHECK_CLOSE(predicted_parameters(),
                (Vector{count_of(olmo2_family(), 2, false), count_of(gpt2_family(), 4, true)}),
                0);
}

TEST_CASE("M.2 predict: which value of a configuration is wrong") {
    const Vector predicted = predicted_keys();
    const Tensor3 right = load_family_model(fixture_path("models/cohere2"))(input_ids());
    const std::vector<std::pair<std::string, std::string>> changes = {
        {R"("layer_norm_eps": 0.001)", R"("layer_norm_eps": 0.01)"},
        {R"("logit_scale": 0.3)", R"("logit_scale": 0.6)"},
        {R"("rope_theta": 500.0)", R"("rope_theta": 5000.0)"},
        {R"("sliding_window": 6)", R"("sliding_window": 12)"}};
    Vector keys = {0, 0, 0, 0};  // of the symptoms a to d
    for (std::size_t key = 0; key < changes.size(); ++key) {
        const auto& [from, to] = changes[key];
        const char letter = symptom(right, changed_logits(from, to));
        REQUIRE(letter >= 'a');
        keys(static_cast<std::size_t>(letter - 'a')) = static_cast<Real>(key + 1);
    }
    CHECK_CLOSE(predicted, keys, 0);
}

TEST_CASE("M.3 find the bug: logits that are a little off") {
    const Tensor3 logits =
        load_family_model(fixture_path("models/gpt2"), gpt2_again())(input_ids());
    INFO("the logits of GPT-2, from PyTorch");
    CHECK_CLOSE(logits, fixture<3>("models/gpt2_logits"), 2e-5);
}

TEST_CASE("M.4 write pebble_family: logits from config.json and tensors") {
    const Family& family = pebble_family();
    const Tensor3 logits =
        load_family_model(fixture_path("models/pebble"), family)(input_ids());
    INFO("the logits of Pebble, from PyTorch");
    CHECK_CLOSE(logits, fixture<3>("models/pebble_logits"), 2e-5);
}
