// Every family against a plain PyTorch reference (tests/make/make_fixtures.py).
#include <cstring>
#include <random>

#include "chapters/11_generation/generation.hpp"
#include "chapters/18_experts/moe_training.hpp"
#include "tests/support/published_models.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;
using namespace llm::models;

namespace {

FamilyModel load(const std::string& name) { return load_family_model(fixture_path(name)); }

// The input ids of the fixtures of a chapter.
IdMatrix input_ids_of(const std::string& name) {
    return fixture_ids(name.substr(0, name.find('/')) + "/ids");
}

IdMatrix columns(const IdMatrix& ids, std::size_t first, std::size_t count) {
    return xt::view(ids, xt::all(), xt::range(first, first + count));
}

}  // namespace

// The largest difference may be 2e-5 of the largest logit.
TEST_CASE("load_family_model: every family equals PyTorch, gpt-oss also in MXFP4") {
    for (const std::string& name : family_fixtures()) {
        CAPTURE(name);
        CHECK_CLOSE(load(name)(input_ids_of(name)), fixture<3>(name + "_logits"), 2e-5);
    }
}

TEST_CASE("gpt2: tensors without the prefix of the model with a head are read, too") {
    const Scratch scratch;
    const fs::path folder = scratch.copy_of("models/gpt2");
    // Take the prefix out of the header, and fill it up with spaces.
    std::string bytes = content(folder / "model.safetensors");
    std::uint64_t size;
    std::memcpy(&size, bytes.data(), sizeof size);
    std::string header = bytes.substr(8, size);
    const std::string prefix = "transformer.";
    for (std::size_t at; (at = header.find(prefix)) != std::string::npos;)
        header.erase(at, prefix.size());
    header.resize(size, ' ');
    overwrite(folder / "model.safetensors", bytes.replace(8, size, header));
    const IdMatrix ids = fixture_ids("models/ids");
    CHECK_CLOSE(load_family_model(folder.string())(ids), load("models/gpt2")(ids), 0);
}

TEST_CASE("gpt2: a context that is full names the shapes") {
    const FamilyModel model = load("models/gpt2");
    auto cache = make_cache(model, 64);
    const IdMatrix ids = xt::zeros<Id>({1, 40});
    model.forward(ids, {.cache = &cache});
    CHECK_THROWS_WITH_AS(model.forward(ids, {.cache = &cache}),
                         "model: position embeddings of (64, 24) do not fit (1, 40, 24) "
                         "embeddings after 40 tokens",
                         ValueError);
}

TEST_CASE("llama4_text without a QK norm, as Maverick, equals PyTorch, also once exported") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("18_experts/llama4_text");
    edit(folder + "/config.json", "\"vocab_size\"", "\"use_qk_norm\": false, \"vocab_size\"");
    const FamilyModel model = load_family_model(folder);
    const IdMatrix ids = fixture_ids("18_experts/ids");
    CHECK_CLOSE(model(ids), fixture<3>("18_experts/llama4_text_without_qk_norm_logits"), 2e-5);
    const std::string exported = (scratch.folder / "exported").string();
    models::export_model(model, exported);
    CHECK_CLOSE(load_family_model(exported)(ids), model(ids), 0);
}

TEST_CASE("a published model with caches equals one pass, for random cuts of the prompt") {
    std::mt19937 random(7);
    for (const std::string& name : family_fixtures()) {
        CAPTURE(name);
        const FamilyModel model = load(name);
        const IdMatrix ids = input_ids_of(name);
        const std::size_t length = ids.shape(1);
        const Tensor3 expected = model(ids);
        for (int repetition = 0; repetition < 20; ++repetition) {
            // At least as many positions as the original context of LongRoPE.
            auto cache = make_cache(model, std::max<std::size_t>(48, length));
            for (std::size_t first = 0; first < length;) {
                const std::size_t count =
                    std::min<std::size_t>(1 + random() % 11, length - first);
                const Tensor3 part =
                    xt::view(expected, xt::all(), xt::range(first, first + count), xt::all());
                REQUIRE_CLOSE(
                    model.forward(columns(ids, first, count), {.cache = &cache}).logits, part,
                    2e-5);
                first += count;
            }
            if (const auto window = sliding_window(model.config))
                for (std::size_t n = 0; n < cache.layers.size(); ++n)
                    if (window_of(model.config.layers[n]))
                        CHECK(std::get<RollingCache>(cache.layers[n]).keys.shape(2) == *window);
        }
        auto cache = make_cache(model, std::max<std::size_t>(48, length));
        const Tensor3 last = xt::view(expected, xt::all(), xt::range(length - 1, length));
        CHECK_CLOSE(
            model.forward(ids, {.cache = &cache, .logits_to_keep = LogitsToKeep::last}).logits,
            last, 2e-5);
    }
}

TEST_CASE("generate: greedy text of every family equals PyTorch's, with caches and without") {
    for (const std::string& name : family_fixtures()) {
        CAPTURE(name);
        const FamilyModel model = load(name);
        const IdMatrix expected = fixture_ids(name + "_greedy");
        const std::vector<Id> all(expected.begin(), expected.end());
        const std::vector<Id> prompt(all.begin(), all.begin() + 9);
        GenerationConfig config;
        config.sampling.temperature = 0;
        config.max_new_tokens = all.size() - prompt.size();
        for (const bool use_cache : {true, false}) {
            config.use_cache = use_cache;
            Generator generator(1);
            std::vector<Id> ids = prompt;
            for (const Id id : generate(model, prompt, config, generator).ids)
                ids.push_back(id);
            CHECK(ids == all);
        }
        config.eos_token_ids = {all[12]};
        Generator generator(1);
        const auto stop = std::find(all.begin() + 9, all.end(), all[12]);
        CHECK(generate(model, prompt, config, generator).ids.size() ==
              std::size_t(stop - all.begin() - 9));
    }
}

