// Models with layers of softmax and of linear attention, and the texts of the recall
// experiment.
#include "chapters/experiments/hybrid_decoder.hpp"
#include "chapters/11_generation/cached_sequence.hpp"
#include "chapters/experiments/passkey.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

TEST_CASE("A hybrid model with caches gives the logits of one call") {
    Config config = small_config();
    config.num_hidden_layers = 3;
    Generator generator(1);
    const HybridDecoder model =
        make_hybrid_decoder(config, {LinearVariant{}, {}, LinearVariant{}}, generator);
    const std::vector<Id> ids = {1, 5, 2, 7, 3};
    CachedSequence cached = make_cached_sequence(model, 16);
    for (std::size_t t = 0; t + 1 < ids.size(); ++t)
        cached.cache->append(std::span(ids).subspan(t, 1));
    CHECK_CLOSE(cached.cache->append(std::span(ids).last(1)),
                last_logits(model.forward(one_sequence(ids), {})), 1e-5);
    CHECK(cached.cache->crop(3) == 0);
    CHECK_THROWS_WITH_AS(make_hybrid_decoder(config, {{}, {}}, generator),
                         "hybrid decoder: a configuration of 3 layers does not match 2 layers",
                         ValueError);
}

TEST_CASE("passkey_batch with another vocabulary, and with no words around the pairs") {
    Generator generator(2);
    const PasskeyVocabulary vocabulary{8, 16, 0};
    const ResponseBatch batch = passkey_batch(3, 63, 16, generator, vocabulary);
    for (std::size_t b = 0; b < 3; ++b)
        for (std::size_t t = 0; t < 63; ++t) {
            // Keys and values alternate.
            CHECK((batch.input_ids(b, t) >= 8) == (t % 2 == 0));
            CHECK(batch.input_ids(b, t) < 24);
            CHECK(batch.response_mask(b, t) == (t >= 32 && t % 2 == 0 ? 1 : 0));
        }
    CHECK_THROWS_WITH_AS(passkey_batch(1, 62, 16, generator, vocabulary),
                         "passkey_batch: 16 pairs in 62 tokens", ValueError);
    CHECK_THROWS_WITH_AS(passkey_batch(1, 99, 17, generator, vocabulary),
                         "passkey_batch: 17 pairs in 99 tokens", ValueError);
}
