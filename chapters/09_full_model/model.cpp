// The forward pass is a template in model.hpp, the loop over the layers in run_layers.hpp.
#include "chapters/09_full_model/model.hpp"

#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

Config mini_llm_config() {
    Config config;
    config.hidden_size = 384;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 6;
    config.max_position_embeddings = 2048;
    config.rms_norm_eps = Real(1e-6);
    config.qk_norm = QKNormType::none;
    config.vocab_size = 32000;
    config.intermediate_size = 1536;
    config.num_hidden_layers = 16;
    return config;
}

Config validate_model(Config config) {
    config = validate(config, 1);
    require(
        config.vocab_size > 0 && config.intermediate_size > 0 && config.num_hidden_layers > 0,
        "config: vocab_size {}, intermediate_size {} and num_hidden_layers {} must not be 0",
        config.vocab_size, config.intermediate_size, config.num_hidden_layers);
    require(config.head_dim % 2 == 0, "config: head_dim must be even for RoPE, not {}",
            config.head_dim);
    return config;
}

void check_input(const Config& config, const IdMatrix& input_ids) {
    require(input_ids.size() > 0, "model: input ids of {} hold no token", input_ids.shape());
    for (const Id id : input_ids)
        require(id >= 0 && static_cast<std::size_t>(id) < config.vocab_size,
                "model: there is no token {} in a vocabulary of {}", id, config.vocab_size);
    require(input_ids.shape(1) <= config.max_position_embeddings,
            "model: a sequence of {} tokens exceeds max_position_embeddings of {}",
            input_ids.shape(1), config.max_position_embeddings);
}

Tensor3 embedding(const Matrix& weight, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    Tensor3 embeddings = xt::zeros<Real>({batch_size, seq_len, weight.shape(1)});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            xt::view(embeddings, b, t) =
                xt::view(weight, static_cast<std::size_t>(input_ids(b, t)));
    return embeddings;
}

Tensor3 add_positions(const Tensor3& embeddings, const Matrix& embed_positions,
                      std::size_t past_len) {
    const auto [batch_size, seq_len, width] = dims(embeddings);
    require(embed_positions.shape(1) == width && past_len + seq_len <= embed_positions.shape(0),
            "model: position embeddings of {} do not fit {} embeddings after {} tokens",
            embed_positions.shape(), embeddings.shape(), past_len);
    Tensor3 sum = embeddings;
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            xt::view(sum, b, t) += xt::view(embed_positions, past_len + t);
    return sum;
}

std::vector<RotaryTable> rotary_tables(const Config& config, std::size_t num_positions) {
    require(num_positions <= config.max_position_embeddings,
            "model: a sequence of {} tokens exceeds max_position_embeddings of {}",
            num_positions, config.max_position_embeddings);
    return {make_rotary_table(rope_frequencies(config), num_positions)};
}

Tensor3 lm_head(const Matrix& weight, const Tensor3& hidden_states) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const Matrix rows = reshape(hidden_states, {batch_size * seq_len, width});  // (B*T, C)

    // A linear layer without bias: each logit is the dot product with one row of the weight.
    Matrix flat_logits = matmul_transposed(rows, weight);  // (B*T, V)
    return reshape(std::move(flat_logits), {batch_size, seq_len, weight.shape(0)});
}

Matrix logit_softcap(const Matrix& logits, Real cap) {
    require(cap > 0, "logit_softcap: the cap must be positive");
    Matrix capped = logits;  // (N, V)
    for (Real& logit : capped) logit = cap * std::tanh(logit / cap);
    return capped;
}

Tensor3 logit_softcap(const Tensor3& logits, Real cap) {
    const auto [batch_size, seq_len, vocab_size] = dims(logits);
    const Matrix rows = reshape(logits, {batch_size * seq_len, vocab_size});
    return reshape(logit_softcap(rows, cap), {batch_size, seq_len, vocab_size});
}

Tensor3 last_position(const Tensor3& hidden_states) {
    const std::size_t seq_len = hidden_states.shape(1);
    return xt::view(hidden_states, xt::all(), xt::range(seq_len - 1, seq_len), xt::all());
}

template struct DecoderModel<PreNormBlock>;

Model make_model(const Config& given, Generator& generator, RopeLayout layout) {
    const Config config = validate_model(given);
    const std::size_t hidden_size = config.hidden_size;
    const RMSNorm norm = make_rms_norm(hidden_size, config.rms_norm_eps);

    Model model{config, randn({config.vocab_size, hidden_size}, generator), {}, norm, {}};
    model.layers.reserve(config.num_hidden_layers);
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n) {
        AttentionLayer self_attn = make_attention_layer(config, generator);
        GatedMlp mlp =
            make_gated_mlp(hidden_size, config.intermediate_size, false, SiLU, generator);
        Projections& projections = self_attn.projections;
        if (layout == RopeLayout::interleaved) {
            projections.q_proj =
                interleaved_to_split_half(projections.q_proj, config.num_attention_heads);
            projections.k_proj =
                interleaved_to_split_half(projections.k_proj, config.num_key_value_heads);
        }
        model.layers.push_back({std::move(self_attn), std::move(mlp), norm, norm});
    }
    Matrix head = make_linear(hidden_size, config.vocab_size, false, generator).weight;
    if (!config.tie_word_embeddings) model.lm_head = std::move(head);
    return model;
}

void init_normal(Model& model, Real standard_deviation, Generator& generator) {
    const auto init = [&](Matrix& matrix) {
        generator.fill_normal({matrix.data(), matrix.size()});
        for (Real& element : matrix) element *= standard_deviation;
    };
    init(model.embed_tokens);
    for (PreNormBlock& layer : model.layers) {
        auto& [q_proj, k_proj, v_proj, o_proj] = layer.self_attn.projections;
        for (Linear* linear : {&q_proj, &k_proj, &v_proj, &o_proj, &layer.mlp.gate_proj,
                               &layer.mlp.down_proj, &layer.mlp.up_proj})
            init(linear->weight);
    }
    if (model.lm_head) init(*model.lm_head);
}

}  // namespace llm
