#include "chapters/09_full_model/model.hpp"

namespace llm {

ModelConfig::ModelConfig() {
    hidden_size = 384;
    num_attention_heads = 6;
    num_key_value_heads = 6;
    max_position_embeddings = 2048;
    rms_norm_eps = Real(1e-6);
    use_qk_norm = false;
}

ModelConfig complete(ModelConfig config) {
    static_cast<Config&>(config) = complete(static_cast<const Config&>(config), 1);
    require(
        config.vocab_size > 0 && config.intermediate_size > 0 && config.num_hidden_layers > 0,
        "config: vocab_size {}, intermediate_size {} and num_hidden_layers {} must not be 0",
        config.vocab_size, config.intermediate_size, config.num_hidden_layers);
    require(config.head_dim % 2 == 0, "config: head_dim must be even for RoPE, not {}",
            config.head_dim);
    return config;
}

void check_input(const ModelConfig& config, const IdMatrix& input_ids) {
    for (const Id id : input_ids)
        require(id >= 0 && static_cast<std::size_t>(id) < config.vocab_size,
                "model: there is no token {} in a vocabulary of {}", id, config.vocab_size);
    require(input_ids.shape(1) <= config.max_position_embeddings,
            "model: a sequence of {} tokens exceeds max_position_embeddings of {}",
            input_ids.shape(1), config.max_position_embeddings);
}

Tensor3 Model::embed(const IdMatrix& input_ids) const {
    check_input(config, input_ids);
    const auto [batch_size, seq_len] = dims(input_ids);
    Tensor3 hidden_states = xt::zeros<Real>({batch_size, seq_len, config.hidden_size});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            xt::view(hidden_states, b, t) =
                xt::view(embed_tokens, static_cast<std::size_t>(input_ids(b, t)));
    return hidden_states;
}

Vector rotary_frequencies(const ModelConfig& config) {
    const Vector frequencies = inverse_frequencies(config.head_dim, config.rope_theta);
    if (!config.rope_scaling) return frequencies;
    return scale_like_llama3(frequencies, *config.rope_scaling);
}

RotaryTable Model::rotary_table(std::size_t num_positions) const {
    require(num_positions <= config.max_position_embeddings,
            "model: a sequence of {} tokens exceeds max_position_embeddings of {}",
            num_positions, config.max_position_embeddings);
    return make_rotary_table(rotary_frequencies(config), num_positions);
}

Placement Model::placement(std::size_t batch_size, std::size_t seq_len) const {
    return {rotary_table(seq_len), position_ids(batch_size, seq_len),
            expand_mask(causal_mask(seq_len, seq_len), batch_size)};
}

Tensor3 Model::logits(const Tensor3& hidden_states) const {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const Tensor3 normalized = norm(hidden_states);                          // (B, T, C)
    const Matrix rows = reshape(normalized, {batch_size * seq_len, width});  // (B*T, C)

    // How well does the stream fit each token's vector? A dot product with each says so.
    const Matrix& head = lm_head ? *lm_head : embed_tokens;            // (V, C)
    const Matrix scores = xt::linalg::dot(rows, xt::transpose(head));  // (B*T, V)
    return reshape(scores, {batch_size, seq_len, config.vocab_size});
}

Tensor3 Model::operator()(const IdMatrix& input_ids) const {
    const auto [batch_size, seq_len] = dims(input_ids);
    const Placement where = placement(batch_size, seq_len);
    Tensor3 stream = embed(input_ids);                                       // (B, T, C)
    for (const PreNormBlock& layer : layers) stream = layer(stream, where);  // (B, T, C)
    return logits(stream);                                                   // (B, T, V)
}

Model make_model(const ModelConfig& given, Generator& generator) {
    const ModelConfig config = complete(given);
    const std::size_t hidden_size = config.hidden_size;
    const RMSNorm norm = make_rms_norm(hidden_size, config.rms_norm_eps);

    Model model{config, randn({config.vocab_size, hidden_size}, generator), {}, norm, {}};
    model.layers.reserve(config.num_hidden_layers);
    for (std::size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
        Sublayers sublayers = make_sublayers(config, config.intermediate_size, generator);
        Projections& projections = sublayers.self_attn.projections;
        if (config.interleaved_rope) {
            projections.q_proj =
                interleaved_to_split_half(projections.q_proj, config.num_attention_heads);
            projections.k_proj =
                interleaved_to_split_half(projections.k_proj, config.num_key_value_heads);
        }
        if (!config.attention_output_bias) projections.o_proj.bias.reset();
        if (config.use_qk_norm) {  // Qwen3's, with weights
            sublayers.self_attn.q_norm = make_rms_norm(config.head_dim, 0).weight;
            sublayers.self_attn.k_norm = make_rms_norm(config.head_dim, 0).weight;
        }
        model.layers.push_back({std::move(sublayers), norm, norm});
    }
    Matrix head = make_linear(hidden_size, config.vocab_size, false, generator).weight;
    if (!config.tie_word_embeddings) model.lm_head = std::move(head);
    model.config.interleaved_rope = false;
    return model;
}

void draw_normal(Model& model, Real standard_deviation, Generator& generator) {
    const auto draw = [&](Matrix& matrix) {
        generator.fill_normal({matrix.data(), matrix.size()});
        for (Real& number : matrix) number *= standard_deviation;
    };
    draw(model.embed_tokens);
    for (PreNormBlock& layer : model.layers) {
        Projections& projections = layer.self_attn.projections;
        for (Linear* linear : {&projections.q_proj, &projections.k_proj, &projections.v_proj,
                               &projections.o_proj, &layer.mlp.gate_proj, &layer.mlp.down_proj,
                               &layer.mlp.up_proj})
            draw(linear->weight);
    }
    if (model.lm_head) draw(*model.lm_head);
}

ParameterCount count_parameters(const ModelConfig& given) {
    const ModelConfig config = complete(given);
    const std::size_t C = config.hidden_size, L = config.num_hidden_layers;
    const std::size_t query_width = config.num_attention_heads * config.head_dim;  // H*D
    const std::size_t kv_width = config.num_key_value_heads * config.head_dim;     // Hkv*D

    ParameterCount count;
    count.embedding = config.vocab_size * C;
    count.attention = L * (2 * query_width * C + 2 * kv_width * C);  // q and o, k and v
    if (config.attention_bias) count.attention += L * (query_width + 2 * kv_width);
    if (config.attention_bias && config.attention_output_bias) count.attention += L * C;
    count.mlp = L * gated_mlp_parameters(C, config.intermediate_size);
    count.norms = L * 2 * C + C;
    if (config.use_qk_norm) count.norms += L * 2 * config.head_dim;
    if (!config.tie_word_embeddings) count.head = config.vocab_size * C;
    return count;
}

ParameterCount count_parameters(const Model& model) {
    ParameterCount count;
    count.embedding = model.embed_tokens.size();
    for (const PreNormBlock& layer : model.layers) {
        const Projections& projections = layer.self_attn.projections;
        for (const Linear* linear : {&projections.q_proj, &projections.k_proj,
                                     &projections.v_proj, &projections.o_proj})
            count.attention += num_parameters(*linear);
        for (const Linear* linear :
             {&layer.mlp.gate_proj, &layer.mlp.up_proj, &layer.mlp.down_proj})
            count.mlp += num_parameters(*linear);
        count.norms += num_parameters(layer.attention_norm) + num_parameters(layer.ffn_norm);
        if (layer.self_attn.q_norm)
            count.norms += layer.self_attn.q_norm->size() + layer.self_attn.k_norm->size();
    }
    count.norms += num_parameters(model.norm);
    if (model.lm_head) count.head = model.lm_head->size();
    return count;
}

std::size_t operations_per_token(const ModelConfig& given, std::size_t position) {
    ModelConfig config = complete(given);
    config.attention_bias = false;  // biases are not matrices
    const ParameterCount count = count_parameters(config);

    // A tied head is a matrix product, too. Looking a token up in the embedding costs nothing.
    const std::size_t head = config.vocab_size * config.hidden_size;
    const std::size_t matrices = count.attention + count.mlp + head;
    const std::size_t seen = (position + 1) * config.num_hidden_layers *
                             config.num_attention_heads * config.head_dim;
    return 2 * matrices + 4 * seen;  // a score and a value
}

}  // namespace llm