TEST_CASE("generate shifts the full context of a model with rolling caches") {
    const FamilyModel model = load("17_long_context/gemma2");
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = 40;
    config.context_shift = true;
    const std::vector<Id> prompt(50, 3);  // of 64 positions
    Generator generator(1);
    std::vector<Id> ids = generate(model, prompt, config, generator).ids;
    REQUIRE(ids.size() == 40);

    // After 14 tokens the context is full; the next one follows the shifted context.
    std::vector<Id> context = prompt;
    context.insert(context.end(), ids.begin(), ids.begin() + 14);
    const Tensor3 logits = model(one_sequence(shift_context(context)));
    const Vector last = xt::view(logits, 0, logits.shape(1) - 1);
    CHECK(ids[14] == std::max_element(last.begin(), last.end()) - last.begin());
}

TEST_CASE("export_model of a published model: the copy has the same logits, in every bit") {
    for (const std::string& name : family_fixtures()) {
        CAPTURE(name);
        const FamilyModel model = load(name);
        const IdMatrix ids = input_ids_of(name);
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            const Scratch scratch;
            const std::string folder = scratch.folder.string();
            models::export_model(model, folder, dtype);
            CHECK_CLOSE(load_family_model(folder)(ids), model(ids), 0);
            CHECK(mentions(content(folder + "/config.json"),
                           dtype == DType::float32 ? "\"float32\"" : "\"bfloat16\""));
        }
    }
}

TEST_CASE("a published model names what it cannot do") {
    const FamilyModel model = load("17_long_context/gemma2");
    Generator generator(1);
    CHECK_THROWS_WITH_AS(generate(model, {}, {}, generator),
                         "generate: the prompt must have at least one token", ValueError);
    auto cache = make_cache(model, 64);
    const IdMatrix ids = xt::zeros<Id>({1, 40});
    model.forward(ids, {.cache = &cache});
    CHECK_THROWS_WITH_AS(
        model.forward(ids, {.cache = &cache}),
        "pattern_attention_inputs: a rotary table of (64, 3) is too short for 80 positions",
        ValueError);
}

TEST_CASE("forward_backward of published models: each parameter gets a gradient") {
    for (const std::string& name : family_fixtures()) {
        CAPTURE(name);
        const FamilyModel model = load(name);
        const IdMatrix ids = input_ids_of(name);
        const std::size_t length = ids.shape(1) - 1;
        FamilyModel gradient = zeros_like(model);
        const double loss =
            forward_backward(model, columns(ids, 0, length), columns(ids, 1, length), gradient);
        CHECK(loss == doctest::Approx(evaluate_loss(model, columns(ids, 0, length),
                                                    columns(ids, 1, length))));
        for (const Parameter& parameter : named_parameters(gradient)) {
            // Experts without tokens have none.
            if (parameter.name.find(".experts.") != std::string::npos) continue;
            CAPTURE(parameter.name);
            CHECK(std::any_of(parameter.values.begin(), parameter.values.end(),
                              [](Real value) { return value != 0; }));
        }
    }
}

TEST_CASE("routed_tokens: K experts of every token in every layer with a mixture") {
    const IdMatrix ids = fixture_ids("18_experts/ids");
    const FamilyModel model = load("18_experts/qwen3_moe");
    const std::vector<RoutedTokens> routed = routed_tokens(model, ids);
    REQUIRE(routed.size() == 1);  // of four layers, one has a mixture of experts
    CHECK(routed[0].experts.shape() == std::array<std::size_t, 2>{2 * 17, 3});
    CHECK(routed_tokens(load("18_experts/mixtral"), ids).size() == 3);
}

TEST_CASE("make_mixtral: a trained decoder and its export have the same logits") {
    Config config = small_config();
    config.tie_word_embeddings = true;
    Generator generator(7);
    MoeDecoder decoder = make_moe_decoder(config, {4, 2, 6, 0}, SoftmaxRouting{}, generator);
    const FamilyModel model = make_mixtral(decoder);
    CHECK_CLOSE(model(small_ids), decoder(small_ids), 1e-6);
    const Scratch scratch;
    models::export_model(model, scratch.folder.string());
    CHECK_CLOSE(load_family_model(scratch.folder.string())(small_ids), model(small_ids), 0);
    const std::string expected =
        "make_mixtral: every layer must have a mixture with softmax routing and no shared "
        "experts";
    for (const auto& [sizes, routing] :
         {std::pair<ExpertSizes, Routing>{{4, 2, 6, 1}, SoftmaxRouting{}},
          {{4, 2, 6, 0}, TopKSoftmaxRouting{}},
          {{0, 0, 0, 0}, SoftmaxRouting{}}})
        CHECK_THROWS_WITH_AS(make_mixtral(make_moe_decoder(config, sizes, routing, generator)),
                             expected.c_str(), ValueError);
}

TEST_CASE("a tensor of a mixture model that is missing, or has another shape, is named") {
    const Scratch scratch;
    const std::string folder = scratch.folder.string();
    FamilyModel model = load("18_experts/mixtral");
    change_each<MoeConfig>(model.config, [](MoeConfig& each) {
        each.sizes.num_experts = 6;
    });  // the file will have five
    models::export_model(model, folder);
    CHECK_THROWS_WITH_AS(load_family_model(folder),
                         (folder + "/model.safetensors: tensor "
                                   "model.layers.0.block_sparse_moe.gate.weight should have "
                                   "the shape (6, 32), it has (5, 32)")
                             .c_str(),
                         FileError);
}
