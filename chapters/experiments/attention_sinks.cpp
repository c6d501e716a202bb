#include "chapters/experiments/attention_sinks.hpp"

#include "chapters/13_training/training_loop.hpp"

namespace llm {

Batch with_first_token(Batch batch, Id first_token_id) {
    require(batch.input_ids.shape(1) > 0, "with_first_token: sequences of {} have no tokens",
            batch.input_ids.shape());
    for (std::size_t b = 0; b < batch.input_ids.shape(0); ++b)
        batch.input_ids(b, 0) = first_token_id;
    return batch;
}

std::vector<Real> train_decoder(PatternDecoder& decoder, const TrainingArguments& args,
                                const std::vector<Id>& tokens, std::optional<Id> first_token_id,
                                Generator& generator) {
    return run_training_loop<PatternDecoder>(decoder, args, [&](PatternDecoder& gradient) {
        Batch batch = random_batch(tokens, args.batch_size, args.seq_len, generator);
        if (first_token_id) batch = with_first_token(std::move(batch), *first_token_id);
        return forward_backward(decoder, batch.input_ids, batch.targets, gradient);
    });
}

SinkWeights mean_sink_weights(const std::vector<Tensor4>& attentions, std::size_t first_query) {
    require(!attentions.empty() && attentions[0].shape(2) > first_query,
            "mean_sink_weights: there is no query from {} on", first_query);
    const auto [batch_size, num_heads, seq_len, kv_len] = dims(attentions[0]);
    SinkWeights mean{xt::zeros<Real>({attentions.size(), num_heads}),
                     xt::zeros<Real>({attentions.size(), num_heads})};
    const Real num_rows = static_cast<Real>(batch_size * (seq_len - first_query));
    for (std::size_t n = 0; n < attentions.size(); ++n)
        for (std::size_t b = 0; b < batch_size; ++b)
            for (std::size_t h = 0; h < num_heads; ++h)
                for (std::size_t t = first_query; t < seq_len; ++t) {
                    const Vector weights = xt::view(attentions[n], b, h, t, xt::all());  // (T)
                    Real total = 0;
                    for (const Real weight : weights) total += weight;
                    mean.first_key(n, h) += weights(0) / num_rows;
                    mean.sink(n, h) += (1 - total) / num_rows;
                }
    return mean;
}

double mean_loss_from(const Vector& losses, std::size_t first) {
    require(first < losses.size(), "mean_loss_from: there is no position {} of {}", first,
            losses.size());
    double sum = 0;
    for (std::size_t t = first; t < losses.size(); ++t) sum += double(losses(t));
    return sum / double(losses.size() - first);
}

}  // namespace llm
