#include "chapters/06_swiglu/demo/words.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chapters/06_swiglu/activations.hpp"
#include "common/files/words.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The count features with the largest |product| for this token.
std::vector<std::size_t> largest_features(const Matrix& product,  // (T, F)
                                          std::size_t token, std::size_t count) {
    std::vector<std::size_t> features(product.shape(1));
    std::iota(features.begin(), features.end(), std::size_t{0});
    std::partial_sort(features.begin(), features.begin() + static_cast<std::ptrdiff_t>(count),
                      features.end(), [&](std::size_t a, std::size_t b) {
                          return std::abs(product(token, a)) > std::abs(product(token, b));
                      });
    features.resize(count);
    return features;
}

Matrix activated(const Activation& activation, const Matrix& gate) {
    Matrix result = gate;
    for (Real& value : result) value = activation.function(value);
    return result;
}

// The columns of these features, one row for each token.
Matrix columns(const Matrix& product, const std::vector<std::size_t>& features) {
    Matrix result = xt::zeros<Real>({product.shape(0), features.size()});
    for (std::size_t t = 0; t < product.shape(0); ++t)
        for (std::size_t i = 0; i < features.size(); ++i)
            result(t, i) = product(t, features[i]);
    return result;
}

}  // namespace

void show_gates_of_words(const Activation& activation) {
    const Words words = load_words();
    const Matrix activated_gate = activated(activation, words.gate);  // (T, F)
    const Matrix product = activated_gate * words.up;                 // (T, F)
    const std::string name = std::string(activation.name) + "(gate)";

    step("The word \"LORD\": the six features of 512 with the largest |product|");
    std::vector<TableRow> rows;
    const std::size_t lord = 2;
    const std::vector<std::size_t> features = largest_features(product, lord, 6);
    for (const std::size_t f : features)
        rows.push_back({to_text(f), fixed(words.gate(lord, f), 2),
                        fixed(activated_gate(lord, f), 2), fixed(words.up(lord, f), 2),
                        fixed(product(lord, f), 2)});
    show_table({"feature", "gate", name, "up", "product"}, rows);

    step("The same features of all five words");
    std::vector<std::string> names;
    for (const std::size_t f : features) names.push_back("feature " + to_text(f));
    const Matrix of_all_words = columns(product, features);
    show("word_products", of_all_words, words.tokens, names);
    const Matrix gates_of_lord = xt::view(activated_gate, xt::range(lord, lord + 1), xt::all());
    const auto closed = std::count_if(gates_of_lord.begin(), gates_of_lord.end(),
                                      [](Real gate) { return std::abs(gate) < Real(0.3); });
    show("features of LORD with |" + name + "| below 0.3", closed);
    plot("words", {Heatmap{name + " * up", "", "", of_all_words, names, words.tokens}});
}

}  // namespace llm
