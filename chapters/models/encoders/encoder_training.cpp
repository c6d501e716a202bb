#include "chapters/models/encoders/encoder_training.hpp"

#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/models/encoders/encoder_tensors.hpp"

namespace llm::models {
namespace {

// A visitor that gives each tensor without elements its size and its first values.
struct EncoderInitializer {
    Generator& generator;

    void matrix(const std::string&, Matrix& weight, std::size_t out, std::size_t in) {
        if (weight.size() > 0) return;
        weight = randn({out, in}, generator) * Real(0.02);
    }
    void linear(const std::string& name, Linear& linear, std::size_t out, std::size_t in) {
        matrix(name, linear.weight, out, in);
        if (linear.bias) bias(name, *linear.bias, out);
    }
    void norm(const std::string&, Vector& weight, std::size_t size) {
        if (weight.size() == 0) weight = xt::ones<Real>({size});
    }
    void bias(const std::string&, Vector& values, std::size_t size) {
        if (values.size() == 0) values = xt::zeros<Real>({size});
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<Linear>, N>& parts,
                 std::size_t in, std::size_t) {
        for (const auto& [layer, first, rows] : parts) linear(name, *layer, rows, in);
    }
};

// The parts that both have; the rest of `to` stays as it is.
template <class Block>
void copy_parts(const EncoderFamilyModel<Block>& from, EncoderFamilyModel<Block>& to) {
    to.encoder = from.encoder;
    if (to.pooler && from.pooler) to.pooler = from.pooler;
    if (to.head && from.head) {
        to.head->dense = from.head->dense;
        to.head->norm = from.head->norm;
    }
}

AnyEncoder with_heads(const AnyEncoder& encoder, const EncoderFamilyConfig& config,
                      Generator& generator) {
    AnyEncoder changed = make_empty_encoder(config);
    EncoderInitializer initializer{generator};
    std::visit(
        [&]<class AnyModel>(const AnyModel& model) {
            copy_parts(model, std::get<AnyModel>(changed));
            visit_heads(std::get<AnyModel>(changed), config.family->names, initializer);
        },
        encoder);
    return changed;
}

// What the classifier reads, and what its backward pass needs.
struct ClassifiedTexts {
    Pooling pooling;
    Matrix rows;                   // (B, C): one vector for each text
    MaskedLMHeadActivations head;  // of ModernBERT
    Matrix features;               // (B, C)
};

template <class Block>
ClassifiedTexts classified_texts(const EncoderFamilyModel<Block>& model,
                                 const Tensor3& hidden_states, const IdMatrix& padding_mask) {
    const Pooling pooling = model.config.classifier_pooling.value_or(Pooling::cls);
    ClassifiedTexts texts{pooling, pool(pooling, hidden_states, padding_mask), {}, {}};
    if (model.config.classifier_pooling) {
        texts.head = head_features(*model.head, texts.rows);
        texts.features = texts.head.features;
    } else {
        texts.features = xt::tanh(model.pooler->dense(texts.rows));
    }
    return texts;
}

template <class Block>
Matrix features_backward(const EncoderFamilyModel<Block>& model, const ClassifiedTexts& texts,
                         const Matrix& output_gradient,  // (B, C)
                         EncoderFamilyModel<Block>& gradient) {
    if (model.config.classifier_pooling)
        return llm::features_backward(*model.head, texts.head, output_gradient, *gradient.head);
    const Matrix squares = texts.features * texts.features;
    const Matrix dense_gradient = output_gradient * (1 - squares);  // tanh' = 1 - tanh²
    return linear_backward(model.pooler->dense, texts.rows, dense_gradient,
                           gradient.pooler->dense);
}

}  // namespace

AnyEncoder make_encoder(const EncoderFamilyConfig& config, Generator& generator) {
    AnyEncoder encoder = make_empty_encoder(config);
    EncoderInitializer initializer{generator};
    std::visit(
        [&](auto& model) {
            visit_encoder(model, config.family->names, initializer);
            visit_heads(model, config.family->names, initializer);
            const Real depth = std::sqrt(Real(2 * model.encoder.layers.size()));
            for (auto& layer : model.encoder.layers)
                for (Linear* linear :
                     {&layer.self_attn.layer.projections.o_proj, &layer.mlp.down_proj})
                    for (Real& weight : linear->weight) weight /= depth;
        },
        encoder);
    return encoder;
}

std::string class_with(const EncoderFamily& family, const EncoderHeads& heads) {
    for (const auto& [name, heads_of_class] : family.classes)
        if (heads_of_class == heads) return name;
    throw ValueError("model_type " + family.model_type + " has no class with these heads");
}

AnyEncoder with_classifier(const AnyEncoder& encoder, const std::vector<std::string>& labels,
                           Generator& generator) {
    EncoderFamilyConfig config = config_of(encoder);
    const bool has_pooler = !config.family->names.pooler.empty();
    config.heads = {.pooler = has_pooler, .classifier = true};
    config.architecture = class_with(*config.family, config.heads);
    config.num_labels = labels.size();
    config.id2label.clear();
    for (std::size_t n = 0; n < labels.size(); ++n)
        config.id2label.emplace(std::to_string(n), labels[n]);
    return with_heads(encoder, config, generator);
}

AnyEncoder without_heads(const AnyEncoder& encoder) {
    EncoderFamilyConfig config = config_of(encoder);
    config.heads = {};
    config.architecture = config.family->base_class;
    config.num_labels = 0;
    config.id2label.clear();
    Generator unused(0);
    return with_heads(encoder, config, unused);
}

template <class Block>
double forward_backward(const EncoderFamilyModel<Block>& model, const BatchEncoding& texts,
                        const IdVector& labels, EncoderFamilyModel<Block>& gradient) {
    require(model.classifier.has_value(), "classifier: the model has none");
    const auto [hidden_states, saved] = encoder_forward(model.encoder, texts);
    const ClassifiedTexts read = classified_texts(model, hidden_states, texts.padding_mask);
    const Matrix logits = (*model.classifier)(read.features);  // (B, labels)
    const Matrix features_gradient =
        linear_backward(*model.classifier, read.features,
                        cross_entropy_backward(logits, labels), *gradient.classifier);
    const Matrix rows_gradient = features_backward(model, read, features_gradient, gradient);
    encoder_backward(model.encoder, saved,
                     pool_backward(read.pooling, texts.padding_mask, rows_gradient),
                     gradient.encoder);
    return cross_entropy(logits, labels);
}

template double forward_backward(const EncoderFamilyModel<BertBlock>&, const BatchEncoding&,
                                 const IdVector&, EncoderFamilyModel<BertBlock>&);
template double forward_backward(const EncoderFamilyModel<ModernBertBlock>&,
                                 const BatchEncoding&, const IdVector&,
                                 EncoderFamilyModel<ModernBertBlock>&);

}  // namespace llm::models
