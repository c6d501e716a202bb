// Training of published encoders: the gradients of classifiers against PyTorch's, and new
// heads.
#include "chapters/models/encoders/encoder_training.hpp"

#include "chapters/12_gradients/model_backward.hpp"
#include "common/files/safetensors.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const IdVector three_labels = {2, 0, 1};

// PyTorch's gradient of each tensor, read as the weights of the encoder that has them.
AnyEncoder expected_gradient(const std::string& name) {
    const Scratch scratch;
    const std::string from = fixture_path("models/" + name), folder = scratch.folder.string();
    fs::copy(from + "/config.json", folder + "/config.json");
    fs::copy(from + "_gradient.safetensors", folder + "/model.safetensors");
    return load_encoder(folder);
}

Vector vector_of(std::span<const Real> values) {
    Vector result(std::array{values.size()});
    std::copy(values.begin(), values.end(), result.begin());
    return result;
}

}  // namespace

TEST_CASE("the gradient of every tensor of a classifier equals PyTorch's") {
    for (const std::string name : {"bert_classifier", "modernbert_mean", "modernbert_cls"}) {
        CAPTURE(name);
        const AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
        AnyEncoder gradient = encoder;
        const double loss = std::visit(
            [&]<class AnyModel>(const AnyModel& model) {
                AnyModel& sums = std::get<AnyModel>(gradient);
                zero_grad(sums);
                return forward_backward(model, encoder_batch(encoder), three_labels, sums);
            },
            encoder);
        CHECK(loss ==
              doctest::Approx(double(fixture<1>("models/" + name + "_loss")(0))).epsilon(1e-5));
        AnyEncoder expected = expected_gradient(name);
        std::visit(
            [&]<class AnyModel>(AnyModel& wanted) {
                const std::vector<Parameter> b = named_parameters(wanted),
                                             a = named_parameters(std::get<AnyModel>(gradient));
                REQUIRE(a.size() == b.size());
                for (std::size_t p = 0; p < a.size(); ++p) {
                    CAPTURE(a[p].name);
                    CHECK_CLOSE(vector_of(a[p].values), vector_of(b[p].values), 2e-5);
                }
            },
            expected);
    }
}

TEST_CASE("gradients of an encoder are accumulated") {
    const AnyEncoder encoder = load_encoder(fixture_path("models/bert_classifier"));
    std::visit(
        [&]<class AnyModel>(const AnyModel& model) {
            AnyModel once = zeros_like(model), twice = zeros_like(model);
            forward_backward(model, encoder_batch(encoder), three_labels, once);
            for (int i = 0; i < 2; ++i)
                forward_backward(model, encoder_batch(encoder), three_labels, twice);
            const std::vector<Parameter> a = named_parameters(once),
                                         b = named_parameters(twice);
            REQUIRE(a.size() == b.size());
            for (std::size_t p = 0; p < a.size(); ++p) {
                CAPTURE(a[p].name);
                for (std::size_t i = 0; i < a[p].values.size(); ++i) {
                    const Real expected = 2 * a[p].values[i];
                    CHECK(std::abs(b[p].values[i] - expected) < 1e-5);
                }
            }
        },
        encoder);
}

TEST_CASE("with_classifier: a new classifier with names, and the encoder as it was") {
    for (const std::string name : {"bert", "bert_plain", "modernbert", "modernbert_plain"}) {
        CAPTURE(name);
        Generator generator(3);
        const AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
        const AnyEncoder changed = with_classifier(encoder, {"no", "yes"}, generator);
        const EncoderFamilyConfig& config = config_of(changed);
        CHECK(config.architecture == (name.starts_with("bert")
                                          ? "BertForSequenceClassification"
                                          : "ModernBertForSequenceClassification"));
        CHECK(config.label(1) == "yes");
        const EncoderOutputs outputs = encode(changed, encoder_batch(changed));
        CHECK(outputs.logits->shape() == std::array<std::size_t, 2>{3, 2});
        CHECK_FALSE(outputs.mlm_logits.has_value());
        CHECK_CLOSE(outputs.last_hidden_state,
                    encode(encoder, encoder_batch(encoder)).last_hidden_state, 0);
        // What is written is read again, and is the same.
        const Scratch scratch;
        models::export_model(changed, scratch.folder.string());
        const AnyEncoder copy = load_encoder(scratch.folder.string());
        CHECK(config_of(copy).id2label == config.id2label);
        CHECK(difference_of(encode(copy, encoder_batch(copy)), outputs, 0) == "");
    }
}

