// Fits of a power law with a constant.
#include <cmath>

#include "chapters/experiments/scaling_law.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

// Points of a known law, each multiplied by 1 ± noise.
std::vector<ScalingPoint> points_of(const ScalingLaw& law, std::size_t count, double noise) {
    std::vector<ScalingPoint> points;
    for (std::size_t i = 0; i < count; ++i) {
        const double compute = 1e9 * std::pow(3.0, double(i));
        points.push_back({compute, law(compute) * (i % 2 == 0 ? 1 + noise : 1 - noise)});
    }
    return points;
}

}  // namespace

TEST_CASE("fit_scaling_law finds the law that made the points") {
    for (const ScalingLaw& law :
         {ScalingLaw{0.8, 40, 0.15}, ScalingLaw{0, 12, 0.08}, ScalingLaw{1.2, 3000, 0.4}}) {
        const ScalingLaw fit = fit_scaling_law(points_of(law, 8, 0));
        CHECK(fit.irreducible_loss == doctest::Approx(law.irreducible_loss).epsilon(0.01));
        CHECK(fit.exponent == doctest::Approx(law.exponent).epsilon(0.01));
        CHECK(fit(1e14) == doctest::Approx(law(1e14)).epsilon(0.002));
        CHECK(fit_error(fit, points_of(law, 8, 0)) < 0.0005);
    }
}

TEST_CASE("fit_scaling_law: noise of one percent is found as the error of the fit") {
    const ScalingLaw law{0.8, 40, 0.15};
    const std::vector<ScalingPoint> points = points_of(law, 8, 0.01);
    CHECK(fit_error(law, points) == doctest::Approx(0.01).epsilon(0.01));
    CHECK(fit_error(fit_scaling_law(points), points) < fit_error(law, points));
    CHECK(fit_error({0.8, 44, 0.15}, points) > 0.02);
}

TEST_CASE("fit_scaling_law rejects too few points, and points that are not positive") {
    CHECK_THROWS_WITH_AS(fit_scaling_law(points_of({1, 1, 1}, 3, 0)),
                         "fit_scaling_law: 3 points are too few, 4 are needed", ValueError);
    std::vector<ScalingPoint> points = points_of({1, 10, 0.1}, 4, 0);
    points[2].loss = 0;
    CHECK_THROWS_AS(fit_scaling_law(points), ValueError);
}

TEST_CASE("training_flops: three times the forward pass, at the average position") {
    const Config config = validate_model(small_config());
    const double first = double(flops_per_token(config, 0));
    const double second = double(flops_per_token(config, 1));
    CHECK(training_flops(config, 1, 10) == 30 * first);
    CHECK(training_flops(config, 2, 10) == doctest::Approx(15 * (first + second)));
    CHECK(second > first);
}
