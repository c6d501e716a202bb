#include "chapters/13_training/data.hpp"

namespace llm {

Dataset train_validation_split(const std::vector<Id>& tokens, std::size_t seq_len) {
    Dataset dataset;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::size_t chunk = i * 100 / tokens.size();
        (chunk % 10 == 9 ? dataset.validation : dataset.train).push_back(tokens[i]);
    }
    require(dataset.validation.size() > seq_len,
            "training: {} tokens are too few: a tenth of them must be more than {}",
            tokens.size(), seq_len);
    return dataset;
}

Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,
               std::size_t seq_len) {
    const std::size_t batch_size = starts.size();
    Batch batch{xt::zeros<Id>({batch_size, seq_len}), xt::zeros<Id>({batch_size, seq_len})};
    for (std::size_t b = 0; b < batch_size; ++b) {
        require(starts[b] + seq_len < tokens.size(),
                "training: a sequence of {} tokens at {} does not fit into {} tokens", seq_len,
                starts[b], tokens.size());
        for (std::size_t t = 0; t < seq_len; ++t) {
            batch.input_ids(b, t) = tokens[starts[b] + t];
            batch.targets(b, t) = tokens[starts[b] + t + 1];
        }
    }
    return batch;
}

Batch random_batch(const std::vector<Id>& tokens, std::size_t batch_size, std::size_t seq_len,
                   Generator& generator) {
    require(tokens.size() > seq_len, "training: {} tokens are too few for sequences of {}",
            tokens.size(), seq_len);
    std::vector<std::size_t> starts(batch_size);
    for (std::size_t& start : starts)
        start = generator.next_32_bits() % (tokens.size() - seq_len);
    return batch_at(tokens, starts, seq_len);
}

std::vector<Batch> evaluation_batches(const std::vector<Id>& tokens, std::size_t batch_size,
                                      std::size_t seq_len, std::size_t max_batches) {
    require(tokens.size() > seq_len, "training: {} tokens are too few to evaluate with {}",
            tokens.size(), seq_len);
    // Count the sequences and the full batches of the text.
    const std::size_t num_sequences = (tokens.size() - 1) / seq_len;
    const std::size_t B = std::min(batch_size, num_sequences);
    const std::size_t num_batches = num_sequences / B;

    std::vector<Batch> batches(std::min(max_batches, num_batches));
    for (std::size_t i = 0; i < batches.size(); ++i) {
        const std::size_t index = i * num_batches / batches.size();  // evenly spaced
        std::vector<std::size_t> starts(B);
        for (std::size_t b = 0; b < B; ++b) starts[b] = (index * B + b) * seq_len;
        batches[i] = batch_at(tokens, starts, seq_len);
    }
    return batches;
}

}  // namespace llm
