// How training changes the pairs of a batch: parts of long texts, and tokens left out.
#include <algorithm>
#include <cmath>
#include <set>

#include "chapters/apps/ask/training.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "tests/support/check.hpp"

using namespace llm;
using namespace llm::ask;

namespace {

// Words of one letter are one token each.
const std::string letters = "a b c d e f g h i j k l m n o p q r s t u v w x y z";

EmbeddingModel model_of_letters() { return make_embedding_model({{{letters, letters}}}, 0, 3); }

// Batches of two pairs of texts, whose tokens are all kept.
EmbeddingTraining training_of_all_tokens(std::size_t steps) {
    EmbeddingTraining training;
    training.steps = steps;
    training.batch_size = 2;
    training.dropout = training.overlap_dropout = 0;
    return training;
}

// The losses of a model that does not learn, rounded. A batch with one pair twice has log 2,
// one with both pairs another loss.
std::set<long> losses_of(const TextPairs& pairs, EmbeddingTraining training) {
    EmbeddingModel model = model_of_letters();
    training.learning_rate = 0;
    training.temperature = Real(0.5);
    std::set<long> losses;
    for (const Real loss : train_embedding_model(model, {pairs}, training))
        losses.insert(std::lround(loss * 1e4F));
    return losses;
}

// The letters from a to j whose vectors the training has changed.
std::string trained_letters(const TextPairs& pairs, const EmbeddingTraining& training) {
    const auto vectors_of = [](const EmbeddingModel& model) {
        return std::get<models::EncoderFamilyModel<ModernBertBlock>>(model.encoder)
            .encoder.embeddings.word_embeddings;  // (V, C)
    };
    EmbeddingModel model = model_of_letters();
    const Matrix before = vectors_of(model);
    train_embedding_model(model, {pairs}, training);
    const Matrix after = vectors_of(model);
    std::string changed;
    for (char letter = 'a'; letter <= 'j'; ++letter) {
        const auto row = std::size_t(model.encode(std::string(1, letter)).at(1));
        for (std::size_t c = 0; c < after.shape(1); ++c)
            if (after(row, c) != before(row, c)) {
                changed += letter;
                break;
            }
    }
    return changed;
}

const std::string a_to_j = "a b c d e f g h i j";

}  // namespace

TEST_CASE("Overlap dropout leaves out the words of a query that its passage has") {
    EmbeddingTraining training = training_of_all_tokens(16);
    const std::set<long> without = losses_of({{"o", "s p"}, {"x", "y z"}}, training);
    REQUIRE(without.size() == 2);  // log 2, and that of both pairs
    CHECK(without.contains(std::lround(std::log(2.0) * 1e4)));
    CHECK(losses_of({{"s o", "s p"}, {"x", "y z"}}, training) != without);
    training.overlap_dropout = 1;
    CHECK(losses_of({{"s o", "s p"}, {"x", "y z"}}, training) == without);
    CHECK(losses_of({{"o", "s p"}, {"x", "y z"}}, training) == without);
}

TEST_CASE("A text of which nothing would be left stays, with the tokens around it") {
    EmbeddingTraining training = training_of_all_tokens(16);
    const TextPairs pairs = {{"o p q", "s t"}, {"x", "y z"}};
    const std::set<long> all = losses_of(pairs, training);
    CHECK(all.size() == 2);
    training.dropout = 1;
    CHECK(losses_of(pairs, training) == all);
    training.dropout = Real(0.5);
    CHECK(losses_of(pairs, training).size() > 4);
    // That of a query with nothing but words of its passage.
    training.dropout = 0;
    const TextPairs shared = {{"s t", "s t"}, {"x", "y z"}};
    const std::set<long> of_shared = losses_of(shared, training);
    training.overlap_dropout = 1;
    CHECK(losses_of(shared, training) == of_shared);
}

TEST_CASE("Of a text that is longer than max_tokens, each step trains a random part") {
    EmbeddingTraining training = training_of_all_tokens(1);
    training.max_tokens = 4;  // [CLS], two letters, [SEP]
    for (const TextPairs& pairs :
         {TextPairs{{"x", a_to_j}, {"y", "z"}}, TextPairs{{a_to_j, "x"}, {"z", "y"}}}) {
        std::set<std::string> parts;
        for (training.seed = 1; training.seed <= 200; ++training.seed)
            parts.insert(trained_letters(pairs, training));
        // Of one or two texts of the batch. (If it has one pair twice, the gradient is 0 up to
        // rounding errors, which depend on the processor.)
        for (const std::string& part : parts) {
            CHECK(part.size() <= 4);
            CHECK(part.size() != 1);
            if (part.size() == 2) CHECK(part[1] == part[0] + 1);
        }
        CHECK(std::ranges::count(parts, 2U, &std::string::size) == 9);  // "ab" to "ij"
        training.seed = 1;
        training.steps = 300;
        CHECK(trained_letters(pairs, training) == "abcdefghij");
        training.steps = 1;
    }
}

TEST_CASE("A text of exactly max_tokens is trained as it is") {
    EmbeddingTraining training = training_of_all_tokens(20);
    const TextPairs pairs = {{"x", a_to_j}, {"y", "z"}};
    const std::set<long> all = losses_of(pairs, training);
    training.max_tokens = 12;
    CHECK(losses_of(pairs, training) == all);
    training.max_tokens = 11;
    CHECK(losses_of(pairs, training) != all);
}
