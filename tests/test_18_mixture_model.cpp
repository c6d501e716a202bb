// Published model types of chapter 18 against a plain PyTorch reference
// (tests/make_fixtures.py).
#include <random>

#include "chapters/18_experts/mixture_checkpoint.hpp"
#include "chapters/18_experts/mixture_training.hpp"
#include "tests/check.hpp"
#include "tests/files.hpp"
#include "tests/small_model.hpp"

using namespace llm;

namespace {

const std::vector<std::string> types = {"mixtral", "qwen3_moe", "gpt_oss", "gpt_oss_mxfp4",
                                        "llama4_text"};

MixtureModel load(const std::string& type) {
    return load_mixture_model(fixture_path("18_experts/" + type));
}

IdMatrix fixture_ids(const std::string& name) {
    return load_ids<2>(fixture_file("18_experts/" + name));
}

IdMatrix columns(const IdMatrix& ids, std::size_t first, std::size_t count) {
    return xt::view(ids, xt::all(), xt::range(first, first + count));
}

}  // namespace

TEST_CASE("load_mixture_model: every type equals PyTorch, gpt-oss also in MXFP4") {
    const IdMatrix ids = fixture_ids("ids");
    for (const std::string& type : types) {
        CAPTURE(type);
        CHECK_CLOSE(load(type)(ids), fixture<3>("18_experts/" + type + "_logits"), 2e-5);
    }
}

TEST_CASE("llama4_text without a QK norm, as Maverick, equals PyTorch, also once exported") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("18_experts/llama4_text");
    edit(folder + "/config.json", "\"vocab_size\"", "\"use_qk_norm\": false, \"vocab_size\"");
    const MixtureModel model = load_mixture_model(folder);
    const IdMatrix ids = fixture_ids("ids");
    CHECK_CLOSE(model(ids), fixture<3>("18_experts/llama4_text_without_qk_norm_logits"), 2e-5);
    const std::string exported = (scratch.folder / "exported").string();
    export_model(model, exported);
    CHECK_CLOSE(load_mixture_model(exported)(ids), model(ids), 0);
}

TEST_CASE("a mixture model with caches equals one pass, for random cuts of the prompt") {
    const IdMatrix ids = fixture_ids("ids");
    const std::size_t length = ids.shape(1);
    std::mt19937 random(7);
    for (const std::string& type : types) {
        CAPTURE(type);
        const MixtureModel model = load(type);
        const Tensor3 expected = model(ids);
        for (int repetition = 0; repetition < 20; ++repetition) {
            LongContextCache cache = make_cache(model, 64);
            for (std::size_t first = 0; first < length;) {
                const std::size_t count =
                    std::min<std::size_t>(1 + random() % 9, length - first);
                const Tensor3 part =
                    xt::view(expected, xt::all(), xt::range(first, first + count), xt::all());
                REQUIRE_CLOSE(model.forward(columns(ids, first, count), &cache).logits, part,
                              2e-5);
                first += count;
            }
        }
    }
}

TEST_CASE("generate: greedy text of every type equals PyTorch's, with caches and without") {
    for (const std::string& type : types) {
        CAPTURE(type);
        const MixtureModel model = load(type);
        const IdMatrix expected = fixture_ids(type + "_greedy");
        const std::vector<Id> all(expected.begin(), expected.end());
        GenerationConfig config;
        config.sampling.temperature = 0;
        config.max_new_tokens = 20;
        for (const bool use_cache : {true, false}) {
            config.use_cache = use_cache;
            Generator generator(1);
            std::vector<Id> ids(all.begin(), all.begin() + 9);
            for (const Id id : generate(model, ids, config, generator)) ids.push_back(id);
            CHECK(ids == all);
        }
    }
}

TEST_CASE("export_model of chapter 18: the copy has the same logits, in every bit") {
    const IdMatrix ids = fixture_ids("ids");
    for (const std::string& type : types) {
        CAPTURE(type);
        const MixtureModel model = load(type);
        for (const DType dtype : {DType::float32, DType::bfloat16}) {
            const Scratch scratch;
            const std::string folder = scratch.folder.string();
            export_model(model, folder, dtype);
            CHECK_CLOSE(load_mixture_model(folder)(ids), model(ids), 0);
        }
    }
}

TEST_CASE("routed_tokens: K experts of every token in every layer with a mixture") {
    const IdMatrix ids = fixture_ids("ids");
    const MixtureModel model = load("qwen3_moe");
    const std::vector<RoutedTokens> routed = routed_tokens(model, ids);
    REQUIRE(routed.size() == 1);  // of four layers, one has a mixture
    CHECK(routed[0].experts.shape() == std::array<std::size_t, 2>{2 * 17, 3});
    CHECK(routed_tokens(load("mixtral"), ids).size() == 3);
}

TEST_CASE("make_mixtral: a trained decoder and its export have the same logits") {
    Config config = small_config();
    config.tie_word_embeddings = true;
    Generator generator(7);
    MixtureDecoder decoder =
        init_mixture_decoder(config, {4, 2, 6, 0}, SoftmaxRouting{}, generator);
    const MixtureModel model = make_mixtral(decoder, config);
    CHECK_CLOSE(model(small_ids), decoder(small_ids), 1e-6);
    const Scratch scratch;
    export_model(model, scratch.folder.string());
    CHECK_CLOSE(load_mixture_model(scratch.folder.string())(small_ids), model(small_ids), 0);
    const std::string expected =
        "make_mixtral: every layer must have a mixture with softmax routing and no shared "
        "experts";
    for (const auto& [sizes, routing] :
         {std::pair<MixtureSizes, Routing>{{4, 2, 6, 1}, SoftmaxRouting{}},
          {{4, 2, 6, 0}, TopKSoftmaxRouting{}},
          {{0, 0, 0, 0}, SoftmaxRouting{}}})
        CHECK_THROWS_WITH_AS(
            make_mixtral(init_mixture_decoder(config, sizes, routing, generator), config),
            expected.c_str(), ShapeError);
}

TEST_CASE("a tensor of a mixture model that is missing, or has another shape, is named") {
    const Scratch scratch;
    const std::string folder = scratch.folder.string();
    MixtureModel model = load("mixtral");
    model.config.sizes.num_experts = 6;  // the file will have five
    export_model(model, folder);
    CHECK_THROWS_WITH_AS(load_mixture_model(folder),
                         (folder + "/model.safetensors: tensor "
                                   "model.layers.0.block_sparse_moe.gate.weight should have "
                                   "the shape (6, 32), it has (5, 32)")
                             .c_str(),
                         FileError);
}
