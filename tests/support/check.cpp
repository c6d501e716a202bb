#include "tests/support/check.hpp"

#include <cmath>

#include <fmt/format.h>

#include "common/tensors/tensor_io.hpp"

namespace llm {
namespace {

std::string index_text(std::size_t flat, std::span<const std::size_t> shape) {
    std::vector<std::size_t> index(shape.size());
    for (std::size_t axis = shape.size(); axis-- > 0; flat /= shape[axis])
        index[axis] = flat % shape[axis];
    return to_text(index);
}

std::string value_text(Real value) {
    return std::isnan(value) ? "NaN" : fmt::format("{:.7g}", value);
}

template <class T, std::size_t N>
xt::xtensor<T, N> load(const std::string& file) {
    const xt::xarray<T> array = xt::load_npy<T>(file);
    if (array.dimension() != N)
        throw std::runtime_error(fmt::format("{} has {} dimensions, the test expects {}", file,
                                             array.dimension(), N));
    return array;
}

}  // namespace

std::string difference(std::span<const std::size_t> actual_shape, const Real* actual,
                       std::span<const std::size_t> expected_shape, const Real* expected,
                       double tolerance) {
    if (!std::ranges::equal(actual_shape, expected_shape))
        return fmt::format("shape {}, expected {}", to_text(actual_shape),
                           to_text(expected_shape));
    const std::size_t count = element_count(actual_shape);
    double scale = 1;
    for (std::size_t i = 0; i < count; ++i)
        if (std::isfinite(expected[i])) scale = std::max(scale, std::abs(double{expected[i]}));

    // The distance of NaN from any value is infinite.
    const double allowed = tolerance * scale;
    std::size_t worst = 0, num_wrong = 0;
    double largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (actual[i] == expected[i]) continue;
        const double gap = std::abs(double{actual[i]} - double{expected[i]});
        const double distance = std::isnan(gap) ? double{infinity} : gap;
        if (distance > largest) largest = distance, worst = i;
        if (distance > allowed) ++num_wrong;
    }
    if (num_wrong == 0) return {};
    const bool is_vector = actual_shape.size() == 1;  // "element 1 of 3", not (1,) of (3,)
    return fmt::format(
        "worst element {} of {}, {} wrong: got {}, expected {} (largest difference {:.3g}, "
        "allowed {:.3g})",
        is_vector ? to_text(worst) : index_text(worst, actual_shape),
        is_vector ? to_text(count) : to_text(actual_shape), num_wrong,
        value_text(actual[worst]), value_text(expected[worst]), largest, allowed);
}

void check_difference(const std::string& difference, const char* expression,
                      const CheckLocation& location) {
    const auto [file, line, type] = location;
    if (difference.empty())
        CHECK(difference.empty());  // counts as an assertion
    else if (type == doctest::assertType::is_check)
        ADD_FAIL_CHECK_AT(file, line, expression, "\n", difference);
    else
        ADD_FAIL_AT(file, line, expression, "\n", difference);
}

std::string fixture_path(const std::string& name) {
    return fmt::format("{}/{}", LLM_FIXTURES_FOLDER, name);
}

std::string fixture_file(const std::string& name) { return fixture_path(name) + ".npy"; }

template <std::size_t N>
xt::xtensor<Real, N> load_tensor(const std::string& file) {
    return load<float, N>(file);
}
template <std::size_t N>
xt::xtensor<Id, N> load_ids(const std::string& file) {
    return load<Id, N>(file);
}

template Vector load_tensor<1>(const std::string&);
template Matrix load_tensor<2>(const std::string&);
template Tensor3 load_tensor<3>(const std::string&);
template Tensor4 load_tensor<4>(const std::string&);
template IdVector load_ids<1>(const std::string&);
template IdMatrix load_ids<2>(const std::string&);
template xt::xtensor<Id, 3> load_ids<3>(const std::string&);

}  // namespace llm
