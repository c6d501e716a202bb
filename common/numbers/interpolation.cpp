#include "common/numbers/interpolation.hpp"

#include <algorithm>
#include <cmath>

namespace llm {
namespace {

// The weight of a point at this distance.
double keys_kernel(double distance) {
    const double x = std::abs(distance), a = -0.75;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

}  // namespace

Matrix cubic_weights(std::size_t from, std::size_t to) {
    Matrix weights = xt::zeros<Real>({to, from});
    for (std::size_t i = 0; i < to; ++i) {
        // A point is a pixel of width 1: the center of the first one is at 0.5.
        const double center = (double(i) + 0.5) * double(from) / double(to) - 0.5;
        for (int tap = -1; tap <= 2; ++tap) {
            const double point = std::floor(center) + tap;
            const double inside = std::clamp(point, 0.0, double(from - 1));
            weights(i, std::size_t(inside)) += Real(keys_kernel(center - point));
        }
    }
    return weights;
}

}  // namespace llm
