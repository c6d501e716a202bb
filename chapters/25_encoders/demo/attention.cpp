#include "chapters/25_encoders/demo/attention.hpp"

#include "chapters/01_masking/masking.hpp"
#include "chapters/25_encoders/encoder.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// Two features, money and water. Only "bank" has both meanings.
const std::vector<std::string> five_words = {"the", "bank", "of", "the", "river"};
const Matrix word_vectors = {{0, 0}, {1, 1}, {0, 0}, {0, 0}, {0, 2}};  // (5, 2)

// Words as queries, keys and values.
HeadAttentionOutput attend(const Matrix& mask) {
    return attention(word_vectors, word_vectors, word_vectors, mask);
}

Matrix mask_of(const IdMatrix& padding_mask, std::optional<std::size_t> window) {
    return head_of(bidirectional_mask(padding_mask, window), 0, 0);  // (T, T)
}

// How many of the first outputs differ when the text has one more token.
template <class Run>
std::string changed_outputs(const Run& run, std::vector<Id> ids) {
    const Tensor3 before = run(ids);
    ids.push_back(7);
    const Tensor3 after = run(ids);
    std::size_t changed = 0;
    for (std::size_t t = 0; t < before.shape(1); ++t) {
        const Vector first = xt::view(before, 0, t), second = xt::view(after, 0, t);
        changed += first != second;
    }
    return to_text(changed) + " of " + to_text(before.shape(1));
}

}  // namespace

void bank_of_the_river() {
    step("The same sentence through a decoder and an encoder");
    const Matrix both_sides = mask_of(xt::ones<Id>({1, 5}), std::nullopt);  // (5, 5)
    const HeadAttentionOutput decoder = attend(causal_mask(5, 5));
    const HeadAttentionOutput encoder = attend(both_sides);
    show("decoder", decoder.weights, five_words, five_words);
    show("encoder", encoder.weights, five_words, five_words);
    Matrix bank(std::array<std::size_t, 2>{2, 2});
    xt::view(bank, 0) = xt::view(decoder.context, 1);
    xt::view(bank, 1) = xt::view(encoder.context, 1);
    show("bank", bank, {"decoder", "encoder"}, {"money", "water"});
    plot("words",
         {Heatmap{"Decoder", "key", "query", decoder.weights, five_words, five_words, 0, 1},
          Heatmap{"Encoder", "key", "query", encoder.weights, five_words, five_words, 0, 1}});
}

void masks_of_encoders() {
    step("Masks of an encoder: padding, and a window of two tokens on either side");
    const IdMatrix padding_mask = {{1, 1, 1, 1, 1, 1, 0}};  // six tokens and padding
    show("padding_mask", padding_mask);
    show("full", mask_of(padding_mask, std::nullopt));
    show("windowed", mask_of(padding_mask, 2));
}

void one_more_word() {
    step("One more token: how many of the outputs before it change?");
    EncoderConfig config;
    config.vocab_size = 10;
    config.hidden_size = 16;
    config.intermediate_size = 32;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.max_position_embeddings = 8;
    config.rope_theta = Real(10'000);
    Generator generator(1);
    ModernBertModel model = empty_modern_bert(config);
    init_weights(model, generator);

    const auto encoder = [&](const std::vector<Id>& ids) { return model(pad({ids}, 0)); };
    // The same weights with a causal mask: a decoder.
    const auto decoder = [&](const std::vector<Id>& ids) {
        const BatchEncoding batch = pad({ids}, 0);
        EncoderInputs inputs = encoder_inputs(config, batch);
        inputs.full.attention_mask = expand_mask(causal_mask(ids.size(), ids.size()), 1);
        return run_layers<ModernBertBlock, EncoderInputs, EncoderAttention::Cache>(
                   model.layers, model.embeddings(batch), inputs)
            .last_hidden_state;
    };
    const std::vector<Id> ids = {1, 2, 3, 4, 5};
    show_table({"mask", "outputs that change"},
               {{"causal", changed_outputs(decoder, ids)},
                {"bidirectional", changed_outputs(encoder, ids)}});
}

}  // namespace llm
