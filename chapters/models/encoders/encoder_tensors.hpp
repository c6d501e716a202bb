// Where the tensors of a published encoder stand in a file.
#pragma once

#include "chapters/models/encoders/encoder_model.hpp"
#include "chapters/models/matrix_rows.hpp"

namespace llm::models {

// Visits the tensors of an encoder, which may be const, to read, to write or to count them. A
// visitor has these members of chapter 09's: matrix, linear, norm and bias; and grouped of
// layer_tensors.hpp, for projections in one matrix.
template <class AnyNorm, class Visitor>
requires std::same_as<std::remove_const_t<AnyNorm>, NormOrIdentity>
void visit_norm(AnyNorm& norm, const std::string& name, std::size_t size, Visitor& visit) {
    if (norm.norm) llm::visit_norm(*norm.norm, name, size, visit);
}

template <class AnyAttention, class Visitor>
void visit_encoder_attention(AnyAttention& attention, std::size_t C, const std::string& layer,
                             const FamilyLayerNames& names, Visitor& visit) {
    auto& [q_proj, k_proj, v_proj, o_proj] = attention.layer.projections;
    if (names.qkv_proj.empty()) {
        visit.linear(layer + names.q_proj, q_proj, C, C);
        visit.linear(layer + names.k_proj, k_proj, C, C);
        visit.linear(layer + names.v_proj, v_proj, C, C);
    } else {
        visit.grouped(layer + names.qkv_proj,
                      std::array{group_rows(q_proj, 0, C), group_rows(k_proj, 0, C),
                                 group_rows(v_proj, 0, C)},
                      C, 1);
    }
    visit.linear(layer + names.o_proj, o_proj, C, C);
}

template <class AnyMlp, class Visitor>
void visit_encoder_mlp(AnyMlp& mlp, std::size_t C, std::size_t F, const std::string& layer,
                       const FamilyLayerNames& names, Visitor& visit) {
    if constexpr (requires { mlp.gate_proj; })
        // The first half goes through the activation.
        visit.grouped(
            layer + names.gate_up_proj,
            std::array{group_rows(mlp.gate_proj, 0, F), group_rows(mlp.up_proj, 0, F)}, C, 1);
    else
        visit.linear(layer + names.mlp.up_proj, mlp.up_proj, F, C);
    visit.linear(layer + names.mlp.down_proj, mlp.down_proj, C, F);
}

template <class AnyEmbeddings, class Visitor>
void visit_embeddings(AnyEmbeddings& embeddings, const EncoderFamilyConfig& config,
                      const EncoderNames& names, Visitor& visit) {
    const std::size_t C = config.hidden_size;
    visit.matrix(names.word_embeddings, embeddings.word_embeddings, config.vocab_size, C);
    if (auto& positions = embeddings.position_embeddings)
        visit.matrix(names.position_embeddings, *positions, config.max_position_embeddings, C);
    if (auto& types = embeddings.token_type_embeddings)
        visit.matrix(names.token_type_embeddings, *types, config.type_vocab_size, C);
    visit_norm(embeddings.norm, names.embeddings_norm, C, visit);
}

template <class AnyModel, class Visitor>
void visit_heads(AnyModel& model, const EncoderNames& names, Visitor& visit) {
    const EncoderFamilyConfig& config = model.config;
    const std::size_t C = config.hidden_size;
    if (model.pooler) visit.linear(names.pooler, model.pooler->dense, C, C);
    if (auto& head = model.head) {
        visit.linear(names.head_dense, head->dense, C, C);
        visit_norm(head->norm, names.head_norm, C, visit);
        if (config.heads.masked_lm && !config.tie_word_embeddings)
            visit.matrix(names.decoder, head->decoder.weight, config.vocab_size, C);
        if (head->decoder.bias)
            visit.bias(names.decoder_bias, *head->decoder.bias, config.vocab_size);
    }
    if (auto& two = model.seq_relationship) visit.linear(names.seq_relationship, *two, 2, C);
    if (auto& classifier = model.classifier)
        visit.linear(names.classifier, *classifier, config.num_labels, C);
}

// Without heads.
template <class AnyModel, class Visitor>
void visit_encoder(AnyModel& model, const EncoderNames& names, Visitor& visit) {
    const std::size_t C = model.config.hidden_size, F = model.config.intermediate_size;
    visit_embeddings(model.encoder.embeddings, model.config, names, visit);
    for (std::size_t n = 0; n < model.encoder.layers.size(); ++n) {
        auto& block = model.encoder.layers[n];
        const std::string layer = names.layer + std::to_string(n) + ".";
        visit_norm(block.attention_norm, layer + names.layers.attention_norm, C, visit);
        visit_encoder_attention(block.self_attn, C, layer, names.layers, visit);
        visit_norm(block.ffn_norm, layer + names.layers.ffn_norm, C, visit);
        visit_encoder_mlp(block.mlp, C, F, layer, names.layers, visit);
    }
    visit_norm(model.encoder.final_norm, names.final_norm, C, visit);
}

// A visitor that reads each tensor from a file, of SafeTensors or GgufTensors.
template <class Tensors>
struct EncoderReader : TensorReader<Tensors> {
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<Linear>, N>& parts,
                 std::size_t in, std::size_t num_groups) {
        split_groups(*this, name, parts, in, num_groups);
    }
};

}  // namespace llm::models
