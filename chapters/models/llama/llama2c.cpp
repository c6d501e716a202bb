#include "chapters/models/llama/llama2c.hpp"

#include <cmath>
#include <cstring>

#include "common/files/mapped_file.hpp"

namespace llm::models {
namespace {

// Reads a file sequentially: a header of seven 32-bit integers, then float32 tensors in the
// order of llama2.c's legacy_export.
class Llama2cReader {
 public:
    explicit Llama2cReader(const std::string& path) : file_(path) {
        if (file_.bytes().size() < sizeof header_) reject("too short for a llama2.c file");
        std::memcpy(header_.data(), file_.bytes().data(), sizeof header_);
        offset_ = sizeof header_;
    }

    Config config() const {
        for (std::size_t i = 0; i < header_.size(); ++i)
            if (i != 5 && (header_[i] < 1 || header_[i] > 1 << 24))
                reject("field " + to_text(i) + " of the header is " + to_text(header_[i]) +
                       ": not a llama2.c file, and neither a GGUF file nor a folder of Hugging "
                       "Face");
        Config config;
        config.hidden_size = size(0);
        config.intermediate_size = size(1);
        config.num_hidden_layers = size(2);
        config.num_attention_heads = size(3);
        config.num_key_value_heads = size(4);
        config.vocab_size = size(5);
        config.max_position_embeddings = size(6);
        config.tie_word_embeddings = header_[5] > 0;  // negative: untied
        config.rms_norm_eps = Real(1e-5);
        config.qk_norm = QKNormType::none;
        return validate_model(config);
    }

    // Rejects a file whose size does not match its header, before any tensor is allocated. In
    // double, because the product of the header's sizes can overflow 64 bits.
    void expect_size_of(const Config& config) const {
        const double C = double(config.hidden_size), F = double(config.intermediate_size);
        const double L = double(config.num_hidden_layers), V = double(config.vocab_size);
        const double D = double(config.head_dim), P = double(config.max_position_embeddings);
        const double H = double(config.num_attention_heads);
        const double Hkv = double(config.num_key_value_heads);
        const double layer = 2 * C + 2 * H * D * C + 2 * Hkv * D * C + 3 * F * C;
        const double heads = config.tie_word_embeddings ? 1 : 2;  // embedding, head
        const double expected = sizeof header_ + 4 * (heads * V * C + L * layer + C + P * D);
        const auto actual = file_.bytes().size();
        if (double(actual) != expected)
            reject(
                "the file has " + to_text(actual) + " bytes, but its header requires " +
                (expected < 1e15 ? to_text(static_cast<std::size_t>(expected)) : "far more"));
    }

    // The next tensor of the file.
    template <std::size_t N>
    xt::xtensor<Real, N> next(const std::size_t (&shape)[N]) {
        xt::xtensor<Real, N> tensor(std::to_array(shape));
        const auto bytes = file_.bytes().subspan(offset_, tensor.size() * sizeof(float));
        std::memcpy(tensor.data(), bytes.data(), bytes.size());
        for (const Real element : tensor)
            if (!std::isfinite(element)) reject("a tensor has an element that is not finite");
        file_.forget(bytes);
        offset_ += bytes.size();
        return tensor;
    }

    [[noreturn]] void reject(const std::string& reason) const {
        throw FileError(file_.path().string() + ": " + reason);
    }

 private:
    MappedFile file_;
    std::array<std::int32_t, 7> header_{};
    std::size_t offset_ = 0;

    std::size_t size(std::size_t field) const {
        return static_cast<std::size_t>(std::abs(static_cast<std::int64_t>(header_[field])));
    }
};

}  // namespace

Model load_llama2c(const std::string& path) try {
    Llama2cReader file(path);
    const Config config = file.config();
    file.expect_size_of(config);
    const std::size_t C = config.hidden_size, F = config.intermediate_size, D = config.head_dim;
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    const Real eps = config.rms_norm_eps;

    Model model{config, file.next({config.vocab_size, C}), {}, {}, {}};
    model.layers.resize(config.num_hidden_layers);
    const auto for_each_layer = [&](auto read) {
        for (PreNormBlock& layer : model.layers) read(layer, layer.self_attn.projections);
    };
    for_each_layer([&](auto& layer, auto&) {
        layer.self_attn.num_attention_heads = H;
        layer.self_attn.num_key_value_heads = Hkv;
    });
    for_each_layer([&](auto& layer, auto&) { layer.attention_norm = {file.next({C}), eps}; });
    for_each_layer([&](auto&, auto& attention) {
        attention.q_proj = interleaved_to_split_half({file.next({H * D, C}), {}}, H);
    });
    for_each_layer([&](auto&, auto& attention) {
        attention.k_proj = interleaved_to_split_half({file.next({Hkv * D, C}), {}}, Hkv);
    });
    for_each_layer([&](auto&, auto& attention) {
        attention.v_proj.weight = file.next({Hkv * D, C});
    });
    for_each_layer([&](auto&, auto& attention) {
        attention.o_proj.weight = file.next({C, H * D});
    });
    for_each_layer([&](auto& layer, auto&) { layer.ffn_norm = {file.next({C}), eps}; });
    for_each_layer([&](auto& layer, auto&) { layer.mlp.gate_proj.weight = file.next({F, C}); });
    for_each_layer([&](auto& layer, auto&) { layer.mlp.down_proj.weight = file.next({C, F}); });
    for_each_layer([&](auto& layer, auto&) { layer.mlp.up_proj.weight = file.next({F, C}); });
    model.norm = {file.next({C}), eps};
    file.next({config.max_position_embeddings,
               D});  // the rotary table, which Model::rotary_table computes
    if (!config.tie_word_embeddings) model.lm_head = file.next({config.vocab_size, C});
    return model;
} catch (const ValueError& error) {
    throw FileError(path + ": " + error.what());
}

}  // namespace llm::models
