#include "chapters/11_generation/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 10.1 — find the bug. It is right for a whole text. Token by token, the model writes
// as if it had forgotten all but one of the words before.
Matrix mask_behind(std::size_t query_len, std::size_t kv_len) {
    Matrix mask = xt::zeros<Real>({query_len, kv_len});
    for (std::size_t t = 0; t < query_len; ++t)
        for (std::size_t s = t + 1; s < kv_len; ++s) mask(t, s) = -infinity;
    return mask;
}

// Exercise 10.2 — find the bug. The prompt is read rightly. Token by token, the text goes off
// the track.
Attention attend_behind(const AttentionLayer& layer, const Tensor3& hidden_states,
                        const RotaryTable& table, LayerCache& cache) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const std::size_t behind = cache.keys.shape(2);
    const std::size_t last = behind == 0 ? 0 : behind - 1;
    IdMatrix positions = position_ids(batch_size, seq_len);
    for (Id& position : positions) position += static_cast<Id>(last);
    const Tensor4 mask = expand_mask(causal_mask(seq_len, behind + seq_len), batch_size);
    return attend(layer, hidden_states, {table, positions, mask}, cache);
}

// Exercise 10.3 — find the bug. Turn the temperature up to 2, and the list of words that may
// come stays as short as it was.
Vector hot_nucleus(const Vector& logits, Real temperature, Real top_p) {
    const Vector kept = keep_top_p(logits, top_p);
    return with_temperature(kept, temperature);
}

// Exercise 10.4 — find the bug. The list is always one word short. Where the model is certain,
// nothing at all can be drawn.
Vector nucleus(const Vector& logits, Real top_p) {
    const std::size_t vocab_size = logits.size();
    const Vector probabilities =
        reshape(softmax(reshape(logits, {1, vocab_size})), {vocab_size});
    Vector kept = logits;
    for (std::size_t token = 0; token < vocab_size; ++token) {
        Real reached = 0;  // by this token and all that are likelier
        for (std::size_t other = 0; other < vocab_size; ++other)
            if (probabilities(other) >= probabilities(token)) reached += probabilities(other);
        if (reached > top_p) kept(token) = -infinity;
    }
    return kept;
}

// Exercise 10.5 — find the bug. Each text is right when it is alone. Of several only the first
// one is.
std::vector<std::vector<Id>> continue_all(const Model& model,
                                          const std::vector<std::vector<Id>>& prompts,
                                          std::size_t count) {
    KvCache cache = make_cache(model, model.config.max_position_embeddings);
    std::vector<std::vector<Id>> texts;
    for (const std::vector<Id>& prompt : prompts) {
        IdMatrix new_ids(std::array{std::size_t{1}, prompt.size()});
        std::copy(prompt.begin(), prompt.end(), new_ids.begin());
        std::vector<Id> text;
        while (text.size() < count) {
            const Matrix logits = next_logits(model, new_ids, cache);
            text.push_back(likeliest(reshape(logits, {logits.size()})));
            new_ids = IdMatrix{{text.back()}};
        }
        texts.push_back(text);
    }
    return texts;
}

// Exercise 10.6 — write min_p_of_logits. It keeps what keep_min_p keeps, and computes one
// logarithm instead of V exponentials. What does "p times as likely" mean for logits?
Vector min_p_of_logits([[maybe_unused]] const Vector& logits, [[maybe_unused]] Real p) {
    TODO("min_p_of_logits");
}

// Exercise 10.7 — write put and window_of: a cache that never grows. A model with a sliding
// window sees the last W tokens, so a new token may take the place of the oldest one.
void put([[maybe_unused]] RingCache& ring, [[maybe_unused]] const Tensor4& key,
         [[maybe_unused]] const Tensor4& value) {
    TODO("put");
}
LayerCache window_of([[maybe_unused]] const RingCache& ring) { TODO("window_of"); }

}  // namespace exercise
