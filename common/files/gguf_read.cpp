#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "common/files/gguf.hpp"
#include "common/files/gguf_format.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {
using namespace gguf;

namespace {

// ggml's names of the types of tensors that cannot be read. Source: ggml.h.
const std::map<std::uint32_t, std::string> other_dtypes = {
    {3, "Q4_1"},        {4, "Q4_2"},     {5, "Q4_3"},   {7, "Q5_1"},        {9, "Q8_1"},
    {10, "Q2_K"},       {11, "Q3_K"},    {13, "Q5_K"},  {15, "Q8_K"},       {16, "IQ2_XXS"},
    {17, "IQ2_XS"},     {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"},     {21, "IQ3_S"},
    {22, "IQ2_S"},      {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},        {26, "I32"},
    {27, "I64"},        {28, "F64"},     {29, "IQ1_M"}, {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"},   {34, "TQ1_0"},   {35, "TQ2_0"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"},
    {38, "IQ4_NL_8_8"}, {40, "NVFP4"}};

// ggml's name of a tensor's type.
std::string type_name(std::uint32_t type) {
    const auto found = other_dtypes.find(type);
    return found == other_dtypes.end() ? fmt::format("number {}", type) : found->second;
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

}  // namespace llm
