// Published model types against a plain PyTorch reference (tests/make_fixtures.py).
#include <random>

#include "chapters/17_long_context/long_context_checkpoint.hpp"
#include "tests/check.hpp"
#include "tests/files.hpp"

using namespace llm;

namespace {

const std::vector<std::string> types = {"mistral", "gemma2", "gemma3_text"};

std::string folder_of(const std::string& type) {
    return fixture_path("17_long_context/" + type);
}

IdMatrix fixture_ids(const std::string& name) {
    return load_ids<2>(fixture_file("17_long_context/" + name));
}

// The largest difference may be 2e-5 of the largest logit.
void check_logits(const Tensor3& logits, const Tensor3& expected) {
    CHECK_CLOSE(logits, expected, 2e-5);
}

IdMatrix columns(const IdMatrix& ids, std::size_t first, std::size_t count) {
    return xt::view(ids, xt::all(), xt::range(first, first + count));
}

}  // namespace

TEST_CASE("load_long_context_model: mistral, gemma2 and gemma3_text equal PyTorch") {
    const IdMatrix ids = fixture_ids("ids");
    for (const std::string& type : types) {
        CAPTURE(type);
        check_logits(load_long_context_model(folder_of(type))(ids),
                     fixture<3>("17_long_context/" + type + "_logits"));
    }
}

TEST_CASE("a model with caches equals one pass, for random cuts of the prompt") {
    const IdMatrix ids = fixture_ids("ids");
    const std::size_t length = ids.shape(1);
    std::mt19937 random(7);
    for (const std::string& type : types) {
        CAPTURE(type);
        const LongContextModel model = load_long_context_model(folder_of(type));
        const Tensor3 expected = model(ids);
        for (int repetition = 0; repetition < 20; ++repetition) {
            LongContextCache cache = make_cache(model, 64);
            for (std::size_t first = 0; first < length;) {
                const std::size_t count =
                    std::min<std::size_t>(1 + random() % 11, length - first);
                const Tensor3 logits = model.forward(columns(ids, first, count), &cache).logits;
                const Tensor3 part =
                    xt::view(expected, xt::all(), xt::range(first, first + count), xt::all());
                REQUIRE_CLOSE(logits, part, 2e-5);
                first += count;
            }
            CHECK(cache.layers[0].keys.shape(2) == 5);  // the window of the first layer
        }
        LongContextCache cache = make_cache(model, 64);
        const Tensor3 last = xt::view(expected, xt::all(), xt::range(length - 1, length));
        CHECK_CLOSE(model.forward(ids, &cache, LogitsToKeep::last).logits, last, 2e-5);
    }
}

TEST_CASE("generate: greedy text equals PyTorch's, with caches and without") {
    for (const std::string& type : types) {
        CAPTURE(type);
        const LongContextModel model = load_long_context_model(folder_of(type));
        const IdMatrix expected = fixture_ids(type + "_greedy");
        const std::vector<Id> all(expected.begin(), expected.end());
        const std::vector<Id> prompt(all.begin(), all.begin() + 9);
        GenerationConfig config;
        config.sampling.temperature = 0;
        config.max_new_tokens = 30;
        for (const bool use_cache : {true, false}) {
            config.use_cache = use_cache;
            Generator generator(1);
            std::vector<Id> ids = prompt;
            for (const Id id : generate(model, prompt, config, generator)) ids.push_back(id);
            CHECK(ids == all);
        }
        config.eos_token_ids = {all[12]};
        Generator generator(1);
        const auto stop = std::find(all.begin() + 9, all.end(), all[12]);
        CHECK(generate(model, prompt, config, generator).size() ==
              std::size_t(stop - all.begin() - 9));
    }
}

TEST_CASE("export_model of chapter 17: the copy has the same logits, in every bit") {
    const IdMatrix ids = fixture_ids("ids");
    for (const std::string& type : types) {
        CAPTURE(type);
        const LongContextModel model = load_long_context_model(folder_of(type));
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            const Scratch scratch;
            const std::string folder = scratch.folder.string();
            export_model(model, folder, dtype);
            const LongContextModel copy = load_long_context_model(folder);
            CHECK_CLOSE(copy(ids), model(ids), 0);
            CHECK(copy.config.patterns.size() == model.config.patterns.size());
        }
    }
}

TEST_CASE("a long-context model names what it cannot do") {
    const LongContextModel model = load_long_context_model(folder_of("gemma2"));
    GenerationConfig config;
    config.context_shift = true;
    Generator generator(1);
    CHECK_THROWS_WITH_AS(generate(model, {1}, config, generator),
                         "generate: context_shift is not supported for gemma2", ShapeError);
    CHECK_THROWS_WITH_AS(generate(model, {}, {}, generator),
                         "generate: the prompt must have at least one token", ShapeError);
    LongContextCache cache = make_cache(model, 64);
    const IdMatrix ids = xt::zeros<Id>({1, 40});
    model.forward(ids, &cache);
    CHECK_THROWS_WITH_AS(model.forward(ids, &cache),
                         "long_context_model: 80 tokens exceed max_position_embeddings of 64",
                         ShapeError);
}
