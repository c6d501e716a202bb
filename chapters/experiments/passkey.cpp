#include "chapters/experiments/passkey.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chapters/13_training/training_loop.hpp"
#include "common/numbers/choices.hpp"

namespace llm {
namespace {

Id random_id(std::size_t begin, std::size_t count, Generator& generator) {
    return static_cast<Id>(begin + generator.next_32_bits() % count);
}

using TextPart = std::vector<Id>;  // a word, or a key and its value

std::vector<TextPart> random_pairs(std::size_t count, const PasskeyVocabulary& vocabulary,
                                   Generator& generator) {
    std::vector<Id> keys(vocabulary.num_keys);
    std::iota(keys.begin(), keys.end(), static_cast<Id>(vocabulary.num_values));
    shuffle(keys, generator);
    std::vector<TextPart> pairs;
    for (std::size_t n = 0; n < count; ++n)
        pairs.push_back({keys[n], random_id(0, vocabulary.num_values, generator)});
    return pairs;
}

std::vector<TextPart> random_words(std::size_t count, const PasskeyVocabulary& vocabulary,
                                   Generator& generator) {
    std::vector<TextPart> words;
    for (std::size_t n = 0; n < count; ++n)
        words.push_back({random_id(vocabulary.num_values + vocabulary.num_keys,
                                   vocabulary.num_words, generator)});
    return words;
}

// A text, and what is asked after it. The targets are the next tokens; the mask is 1 at the
// keys that are asked for.
void write_row(ResponseBatch& batch, std::size_t b, const std::vector<TextPart>& text,
               const std::vector<TextPart>& questions) {
    std::vector<Id> tokens;
    for (const TextPart& part : text) tokens.insert(tokens.end(), part.begin(), part.end());
    const std::size_t text_len = tokens.size();
    for (const TextPart& part : questions)
        tokens.insert(tokens.end(), part.begin(), part.end());
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
        batch.input_ids(b, t) = tokens[t];
        batch.targets(b, t) = tokens[t + 1];
        batch.response_mask(b, t) = t >= text_len && (t - text_len) % 2 == 0 ? 1 : 0;
    }
}

ResponseBatch empty_batch(const char* function, std::size_t batch_size, std::size_t seq_len,
                          std::size_t num_pairs, const PasskeyVocabulary& vocabulary) {
    require(num_pairs >= 1 && num_pairs <= vocabulary.num_keys && seq_len + 1 >= 4 * num_pairs,
            "{}: {} pairs in {} tokens", function, num_pairs, seq_len);
    return {xt::zeros<Id>({batch_size, seq_len}), xt::zeros<Id>({batch_size, seq_len}),
            xt::zeros<Real>({batch_size, seq_len})};
}

}  // namespace

ResponseBatch passkey_batch(std::size_t batch_size, std::size_t seq_len, std::size_t num_pairs,
                            Generator& generator, const PasskeyVocabulary& vocabulary) {
    ResponseBatch batch =
        empty_batch("passkey_batch", batch_size, seq_len, num_pairs, vocabulary);
    for (std::size_t b = 0; b < batch_size; ++b) {
        std::vector<TextPart> pairs = random_pairs(num_pairs, vocabulary, generator);
        // The last value is a target only, so a row has T + 1 tokens.
        std::vector<TextPart> text =
            random_words(seq_len + 1 - 4 * num_pairs, vocabulary, generator);
        text.insert(text.end(), pairs.begin(), pairs.end());
        shuffle(text, generator);
        shuffle(pairs, generator);
        write_row(batch, b, text, pairs);
    }
    return batch;
}

ResponseBatch passkey_test(std::size_t batch_size, std::size_t seq_len, double depth,
                           Generator& generator) {
    ResponseBatch batch = empty_batch("passkey_test", batch_size, seq_len, 1, {});
    for (std::size_t b = 0; b < batch_size; ++b) {
        const std::vector<TextPart> pair = random_pairs(1, {}, generator);
        std::vector<TextPart> text = random_words(seq_len + 1 - 4, {}, generator);
        text.insert(text.begin() + std::lround(depth * double(text.size())), pair.front());
        write_row(batch, b, text, pair);
    }
    return batch;
}

std::vector<Real> train_on_passkeys(Model& model, const TrainingArguments& args) {
    Generator generator(args.seed);
    return run_training_loop<Model>(model, args, [&](Model& gradient) {
        const ResponseBatch batch = passkey_batch(args.batch_size, args.seq_len, 4, generator);
        return forward_backward_of_values(model, batch, gradient);
    });
}

double passkey_accuracy(const PatternDecoder& given, const RotaryTable& rotary_table,
                        const ResponseBatch& batch) {
    const auto [batch_size, seq_len] = dims(batch.input_ids);
    PatternDecoder decoder = given;
    decoder.config.max_position_embeddings = rotary_table.cos.shape(0);
    const DecoderOutput output = run_layers<PatternBlock, PatternAttentionInputs, RollingCache>(
        decoder.layers, decoder.embed(batch.input_ids),
        pattern_attention_inputs({rotary_table}, seq_len));
    const Tensor3 logits = decoder.logits(last_position(output.last_hidden_state));  // (B,1,V)
    std::size_t num_correct = 0;
    for (std::size_t b = 0; b < batch_size; ++b) {
        const Real* row = &logits(b, 0, 0);
        const auto best = std::max_element(row, row + passkey_vocab_size) - row;
        num_correct += best == batch.targets(b, seq_len - 1);
    }
    return double(num_correct) / double(batch_size);
}

}  // namespace llm
