// The activation functions that published models name, and their derivatives.
#include "chapters/models/activations.hpp"
#include "tests/support/check.hpp"

using namespace llm;
using namespace llm::models;

TEST_CASE("activations of ACT2FN: values and derivatives of PyTorch") {
    const std::vector<Real> x = {-4, -1, -0.25, 0.5, 1, 3, 7};
    struct Expected {
        std::string name;
        std::vector<Real> values, derivatives;
    };
    // PyTorch 1.13, in float64, with the formulas of transformers 4.57.
    const std::vector<Expected> all = {
        {"quick_gelu",
         {-0.004414724, -0.1542042, -0.09880035, 0.3503884, 0.8457958, 2.981929, 6.999953},
         {-0.006401887, -0.06777961, 0.2934996, 0.8792219, 1.06778, 1.024548, 1.000073}},
        {"relu2", {0, 0, 0, 0.25, 1, 9, 49}, {0, 0, 0, 1, 2, 6, 14}},
        {"relu6", {0, 0, 0, 0.5, 1, 3, 6}, {0, 0, 0, 1, 1, 1, 0}},
        {"leaky_relu", {-0.04, -0.01, -0.0025, 0.5, 1, 3, 7}, {0.01, 0.01, 0.01, 1, 1, 1, 1}},
        {"mish",
         {-0.07259174, -0.3034015, -0.129927, 0.3752452, 0.8650984, 2.986535, 6.999988},
         {-0.05377321, 0.05921676, 0.4398156, 0.8864244, 1.049036, 1.021107, 1.000022}},
        {"tanh",
         {-0.9993293, -0.7615942, -0.2449187, 0.4621172, 0.7615942, 0.9950548, 0.9999983},
         {0.001340951, 0.4199743, 0.9400148, 0.7864477, 0.4199743, 0.009866037, 3.326109e-06}},
        {"linear", {-4, -1, -0.25, 0.5, 1, 3, 7}, {1, 1, 1, 1, 1, 1, 1}},
        {"gelu_10",
         {-0.000126685, -0.1586553, -0.1003234, 0.3457312, 0.8413447, 2.99595, 7},
         {-0.0005036497, -0.08331547, 0.3046266, 0.8674951, 1.083315, 1.011946, 1}},
        {"laplace",
         {0, 7.173726e-10, 0.0003458431, 0.2314211, 0.8504296, 1, 1},
         {0, 1.578906e-08, 0.004475423, 1.080114, 0.8249458, 0, 0}}};
    for (const Expected& expected : all) {
        INFO(expected.name);
        const Activation& activation = named_activations().at(expected.name);
        CHECK(activation.name == expected.name);
        for (std::size_t i = 0; i < x.size(); ++i) {
            CHECK(std::abs(activation.function(x[i]) - expected.values[i]) < 1e-5);
            CHECK(std::abs(activation.derivative(x[i]) - expected.derivatives[i]) < 1e-5);
        }
    }
    const Activation& clipped = named_activations().at("gelu_10");
    CHECK(clipped.function(12) == 10);
    CHECK(clipped.derivative(12) == 0);
}
