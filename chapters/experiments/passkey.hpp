// The passkey test: a value stands somewhere in a text, and the model must give it at the end.
// Source: Mohtashami and Jaggi, 2023, "Landmark attention", section 4.2.
#pragma once

#include "chapters/13_training/trainer.hpp"
#include "chapters/14_fine_tuning/log_probs.hpp"
#include "chapters/17_long_context/pattern_attention_backward.hpp"

namespace llm {

// The vocabulary: values, keys, and the words of the text around them.
struct PasskeyVocabulary {
    std::size_t num_values = 32, num_keys = 8, num_words = 32;
    constexpr std::size_t size() const { return num_values + num_keys + num_words; }
};
// That of the test.
constexpr std::size_t num_passkey_values = PasskeyVocabulary{}.num_values,
                      num_passkey_keys = PasskeyVocabulary{}.num_keys,
                      passkey_vocab_size = PasskeyVocabulary{}.size();

// Sequences of T tokens: random words, among them num_pairs keys, each followed by its value;
// then, at the end, each key again, followed by the same value. The keys of a sequence differ.
// The response mask is 1 where the target is a value at the end. Throws ValueError unless there
// are 1 to 8 pairs (as many as keys) and T + 1 >= 4 num_pairs; if these are equal, there are no
// words around the pairs.
ResponseBatch passkey_batch(std::size_t batch_size, std::size_t seq_len,  // B, T
                            std::size_t num_pairs, Generator& generator,
                            const PasskeyVocabulary& vocabulary = {});

// The same with one pair, whose depth is given: 0 is the beginning of the text, 1 its end.
ResponseBatch passkey_test(std::size_t batch_size, std::size_t seq_len, double depth,
                           Generator& generator);

// The loss of the values at the end alone. The gradients are accumulated.
template <class AnyModel>
double forward_backward_of_values(const AnyModel& model, const ResponseBatch& batch,
                                  AnyModel& gradient) {
    const auto [logits, activations] = model_forward(model, batch.input_ids);
    const TokenLoss loss =
        sft_loss(token_log_probs(logits, batch.targets), batch.response_mask);
    model_backward(model, activations,
                   token_log_probs_backward(logits, batch.targets, loss.gradient), gradient);
    return loss.loss;
}

// Trains on batches with four pairs, and on the values at the end alone. Throws Interrupted
// after Ctrl-C. Returns the loss of each step.
std::vector<Real> train_on_passkeys(Model& model, const TrainingArguments& args);

// How often the most likely token after the last input is the value, between 0 and 1. The
// rotary table may have more positions than those of training.
double passkey_accuracy(const PatternDecoder& decoder,
                        const RotaryTable& rotary_table,  // (P, D/2)
                        const ResponseBatch& batch);

}  // namespace llm