TEST_CASE("with_classifier keeps the pooler and ModernBERT's head, which have been trained") {
    Generator generator(3);
    const AnyEncoder bert = load_encoder(fixture_path("models/bert")),
                     modern = load_encoder(fixture_path("models/modernbert"));
    using Bert = EncoderFamilyModel<BertBlock>;
    using Modern = EncoderFamilyModel<ModernBertBlock>;
    const AnyEncoder changed_bert = with_classifier(bert, {"a", "b"}, generator),
                     changed_modern = with_classifier(modern, {"a", "b"}, generator);
    CHECK_CLOSE(std::get<Bert>(changed_bert).pooler->dense.weight,
                std::get<Bert>(bert).pooler->dense.weight, 0);
    CHECK_CLOSE(std::get<Modern>(changed_modern).head->dense.weight,
                std::get<Modern>(modern).head->dense.weight, 0);
}

TEST_CASE("without_heads: the base class, with the same vectors") {
    for (const std::string name : {"bert", "modernbert_mean"}) {
        const AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
        const AnyEncoder base = without_heads(encoder);
        CHECK(config_of(base).architecture ==
              (name == "bert" ? "BertModel" : "ModernBertModel"));
        CHECK(count_parameters(base).heads == 0);
        CHECK_CLOSE(encode(base, encoder_batch(base)).last_hidden_state,
                    encode(encoder, encoder_batch(encoder)).last_hidden_state, 0);
    }
}

TEST_CASE("make_encoder: random weights of a configuration, as the encoder of chapter 25") {
    for (const std::string name : {"bert", "modernbert"}) {
        CAPTURE(name);
        const EncoderFamilyConfig config =
            config_of(load_encoder(fixture_path("models/" + name)));
        Generator generator(3), same(3), other(4);
        const AnyEncoder encoder = make_encoder(config, generator);
        const Scratch scratch;
        models::export_model(encoder, scratch.folder.string());
        CHECK(SafeTensors(scratch.folder).names() ==
              SafeTensors(fixture_path("models/" + name)).names());
        const Tensor3 states = encode(encoder, encoder_batch(encoder)).last_hidden_state;
        const auto states_of = [&](Generator& random) {
            return encode(make_encoder(config, random), encoder_batch(encoder))
                .last_hidden_state;
        };
        CHECK_CLOSE(states_of(same), states, 0);
        CHECK(difference(states_of(other), states, 1e-3) != "");
        std::visit(
            [](const auto& model) {
                const auto& layer = model.encoder.layers[1];
                const auto deviation = [](const Matrix& weight) {
                    double sum = 0;
                    for (const Real value : weight) sum += double(value) * double(value);
                    return std::sqrt(sum / double(weight.size()));
                };
                const double depth = std::sqrt(2.0 * double(model.encoder.layers.size()));
                const auto& projections = layer.self_attn.layer.projections;
                CHECK(deviation(projections.q_proj.weight) ==
                      doctest::Approx(0.02).epsilon(0.1));
                CHECK(deviation(projections.o_proj.weight) * depth ==
                      doctest::Approx(0.02).epsilon(0.1));
                CHECK(deviation(layer.mlp.down_proj.weight) * depth ==
                      doctest::Approx(0.02).epsilon(0.15));
            },
            encoder);
    }
}

TEST_CASE("forward_backward says if there is no classifier") {
    const AnyEncoder encoder = load_encoder(fixture_path("models/bert"));
    CHECK_THROWS_WITH(std::visit(
                          [&]<class AnyModel>(const AnyModel& model) {
                              AnyModel gradient = zeros_like(model);
                              return forward_backward(model, encoder_batch(encoder),
                                                      three_labels, gradient);
                          },
                          encoder),
                      "classifier: the model has none");
}
