// Training of published encoders: new heads, parameters, and the gradient of a classifier.
#pragma once

#include "chapters/12_gradients/loss.hpp"
#include "chapters/models/encoders/encoder_model.hpp"

namespace llm::models {

// An encoder of random weights: matrices of N(0, 0.02²), norms 1, biases 0; o_proj and
// down_proj as in chapter 25's init_weights.
AnyEncoder make_encoder(const EncoderFamilyConfig& config, Generator& generator);

// The class of a family with these heads, such as BertForSequenceClassification. Throws
// ValueError if it has none.
std::string class_with(const EncoderFamily& family, const EncoderHeads& heads);

// The same encoder for other texts: a classifier of these labels, or no head at all. Heads that
// it has already keep their weights, except a classifier; new ones are random.
AnyEncoder with_classifier(const AnyEncoder& encoder, const std::vector<std::string>& labels,
                           Generator& generator);
AnyEncoder without_heads(const AnyEncoder& encoder);

// All parameters, under the names of chapter 25.
template <class Block>
std::vector<Parameter> named_parameters(EncoderFamilyModel<Block>& model) {
    ParameterList list;
    add_parameters(list, "encoder", model.encoder);
    if (model.pooler) add_parameters(list, "pooler", model.pooler->dense);
    if (model.head) {
        add_parameters(list, "head.dense", model.head->dense);
        add_parameters(list, "head.norm", model.head->norm);
        if (model.head->decoder.weight.size() > 0)
            add_tensor(list, "head.decoder.weight", model.head->decoder.weight);
        if (model.head->decoder.bias)
            add_tensor(list, "head.decoder.bias", *model.head->decoder.bias);
    }
    if (model.seq_relationship)
        add_parameters(list, "seq_relationship", *model.seq_relationship);
    if (model.classifier) add_parameters(list, "classifier", *model.classifier);
    return list;
}

// The mean cross-entropy of the classifier's logits, without dropout. Its gradient is
// accumulated. Throws ValueError without a classifier, or if the sizes differ.
template <class Block>
double forward_backward(const EncoderFamilyModel<Block>& model, const BatchEncoding& texts,
                        const IdVector& labels,  // (B)
                        EncoderFamilyModel<Block>& gradient);

extern template double forward_backward(const EncoderFamilyModel<BertBlock>&,
                                        const BatchEncoding&, const IdVector&,
                                        EncoderFamilyModel<BertBlock>&);
extern template double forward_backward(const EncoderFamilyModel<ModernBertBlock>&,
                                        const BatchEncoding&, const IdVector&,
                                        EncoderFamilyModel<ModernBertBlock>&);

}  // namespace llm::models
