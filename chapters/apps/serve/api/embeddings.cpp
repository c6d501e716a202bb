#include "chapters/apps/serve/api/embeddings.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/apps/serve/api/api_error.hpp"
#include "chapters/apps/serve/api/openai_request.hpp"
#include "chapters/apps/serve/api/token_fields.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm::serve {
namespace {

void check_lengths(const EmbeddingRequest& request, const EmbeddingModel& model) {
    for (std::size_t n = 0; n < request.texts.size(); ++n)
        if (const std::size_t length = request.texts[n].size(); length > model.max_tokens)
            throw invalid_request("input[" + std::to_string(n) + "] has " +
                                      std::to_string(length) + " tokens, at most " +
                                      std::to_string(model.max_tokens) +
                                      " are allowed; texts are not truncated",
                                  "input", "context_length_exceeded");
}

std::size_t read_dimensions(RequestFields& fields, const EmbeddingModel& model) {
    const auto given = fields.integer("dimensions", 1, std::int64_t(model.dimensions));
    const std::size_t dimensions = given ? std::size_t(*given) : model.dimensions;
    if (dimensions != model.dimensions && !model.matryoshka)
        throw invalid_request(
            "dimensions must be " + std::to_string(model.dimensions) +
                ": the beginning of a vector is only useful if the model was trained for it "
                "(Matryoshka); the server's option --matryoshka says so",
            "dimensions", "unsupported_parameter");
    return dimensions;
}

bool reads_base64(RequestFields& fields) {
    if (!fields.find("encoding_format")) return false;
    const std::string format = fields.text("encoding_format");
    if (format != "float" && format != "base64")
        throw invalid_request("encoding_format must be float or base64, not " + format,
                              "encoding_format");
    return format == "base64";
}

// The first numbers of each row, with length 1.
Matrix with_dimensions(const Matrix& vectors, std::size_t dimensions) {
    if (dimensions == vectors.shape(1)) return vectors;
    const Matrix beginning = xt::view(vectors, xt::all(), xt::range(0, dimensions));
    return l2_normalize(beginning);
}

// The float32 bytes of a row, the lowest first (those of the machine: all that run this do so).
std::string bytes_of(const Matrix& vectors, std::size_t n) {
    std::string bytes;
    for (std::size_t c = 0; c < vectors.shape(1); ++c) {
        const float value = vectors(n, c);
        char four[sizeof value];
        std::memcpy(four, &value, sizeof value);
        bytes.append(four, sizeof value);
    }
    return bytes;
}

// The shortest digits that give the same float32.
std::string array_of(const Matrix& vectors, std::size_t n) {
    std::string text;
    for (std::size_t c = 0; c < vectors.shape(1); ++c)
        text += (c ? "," : "[") + round_trip(float(vectors(n, c)));
    return text + "]";
}

}  // namespace

std::size_t EmbeddingRequest::num_tokens() const {
    std::size_t sum = 0;
    for (const std::vector<Id>& text : texts) sum += text.size();
    return sum;
}

EmbeddingRequest parse_embedding_request(std::string_view body,
                                         const EmbeddingModel& model) try {
    const Json object = parse_body(body);
    RequestFields fields(object);
    read_model(fields, model.name);
    const auto encode = [&](const std::string& text) {
        if (text.empty()) throw invalid_request("input must not be an empty string", "input");
        return model.tokenizer.encode(text);
    };
    EmbeddingRequest request;
    request.texts = read_tokens(fields, {"input", max_inputs, model.vocab_size, encode});
    request.dimensions = read_dimensions(fields, model);
    request.base64 = reads_base64(fields);
    fields.allow_label("user");
    fields.reject_unread();
    check_lengths(request, model);
    return request;
} catch (const TextError& error) {
    throw invalid_request(error.what(), "input");
}

std::string embeddings_json(const EmbeddingModel& model, const EmbeddingRequest& request,
                            const Matrix& vectors) {
    for (const Real value : vectors)
        if (!std::isfinite(value))
            throw ApiError(500, "server_error", "a vector has a number that is not finite");
    const Matrix rows = with_dimensions(vectors, request.dimensions);
    std::string data;
    for (std::size_t n = 0; n < rows.shape(0); ++n)
        data += (n ? "," : "") + std::string(R"({"object":"embedding","index":)") +
                std::to_string(n) + R"(,"embedding":)" +
                (request.base64 ? '"' + base64(bytes_of(rows, n)) + '"' : array_of(rows, n)) +
                "}";
    const std::string count = std::to_string(request.num_tokens());
    return R"({"object":"list","data":[)" + data + R"(],"model":)" +
           json_text(Json(model.name)) + R"(,"usage":{"prompt_tokens":)" + count +
           R"(,"total_tokens":)" + count + "}}";
}

std::string base64(std::string_view bytes) {
    static constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        // Three bytes are four digits of six bits; "=" stands for missing bytes.
        const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
        std::uint32_t bits = 0;
        for (std::size_t k = 0; k < 3; ++k)
            bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
        for (std::size_t k = 0; k < 4; ++k)
            text += k > count ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    return text;
}

}  // namespace llm::serve
