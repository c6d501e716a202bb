#include "common/files/gguf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "common/numbers/ceil_div.hpp"
#include "common/tensors/block_types.hpp"

namespace llm {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little endian");

// The numbers that stand for the types of metadata. Source: ggml's gguf.h.
enum class ValueType : std::uint32_t {
    uint8,
    int8,
    uint16,
    int16,
    uint32,
    int32,
    float32,
    boolean,
    text,
    array,
    uint64,
    int64,
    float64
};

// The numbers that stand for the types of tensors, and ggml's names of those that cannot be
// read. Source: ggml.h.
const std::map<std::uint32_t, DType> dtypes = {
    {0, DType::float32}, {1, DType::float16}, {2, DType::q4_0},  {6, DType::q5_0},
    {8, DType::q8_0},    {12, DType::q4_k},   {14, DType::q6_k}, {30, DType::bfloat16}};
const std::map<std::uint32_t, std::string> other_dtypes = {
    {3, "Q4_1"},        {4, "Q4_2"},     {5, "Q4_3"},   {7, "Q5_1"},        {9, "Q8_1"},
    {10, "Q2_K"},       {11, "Q3_K"},    {13, "Q5_K"},  {15, "Q8_K"},       {16, "IQ2_XXS"},
    {17, "IQ2_XS"},     {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"},     {21, "IQ3_S"},
    {22, "IQ2_S"},      {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},        {26, "I32"},
    {27, "I64"},        {28, "F64"},     {29, "IQ1_M"}, {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"},   {34, "TQ1_0"},   {35, "TQ2_0"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"},
    {38, "IQ4_NL_8_8"}, {39, "MXFP4"},   {40, "NVFP4"}};

constexpr std::array<char, 4> magic = {'G', 'G', 'U', 'F'};
constexpr std::size_t default_alignment = 32;

// ggml's name of a tensor's type.
std::string type_name(std::uint32_t type) {
    const auto found = other_dtypes.find(type);
    return found == other_dtypes.end() ? fmt::format("number {}", type) : found->second;
}

// The next multiple of the default alignment.
std::size_t padded(std::size_t size) {
    return ceil_div(size, default_alignment) * default_alignment;
}

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

// Reads the header of a file sequentially.
class HeaderReader {
 public:
    explicit HeaderReader(const MappedFile& file) : file_(file) {}

    std::size_t position() const { return position_; }

    // What is read: the key of a value or the name of a tensor, in error messages.
    void begin(const std::string& item) { item_ = item; }

    [[noreturn]] void reject(const std::string& problem) const {
        throw FileError(fmt::format("{}: {} {}", file_.path().string(), item_, problem));
    }

    std::span<const std::byte> take(std::uint64_t size) {
        if (size > rest()) reject("exceeds the end of the file");
        const auto bytes = file_.bytes().subspan(position_, static_cast<std::size_t>(size));
        position_ += bytes.size();
        return bytes;
    }

    template <class T>
    T next() {
        T number;
        std::memcpy(&number, take(sizeof number).data(), sizeof number);
        return number;
    }

    std::string next_text() {
        const std::span<const std::byte> bytes = take(next<std::uint64_t>());
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    bool next_boolean() {
        const auto byte = next<std::uint8_t>();
        if (byte > 1) reject("must be a boolean, 0 or 1, not " + to_text(int(byte)));
        return byte == 1;
    }

    template <class T>
    std::int64_t next_integer() {
        const T number = next<T>();
        if (!std::in_range<std::int64_t>(number))
            reject(fmt::format("is {}; integers above 2^63 - 1 cannot be read", number));
        return static_cast<std::int64_t>(number);
    }

    GgufValue next_value() {
        const ValueType type = next_type();
        if (type != ValueType::array) return next_scalar(type);
        const ValueType element_type = next_type();
        const auto count = next<std::uint64_t>();
        if (count > rest()) reject("exceeds the end of the file");
        switch (element_type) {
            case ValueType::array:
                reject("is an array of arrays, which cannot be read");
            case ValueType::boolean:
                return next_values<bool>(element_type, count);
            case ValueType::text:
                return next_values<std::string>(element_type, count);
            case ValueType::float32:
            case ValueType::float64:
                return next_values<double>(element_type, count);
            default:
                return next_values<std::int64_t>(element_type, count);
        }
    }

 private:
    const MappedFile& file_;
    std::size_t position_ = 0;
    std::string item_ = "the header";

    std::size_t rest() const { return file_.bytes().size() - position_; }

    ValueType next_type() {
        const auto number = next<std::uint32_t>();
        if (number > static_cast<std::uint32_t>(ValueType::float64))
            reject(fmt::format("has the unknown type {}", number));
        return static_cast<ValueType>(number);
    }

    GgufValue next_scalar(ValueType type) {
        switch (type) {
            case ValueType::uint8:
                return next_integer<std::uint8_t>();
            case ValueType::int8:
                return next_integer<std::int8_t>();
            case ValueType::uint16:
                return next_integer<std::uint16_t>();
            case ValueType::int16:
                return next_integer<std::int16_t>();
            case ValueType::uint32:
                return next_integer<std::uint32_t>();
            case ValueType::int32:
                return next_integer<std::int32_t>();
            case ValueType::uint64:
                return next_integer<std::uint64_t>();
            case ValueType::int64:
                return next_integer<std::int64_t>();
            case ValueType::float32:
                return static_cast<double>(next<float>());
            case ValueType::float64:
                return next<double>();
            case ValueType::boolean:
                return next_boolean();
            default:
                return next_text();
        }
    }

    template <class T>
    std::vector<T> next_values(ValueType type, std::uint64_t count) {
        std::vector<T> values;
        for (std::uint64_t i = 0; i < count; ++i)
            values.push_back(std::get<T>(next_scalar(type)));
        return values;
    }
};

std::map<std::string, GgufValue> next_metadata(HeaderReader& reader, std::uint64_t num_keys) {
    std::map<std::string, GgufValue> metadata;
    for (std::uint64_t i = 0; i < num_keys; ++i) {
        reader.begin("a key of the metadata");
        const std::string key = reader.next_text();
        if (key.empty()) reader.reject("is empty");
        reader.begin(key);
        if (!metadata.emplace(key, reader.next_value()).second) reader.reject("occurs twice");
    }
    return metadata;
}

// The entry of a tensor in the header.
struct TensorEntry {
    std::string name;
    std::vector<std::size_t> shape;  // row-major
    std::uint32_t type;
    std::uint64_t offset;  // of its bytes in the data
};

TensorEntry next_tensor(HeaderReader& reader) {
    reader.begin("the name of a tensor");
    TensorEntry entry{reader.next_text(), {}, 0, 0};
    reader.begin("tensor " + entry.name);
    const auto rank = reader.next<std::uint32_t>();
    if (rank < 1 || rank > 4)
        reader.reject(fmt::format("has {} dimensions; 1 to 4 are supported", rank));
    std::uint64_t count = 1;
    for (std::uint32_t axis = 0; axis < rank; ++axis) {
        const auto size = reader.next<std::uint64_t>();
        if (size == 0) reader.reject("has a dimension of size 0");
        if (__builtin_mul_overflow(count, size, &count) ||
            count > std::numeric_limits<std::size_t>::max() / sizeof(Real))
            reader.reject("has more elements than memory can hold");
        entry.shape.insert(entry.shape.begin(), static_cast<std::size_t>(size));
    }
    entry.type = reader.next<std::uint32_t>();
    entry.offset = reader.next<std::uint64_t>();
    return entry;
}

// The bytes of a tensor whose type is a DType. They must lie within the data.
GgufTensor locate(const HeaderReader& reader, const TensorEntry& entry,
                  std::span<const std::byte> data) try {
    const DType dtype = dtypes.at(entry.type);
    const std::size_t in_features = entry.shape.back();
    const std::size_t size =
        element_count(entry.shape) / in_features * bytes_per_row(dtype, in_features);
    if (entry.offset > data.size() || size > data.size() - entry.offset)
        reader.reject(fmt::format("claims {} bytes from byte {} of {} bytes of data", size,
                                  entry.offset, data.size()));
    return {dtype, entry.shape, data.subspan(static_cast<std::size_t>(entry.offset), size)};
} catch (const ValueError& error) {
    reader.reject(fmt::format("cannot be read: {}", error.what()));
}

// The bytes from a position on, which may lie after the end.
std::span<const std::byte> rest_from(std::span<const std::byte> bytes, std::uint64_t begin) {
    return begin < bytes.size() ? bytes.subspan(static_cast<std::size_t>(begin))
                                : std::span<const std::byte>();
}

// Reads the magic bytes and the version.
void check_format(HeaderReader& reader) {
    if (std::memcmp(reader.take(magic.size()).data(), magic.data(), magic.size()) != 0)
        reader.reject("is not that of a GGUF file");
    const auto version = reader.next<std::uint32_t>();
    if (version == 2u << 24 || version == 3u << 24)
        reader.reject("is that of a big-endian GGUF file, which cannot be read");
    if (version != 2 && version != 3)
        reader.reject(fmt::format("is of version {} of GGUF; 2 and 3 can be read", version));
}

void reject_overlaps(HeaderReader& reader, const std::map<std::string, GgufTensor>& tensors) {
    std::map<const std::byte*, std::string> names;  // by the first byte of a tensor
    for (const auto& [name, tensor] : tensors) {
        reader.begin("tensor " + name);
        const auto [at, is_new] = names.emplace(tensor.bytes.data(), name);
        if (!is_new) reader.reject("overlaps tensor " + at->second);
    }
    const std::byte* last_end = nullptr;
    for (const auto& [begin, name] : names) {
        reader.begin("tensor " + name);
        if (begin < last_end) reader.reject("overlaps another tensor");
        const std::span<const std::byte> bytes = tensors.at(name).bytes;
        last_end = bytes.data() + bytes.size();
    }
}

}  // namespace

Gguf::Gguf(const std::filesystem::path& file) : file_(file) {
    HeaderReader reader(file_);
    check_format(reader);
    const auto num_tensors = reader.next<std::uint64_t>();
    const auto num_keys = reader.next<std::uint64_t>();
    metadata_ = next_metadata(reader, num_keys);
    if (has("split.count") && integer("split.count") > 1)
        reject("this is one of " + std::to_string(integer("split.count")) +
               " parts of a model; llama-gguf-split --merge joins them");
    std::vector<TensorEntry> entries;
    for (std::uint64_t i = 0; i < num_tensors; ++i) entries.push_back(next_tensor(reader));

    // The data and each tensor in it begin at a multiple of the alignment.
    const std::uint64_t multiple = alignment();
    const std::uint64_t begin = ceil_div<std::uint64_t>(reader.position(), multiple) * multiple;
    const std::span<const std::byte> data = rest_from(file_.bytes(), begin);
    for (const TensorEntry& entry : entries) {
        reader.begin("tensor " + entry.name);
        if (has_tensor(entry.name)) reader.reject("occurs twice");
        if (entry.offset % multiple != 0)
            reader.reject(fmt::format("begins at byte {} of the data, not at a multiple of {}",
                                      entry.offset, multiple));
        if (dtypes.contains(entry.type))
            tensors_.emplace(entry.name, locate(reader, entry, data));
        else
            other_types_.emplace(entry.name, type_name(entry.type));
    }
    reject_overlaps(reader, tensors_);
}

std::uint64_t Gguf::alignment() const {
    const std::string key = "general.alignment";
    if (!has(key)) return default_alignment;
    const std::int64_t bytes = integer(key);
    if (bytes < 1 || bytes > 1 << 30 || !std::has_single_bit(std::uint64_t(bytes)))
        reject(fmt::format("{} must be a power of two up to 2^30, not {}", key, bytes));
    return static_cast<std::uint64_t>(bytes);
}

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
        "tensor {} is of type {}; F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K and Q6_K can be read",
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

namespace {

// The bytes of a header.
class HeaderWriter {
 public:
    const std::string& bytes() const { return bytes_; }

    template <class T>
    void number(T number) {
        bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    void type(ValueType type) { number(static_cast<std::uint32_t>(type)); }
    void text(const std::string& text) {
        number(std::uint64_t{text.size()});
        bytes_ += text;
    }
    void pad() { bytes_.resize(padded(bytes_.size())); }

    // Appends the type of a value and the value.
    void value(bool value) {
        type(ValueType::boolean);
        number(std::uint8_t{value});
    }
    void value(std::int64_t value) {
        const bool fits = std::in_range<std::uint32_t>(value);
        type(fits ? ValueType::uint32 : ValueType::int64);
        fits ? number(static_cast<std::uint32_t>(value)) : number(value);
    }
    void value(double value) {
        type(ValueType::float32);
        number(static_cast<float>(value));
    }
    void value(const std::string& value) {
        type(ValueType::text);
        text(value);
    }
    void value(const std::vector<bool>& values) {
        array(ValueType::boolean, values.size());
        for (const bool value : values) number(std::uint8_t{value});
    }
    void value(const std::vector<std::int64_t>& values) {
        const bool fit = std::all_of(values.begin(), values.end(),
                                     std::in_range<std::int32_t, std::int64_t>);
        array(fit ? ValueType::int32 : ValueType::int64, values.size());
        for (const std::int64_t value : values)
            fit ? number(static_cast<std::int32_t>(value)) : number(value);
    }
    void value(const std::vector<double>& values) {
        array(ValueType::float32, values.size());
        for (const double value : values) number(static_cast<float>(value));
    }
    void value(const std::vector<std::string>& values) {
        array(ValueType::text, values.size());
        for (const std::string& value : values) text(value);
    }

 private:
    std::string bytes_;

    void array(ValueType element_type, std::size_t count) {
        type(ValueType::array);
        type(element_type);
        number(std::uint64_t{count});
    }
};

// The number of a tensor's type. Throws ValueError if there is none, or if the bytes do not
// match the shape.
std::uint32_t checked_type(const std::string& name, const GgufTensor& tensor) {
    const auto& [dtype, shape, bytes] = tensor;
    const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& numbered) {
        return numbered.second == tensor.dtype;
    });
    require(!shape.empty() && shape.size() <= 4 && element_count(shape) > 0,
            "tensor {} of shape {} must have 1 to 4 dimensions and no size of 0", name, shape);
    const std::size_t in_features = shape.back();
    const std::size_t size =
        element_count(shape) / in_features * bytes_per_row(dtype, in_features);
    require(bytes.size() == size, "tensor {} of shape {} and type {} has {} bytes, not {}",
            name, shape, to_text(dtype), bytes.size(), size);
    return found->first;
}

// The header up to the data.
std::string header_of(const GgufMetadata& metadata,
                      const std::vector<NamedGgufTensor>& tensors) {
    HeaderWriter header;
    for (const char letter : magic) header.number(letter);
    header.number(std::uint32_t{3});
    header.number(std::uint64_t{tensors.size()});
    header.number(std::uint64_t{metadata.size()});
    for (const auto& [key, value] : metadata) {
        header.text(key);
        std::visit([&](const auto& held) { header.value(held); }, value);
    }
    std::uint64_t offset = 0;
    for (const auto& [name, tensor] : tensors) {
        const std::uint32_t type = checked_type(name, tensor);
        header.text(name);
        header.number(static_cast<std::uint32_t>(tensor.shape.size()));
        for (std::size_t axis = tensor.shape.size(); axis-- > 0;)
            header.number(std::uint64_t{tensor.shape[axis]});
        header.number(type);
        header.number(offset);
        offset += padded(tensor.bytes.size());
    }
    header.pad();
    return header.bytes();
}

}  // namespace

void write_gguf(const std::filesystem::path& file, const GgufMetadata& metadata,
                const std::vector<NamedGgufTensor>& tensors) try {
    const std::string header = header_of(metadata, tensors);
    write_file(file, [&](std::ostream& stream) {
        stream << header;
        for (const auto& [name, tensor] : tensors) {
            const std::size_t size = tensor.bytes.size();
            stream.write(reinterpret_cast<const char*>(tensor.bytes.data()),
                         static_cast<std::streamsize>(size));
            stream << std::string(padded(size) - size, '\0');
        }
    });
} catch (const ValueError& error) {
    throw FileError(fmt::format("{}: {}", file.string(), error.what()));
}

}  // namespace llm
