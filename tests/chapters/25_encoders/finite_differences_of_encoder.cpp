// The backward passes of chapter 25 against differences of the loss, in double.
#include "chapters/25_encoders/masked_lm.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "tests/support/finite_differences.hpp"

using namespace llm;
using namespace llm::finite_differences;

namespace {

EncoderConfig encoder_config() {
    EncoderConfig config;
    config.vocab_size = V;
    config.hidden_size = C;
    config.intermediate_size = F;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.max_position_embeddings = 6;
    config.layer_norm_eps = Real(1e-3);
    return config;
}

// Two texts of 3 and 2 tokens; token 1 of the first is hidden, two of the others keep theirs.
MaskedBatch encoder_batch() {
    MaskedBatch batch{pad({{4, 1, 2}, {3, 5}}, 0), {{ignored_label, 6, 2}, {3, -100, -100}}};
    batch.inputs.token_type_ids = {{0, 1, 1}, {0, 0, 0}};
    return batch;
}

template <class Block>
void check_model(MaskedLM<Block> model, const MaskedBatch& batch) {
    Generator generator(3);
    for (const Parameter& parameter : named_parameters(model))
        for (Real& value : parameter.values) value = generator.next_normal() / 2;
    MaskedLM<Block> gradient = zeros_like(model);
    CHECK(forward_backward(model, batch, gradient) ==
          doctest::Approx(masked_lm_loss(model, batch)));
    const std::vector<Parameter> gradients = named_parameters(gradient);
    const std::vector<Parameter> parameters = named_parameters(model);
    REQUIRE(gradients.size() == parameters.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        // The gradient of a key's bias is 0: it adds the same to all scores of a query.
        if (parameters[p].name.ends_with("k_proj.bias")) continue;
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values,
                       [&] { return masked_lm_loss(model, batch); });
    }
}

}  // namespace

TEST_CASE("The gradients of BERT's masked loss equal finite differences") {
    EncoderConfig config = encoder_config();
    config.type_vocab_size = 2;
    check_model(MaskedLM<BertBlock>{empty_bert(config), empty_head(config)}, encoder_batch());
}

TEST_CASE("The gradients of ModernBERT's masked loss equal finite differences") {
    EncoderConfig config = encoder_config();
    config.has_bias = false;
    config.rope_theta = Real(100);
    config.windowed = WindowedLayers{1, 2, Real(10)};
    MaskedBatch batch = encoder_batch();
    batch.inputs.token_type_ids.fill(0);
    MaskedLM<ModernBertBlock> model{empty_modern_bert(config), empty_head(config)};
    model.head.decoder.weight = xt::zeros<Real>({V, C});  // a decoder of its own
    check_model(model, batch);
}

TEST_CASE("The gradients of pooling and of the contrastive loss equal finite differences") {
    Generator generator(4);
    Tensor3 states = randn({3, 4, C}, generator);
    const IdMatrix padding_mask = {{1, 1, 1, 1}, {1, 1, 0, 0}, {1, 0, 0, 0}};
    Matrix passages = randn({3, C}, generator);
    for (const Pooling pooling : {Pooling::mean, Pooling::cls}) {
        const auto loss = [&] {
            return contrastive_loss(pool(pooling, states, padding_mask), passages, Real(0.5));
        };
        const ContrastiveLoss result = loss();
        const Tensor3 gradient = pool_backward(pooling, padding_mask, result.query_gradient);
        check_gradient("states", {states.data(), states.size()},
                       {gradient.data(), gradient.size()}, [&] { return loss().loss; });
        check_gradient("passages", {passages.data(), passages.size()},
                       {result.passage_gradient.data(), result.passage_gradient.size()},
                       [&] { return loss().loss; });
    }
}
