// Training, saving and loading an embedding model.
#include "chapters/apps/ask/training.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "common/tensors/matmul.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using namespace llm::ask;

namespace {

// Two kinds of pairs, whose queries have no word of their passage.
const std::vector<TextPairs> kinds = {{{"car", "a motor vehicle with wheels"},
                                       {"river", "water that flows to the sea"},
                                       {"bread", "food made of flour and baked"},
                                       {"lamp", "an object that gives light"}},
                                      {{"the auto stops here", "driving on a road with wheels"},
                                       {"the stream is deep", "swimming in water"}}};

EmbeddingTraining short_training() {
    EmbeddingTraining training;
    training.steps = 60;
    training.batch_size = 2;
    training.learning_rate = Real(0.005);
    training.dropout = training.overlap_dropout = 0;
    return training;
}

// The cosine of each text of a kind with each, (N, N).
Matrix cosines(const EmbeddingModel& model, const TextPairs& pairs) {
    std::vector<std::string> queries, texts;
    for (const TextPair& pair : pairs) {
        queries.push_back(pair.query);
        texts.push_back(pair.passage);
    }
    return matmul_transposed(model.embed(queries), model.embed(texts));
}

}  // namespace

TEST_CASE("Training brings the texts of a pair together") {
    for (const std::size_t num_layers : {0, 1}) {
        CAPTURE(num_layers);
        EmbeddingModel model = make_embedding_model(kinds, num_layers, 3);
        const std::vector<Real> losses = train_embedding_model(model, kinds, short_training());
        REQUIRE(losses.size() == 60);
        CHECK(losses.back() < losses.front());
        const Matrix similar = cosines(model, kinds[0]);
        for (std::size_t n = 0; n < 4; ++n)
            for (std::size_t m = 0; m < 4; ++m)
                if (n != m) CHECK(similar(n, n) > similar(n, m));
    }
}

TEST_CASE("The same seed trains the same model, another seed another one") {
    std::vector<Matrix> results;
    for (const std::uint32_t seed : {5, 5, 6}) {
        EmbeddingModel model = make_embedding_model(kinds, 0, 3);
        EmbeddingTraining training;
        training.steps = 3;
        training.batch_size = 3;
        training.seed = seed;
        train_embedding_model(model, kinds, training);
        results.push_back(model.embed({"car"}));
    }
    CHECK(results[0] == results[1]);
    CHECK(results[0] != results[2]);
}

TEST_CASE("A kind without pairs is rejected") {
    EmbeddingModel model = make_embedding_model(kinds, 0, 3);
    CHECK_THROWS_WITH(train_embedding_model(model, {kinds[0], {}}, short_training()),
                      "train: a kind of pairs has none");
}

TEST_CASE("A saved model is loaded as it was, with its pooling, in bfloat16") {
    const Scratch scratch;
    const std::string folder = (scratch.folder / "model").string();
    for (const std::size_t num_layers : {0, 1}) {
        CAPTURE(num_layers);
        const EmbeddingModel model = make_embedding_model(kinds, num_layers, 3);
        save_embedding_model(model, folder);
        const EmbeddingModel loaded = load_embedding_model(folder);
        CHECK(models::config_of(loaded.encoder).num_hidden_layers == num_layers);
        CHECK(loaded.encode("the car") == model.encode("the car"));
        CHECK_CLOSE(loaded.embed({"the car"}), model.embed({"the car"}), 1e-2);
        CHECK(models::pooling_of(folder) == Pooling::mean);
        fs::remove_all(folder);
    }
}

TEST_CASE("llama.cpp has no encoder without layers") {
    const Scratch scratch;
    const EmbeddingModel model = make_embedding_model(kinds, 0, 3);
    CHECK_THROWS_WITH(
        models::export_gguf(model.encoder, (scratch.folder / "model.gguf").string()),
        "export: llama.cpp's modern-bert has at least one layer");
}

TEST_CASE("The vocabulary of a model is that of its tokenizer") {
    const EmbeddingModel model = make_embedding_model(kinds, 0, 3);
    CHECK(models::config_of(model.encoder).vocab_size == model.tokenizer.vocab_size());
}

TEST_CASE("A long text is cut to the positions of the model") {
    const EmbeddingModel model = make_embedding_model(kinds, 0, 3);
    std::string text = "car";
    for (int n = 0; n < 2000; ++n) text += " car";
    CHECK(model.encode(text).size() == 1024);
    CHECK(model.embed({text}).shape(0) == 1);
}
