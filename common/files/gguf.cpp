#include "common/files/gguf.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "common/files/gguf_format.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {
using namespace gguf;

namespace {

// What a value is, in error messages.
std::string kind_of(const GgufValue& value) {
    static const std::array<std::string, 8> kinds = {"a boolean",
                                                     "an integer",
                                                     "a number",
                                                     "a text",
                                                     "an array of booleans",
                                                     "an array of integers",
                                                     "an array of numbers",
                                                     "an array of texts"};
    return kinds[value.index()];
}

}  // namespace

void Gguf::reject(const std::string& reason) const {
    throw FileError(fmt::format("{}: {}", path().string(), reason));
}

const GgufValue& Gguf::value(const std::string& key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) reject(key + " is missing");
    read_.insert(key);
    return found->second;
}

template <class T>
const T& Gguf::value_of_type(const std::string& key) const {
    const GgufValue& found = value(key);
    if (!std::holds_alternative<T>(found))
        reject(fmt::format("{} must be {}, not {}", key, kind_of(T()), kind_of(found)));
    return std::get<T>(found);
}

bool Gguf::boolean(const std::string& key) const { return value_of_type<bool>(key); }
std::int64_t Gguf::integer(const std::string& key) const {
    return value_of_type<std::int64_t>(key);
}
const std::string& Gguf::text(const std::string& key) const {
    return value_of_type<std::string>(key);
}
const std::vector<std::string>& Gguf::texts(const std::string& key) const {
    return value_of_type<std::vector<std::string>>(key);
}
const std::vector<std::int64_t>& Gguf::integers(const std::string& key) const {
    return value_of_type<std::vector<std::int64_t>>(key);
}
const std::vector<double>& Gguf::numbers(const std::string& key) const {
    return value_of_type<std::vector<double>>(key);
}

std::vector<bool> Gguf::flags(const std::string& key) const {
    if (!std::holds_alternative<std::vector<std::int64_t>>(value(key)))
        return value_of_type<std::vector<bool>>(key);
    std::vector<bool> flags;
    for (const std::int64_t number : integers(key)) flags.push_back(number != 0);
    return flags;
}

std::size_t Gguf::size(const std::string& key) const {
    const std::int64_t number = integer(key);
    if (number < 1 || number > 1 << 24)
        reject(fmt::format("{} must be an integer from 1 to 16777216, not {}", key, number));
    return static_cast<std::size_t>(number);
}

void Gguf::reject_unread(const std::string& prefix,
                         const std::set<std::string>& may_be_unread) const {
    const auto has_no_effect = [](const auto& value) {
        if constexpr (requires { value.empty(); })
            return value.empty();
        else
            return value == 0;
    };
    for (const auto& [key, value] : metadata_)
        if (key.starts_with(prefix) && !read_.contains(key) &&
            !may_be_unread.contains(key.substr(prefix.size())) &&
            !std::visit(has_no_effect, value))
            reject(key + " is not supported: nothing reads it");
}

std::optional<double> Gguf::any_number(const std::string& key) const {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return std::nullopt;
    return std::visit(
        [](const auto& value) -> std::optional<double> {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>)
                return double(value);
            else
                return std::nullopt;
        },
        found->second);
}

double Gguf::number(const std::string& key) const {
    if (const auto* integer = std::get_if<std::int64_t>(&value(key)))
        return static_cast<double>(*integer);
    const double number = value_of_type<double>(key);
    if (!std::isfinite(number)) reject(key + " must be a finite number");
    return number;
}

namespace {

std::string unreadable(const std::string& tensor, const std::string& type) {
    return fmt::format(
        "tensor {} is of type {}; F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q6_K and MXFP4 can "
        "be read",
        tensor, type);
}

}  // namespace

const GgufTensor& Gguf::tensor(const std::string& name) const {
    if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
    if (const auto other = other_types_.find(name); other != other_types_.end())
        reject(unreadable(name, other->second));
    reject(fmt::format("tensor {} is missing", name));
}

void Gguf::reject_other_types() const {
    for (const auto& [name, type] : other_types_) reject(unreadable(name, type));
}

namespace {

// llama.cpp leaves out leading sizes of 1: it stores a matrix of one row as a vector.
std::span<const std::size_t> without_leading_ones(std::span<const std::size_t> shape) {
    while (shape.size() > 1 && shape[0] == 1) shape = shape.subspan(1);
    return shape;
}

}  // namespace

void Gguf::check(const std::string& name, std::span<const std::size_t> shape) const {
    const std::span<const std::size_t> expected = without_leading_ones(shape);
    const std::span<const std::size_t> actual = without_leading_ones(tensor(name).shape);
    if (!std::equal(expected.begin(), expected.end(), actual.begin(), actual.end()))
        reject(fmt::format("tensor {} should have the shape {}, it has {}", name,
                           to_text(shape), to_text(tensor(name).shape)));
}

void Gguf::dequantize(const std::string& name, std::span<Real> elements) const {
    const GgufTensor& stored = tensor(name);
    const std::size_t in_features = stored.shape.back();
    const std::size_t row_size = bytes_per_row(stored.dtype, in_features);
    for (std::size_t row = 0; row < elements.size() / in_features; ++row)
        dequantize_row(stored.dtype, stored.bytes.subspan(row * row_size, row_size),
                       elements.subspan(row * in_features, in_features));
    check_finite(name, elements);
    file_.forget(stored.bytes);
}

void Gguf::check_finite(const std::string& name, std::span<const Real> elements) const {
    for (const Real element : elements)
        if (!std::isfinite(element))
            reject(fmt::format("tensor {} has an element that is not finite", name));
}

std::shared_ptr<const std::byte> Gguf::read_bytes(const std::string& name,
                                                  std::size_t out_features,
                                                  std::size_t in_features) const {
    check(name, std::array{out_features, in_features});
    const GgufTensor& stored = tensor(name);
    const std::size_t row_size = bytes_per_row(stored.dtype, in_features);
    std::vector<Real> elements(in_features);
    for (std::size_t row = 0; row < out_features; ++row) {
        dequantize_row(stored.dtype, stored.bytes.subspan(row * row_size, row_size), elements);
        check_finite(name, elements);
    }
    const std::shared_ptr<std::byte> bytes = allocate_bytes(stored.bytes.size());
    std::ranges::copy(stored.bytes, bytes.get());
    file_.forget(stored.bytes);
    return bytes;
}

bool is_gguf(const std::filesystem::path& file) {
    if (!is_file(file)) return false;
    std::ifstream stream(file, std::ios::binary);
    std::array<char, magic.size()> first{};
    return stream.read(first.data(), first.size()) && first == magic;
}

}  // namespace llm
