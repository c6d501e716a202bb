#include "chapters/05_gqa/dropout.hpp"

namespace llm {

Tensor4 dropout(const Tensor4& weights, Real probability, Generator& generator) {
    require(probability >= 0 && probability < 1,
            "dropout: the probability must be at least 0 and less than 1");
    Tensor4 result = weights;  // (B, H, T, S)
    for (Real& element : result) {
        const bool dropped = generator.next_uniform() < probability;
        element = dropped ? 0 : element / (1 - probability);
    }
    return result;
}

Tensor3 dropout(const Tensor3& states, Real probability, Generator& generator) {
    const auto [batch_size, seq_len, width] = dims(states);
    const Tensor4 one_head = reshape(states, {batch_size, 1, seq_len, width});
    return reshape(dropout(one_head, probability, generator), {batch_size, seq_len, width});
}

}  // namespace llm
