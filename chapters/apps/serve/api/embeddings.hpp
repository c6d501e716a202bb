// The body of a POST to /v1/embeddings as OpenAI defines it, and the answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm::serve {

// What a request is checked against, and how its texts become tokens.
struct EmbeddingModel {
    std::string name;
    const Tokenizer& tokenizer;
    std::size_t vocab_size = 0;  // V
    std::size_t dimensions = 0;  // C
    std::size_t max_tokens = 0;  // of a text, with special tokens
    // Whether the first numbers of a vector are a vector, too. Source: "Matryoshka
    // Representation Learning" (Kusupati et al., 2022).
    bool matryoshka = false;
};

struct EmbeddingRequest {
    std::vector<std::vector<Id>> texts;  // with special tokens, unless the client sent tokens
    std::size_t dimensions = 0;          // at most those of the model
    bool base64 = false;                 // each vector as the bytes of its float32

    std::size_t num_tokens() const;
};

inline constexpr std::size_t max_inputs = 2048;  // of a request, as OpenAI's

// Throws ApiError: 400, which names the field, if the body is no JSON object or if a field is
// wrong, unknown or asks for what is not supported; 404 for another model. A text that is too
// long is an error: it is not truncated.
EmbeddingRequest parse_embedding_request(std::string_view body, const EmbeddingModel& model);

// The answer. With fewer dimensions, the vectors are cut and have length 1 again. Throws
// ApiError 500 if a number is not finite.
std::string embeddings_json(const EmbeddingModel& model, const EmbeddingRequest& request,
                            const Matrix& vectors);  // (N, C)

// Source: RFC 4648, section 4.
std::string base64(std::string_view bytes);

}  // namespace llm::serve
