// Encoders in GGUF files as fast encoders, whose weights stay quantized.
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/encoders/encoder_tensors.hpp"
#include "chapters/models/encoders/fast_encoder_parts.hpp"
#include "chapters/models/encoders/kernels/packed_products.hpp"
#include "chapters/models/gguf/quantized_gguf.hpp"

namespace llm::models {
namespace {

// Fills in the parts of a fast encoder.
class FastEncoderReader {
 public:
    FastEncoderReader(const Gguf& file, GgufTensors& tensors, Activations activations)
        : file_(file), tensors_(tensors), activations_(activations), floats_{{tensors}} {}

    void embeddings(FastEncoder& encoder) {
        const EncoderFamilyConfig& config = encoder.config;
        const EncoderNames& names = config.family->gguf_names;
        const std::size_t C = config.hidden_size;
        encoder.word_embeddings = matrix(names.word_embeddings, config.vocab_size, C);
        if (auto& positions = encoder.position_embeddings)
            floats_.matrix(names.position_embeddings, *positions,
                           config.max_position_embeddings, C);
        if (auto& types = encoder.token_type_embeddings)
            floats_.matrix(names.token_type_embeddings, *types, config.type_vocab_size, C);
        llm::visit_norm(encoder.embeddings_norm, names.embeddings_norm, C, floats_);
        visit_norm(encoder.final_norm, names.final_norm, C, floats_);
    }

    void layer(const EncoderFamilyConfig& config, std::size_t n, FastEncoderLayer& layer) {
        const std::string prefix = config.family->gguf_names.layer + std::to_string(n) + ".";
        const FamilyLayerNames& names = config.family->gguf_names.layers;
        const std::size_t C = config.hidden_size, F = config.intermediate_size;
        const auto linear = [&](const std::vector<std::string>& parts, std::size_t out,
                                std::size_t in, bool has_bias) {
            return fuse(prefix, parts, out, in, has_bias);
        };
        visit_norm(layer.attention_norm, prefix + names.attention_norm, C, floats_);
        visit_norm(layer.ffn_norm, prefix + names.ffn_norm, C, floats_);
        layer.qkv_proj = names.qkv_proj.empty()
                             ? linear({names.q_proj, names.k_proj, names.v_proj}, C, C,
                                      config.attention_bias)
                             : linear({names.qkv_proj}, 3 * C, C, config.attention_bias);
        layer.o_proj = linear({names.o_proj}, C, C, config.attention_bias);
        layer.gate_up_proj = layer.has_gate
                                 ? linear({names.gate_up_proj}, 2 * F, C, config.mlp_bias)
                                 : linear({names.mlp.up_proj}, F, C, config.mlp_bias);
        layer.down_proj = linear({names.mlp.down_proj}, C, F, config.mlp_bias);
    }

 private:
    const Gguf& file_;
    GgufTensors& tensors_;
    Activations activations_;
    EncoderReader<GgufTensors> floats_;  // of what is not quantized
    WeightMemory memory_;

    WeightMatrix matrix(const std::string& name, std::size_t out, std::size_t in) {
        WeightMatrix result = read_weight_matrix(file_, tensors_, name, out, in, activations_);
        if (result.dtype() == DType::float32) result.kernels = &packed_float32_kernels();
        return result;
    }
    // Linear layers that read the same input, each of this size.
    FastLinear fuse(const std::string& prefix, const std::vector<std::string>& names,
                    std::size_t out, std::size_t in, bool has_bias) {
        std::vector<WeightMatrix> weights;
        std::vector<Real> biases;
        for (const std::string& name : names) {
            weights.push_back(matrix(prefix + name, out, in));
            if (!has_bias) continue;
            const Vector bias = tensors_.read(prefix + name + ".bias", {out});
            biases.insert(biases.end(), bias.begin(), bias.end());
        }
        return {memory_.fuse(weights), biases};
    }
};

}  // namespace

FastEncoder load_fast_encoder_gguf(const std::string& path, Activations activations) {
    const Gguf file(path);
    const EncoderFamilyConfig config = read_encoder_config(file);
    file.reject_other_types();
    check_last_layer(file, config);
    GgufTensors tensors(file);
    FastEncoderReader reader(file, tensors, activations);
    FastEncoder fast = std::visit(
        [&](const auto& empty) { return copy_all_but_weights(config, empty.encoder); },
        make_empty_encoder(config));
    reader.embeddings(fast);
    for (std::size_t n = 0; n < fast.layers.size(); ++n)
        reader.layer(config, n, fast.layers[n]);
    tensors.reject_unread();
    return fast;
}

}  // namespace llm::models
