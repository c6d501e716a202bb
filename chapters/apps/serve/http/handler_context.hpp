// What the handlers of all requests share.
#pragma once

#include <string>
#include <variant>

#include "chapters/apps/serve/api/completion.hpp"
#include "chapters/apps/serve/api/embeddings.hpp"
#include "chapters/apps/serve/http/connections.hpp"
#include "chapters/apps/serve/http/request_checks.hpp"
#include "chapters/apps/serve/loop/embedding_loop.hpp"

namespace llm::serve {

// A model that writes texts, or an encoder, which makes vectors of them.
struct TextGeneration {
    const ApiModel& model;
    EngineLoop& loop;
};
struct TextEmbedding {
    const EmbeddingModel& model;
    EmbeddingLoop& loop;
};

// What it refers to must outlive the server.
struct HandlerContext {
    std::variant<TextGeneration, TextEmbedding> served;
    Metrics& metrics;
    ConnectionPool& connections;
    std::string page;  // at /: HTML that loads nothing else
    AccessRules rules{};
    std::chrono::seconds time_limit{120};
    std::uint32_t seed = 0;    // of requests that have none
    std::int64_t created = 0;  // when the server began, in seconds since 1970

    std::string model_name() const;
    std::size_t max_tokens() const;  // the context, or those of a text to embed
};

}  // namespace llm::serve
