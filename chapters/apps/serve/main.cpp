// ./learn serve: OpenAI's API for a model of chapters 15 and 16, with the engine of chapter 21.
#include "chapters/11_generation/sampling_options.hpp"
#include "chapters/23_structured_output/tool_use.hpp"
#include "chapters/apps/chat/model_options.hpp"
#include "chapters/apps/serve/http/header_values.hpp"
#include "chapters/apps/serve/http/server_run.hpp"
#include "chapters/models/encoders/text_encoder.hpp"
#include "chapters/models/load.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/ceil_div.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;
using namespace llm::chat;
using namespace llm::models;
using namespace llm::serve;

struct Arguments {
    ModelOptions model;
    ServerSettings server;
    std::size_t context_length = 2048, max_prompt_tokens = 0, num_pages = 0, max_waiting = 128;
    EngineConfig engine;
    SamplingConfig sampling;
    bool matryoshka = false;
};

// Limits of requests, of the engine and of HTTP.
void add_limit_options(Options& options, Arguments& arguments) {
    options.count("--context-length", arguments.context_length, 2, 1 << 20,
                  "tokens of a prompt and its answer, at most those of the model");
    options.count("--max-prompt-tokens", arguments.max_prompt_tokens, 0, 1 << 20,
                  "0: all of the context except one token");
    options.count(
        "--pages", arguments.num_pages, 0, 1 << 20,
        "pages of 16 tokens in the KV cache; 0: for 16 contexts, at most 8192 tokens, "
        "but at least one context");
    options.count("--max-sequences", arguments.engine.scheduler.max_sequences, 1, 256,
                  "sequences that are computed at the same time");
    options.count("--max-step-tokens", arguments.engine.scheduler.max_step_tokens, 1, 4096,
                  "tokens that are computed in one step");
    options.count("--max-waiting", arguments.max_waiting, 1, 1 << 16,
                  "sequences that may wait; then requests get status 429");
    options.count("--max-body-bytes", arguments.server.http.max_body_bytes, 1024, 1 << 26,
                  "of a request; larger ones get status 413");
    options.count("--max-connections", arguments.server.http.max_connections, 1, 4096,
                  "that are served at the same time; others wait");
    options.count("--time-limit", arguments.server.time_limit, 1, 1 << 16,
                  "seconds of a request; then its answer ends as it is");
    options.count("--stop-seconds", arguments.server.stop_seconds, 0, 3600,
                  "that requests have to finish after Ctrl-C");
}

void add_options(Options& options, Arguments& arguments) {
    add_model_options(options, arguments.model);
    options.count("--port", arguments.server.port, 0, 65535, "0: a free one");
    options.text("--host", arguments.server.host,
                 "the address to listen at; other machines can only "
                 "reach the server if it is not 127.0.0.1");
    options.text("--api-key", arguments.server.api_key,
                 "clients must send it: Authorization: Bearer KEY");
    options.list("--allow-origin", arguments.server.origins,
                 "of pages elsewhere that may ask, such as https://example.org; *: all");
    options.flag("--matryoshka", arguments.matryoshka,
                 "an encoder's vectors may be cut: it was trained so that they can be");
    add_sampling_options(options, arguments.sampling);
    add_limit_options(options, arguments);
}

// The name of a model in the API: that of its adapter, file or folder.
std::string name_of(const ChatModelFiles& files) {
    std::filesystem::path path =
        files.adapter_path.empty() ? files.model_path : files.adapter_path;
    if (path.filename().empty()) path = path.parent_path();
    return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

void check_fast_path(const std::string& path) {
    if (!has_fast_path(path))
        throw FileError(path + ": model_type " + family_of(path)->model_type +
                        " has no fast path (chapters 15 and 16), which ./learn serve needs; "
                        "./learn chat runs it");
}

// The pages of the cache: those of --pages, or else of 16 contexts, at most 8192 tokens.
std::size_t num_pages_for(const Arguments& arguments, std::size_t context_length) {
    const std::size_t page_size = arguments.engine.page_size;
    const std::size_t pages = ceil_div(context_length, page_size);
    if (arguments.num_pages == 0)
        return std::max(pages, std::min(16 * pages, 8192 / page_size));
    require(arguments.num_pages >= pages,
            "--pages must be at least {}, for a context of {} tokens", pages, context_length);
    return arguments.num_pages;
}

// Completes the settings that depend on the model.
ApiModel api_model(Arguments& arguments, const ChatModelFiles& files, const ChatModel& chat) {
    const std::size_t context_length =
        std::min(arguments.context_length, config_of(chat.model).max_position_embeddings);
    arguments.engine.num_pages = num_pages_for(arguments, context_length);
    arguments.engine.cache_dtype = dtype_named(arguments.model.cache_dtype);

    ApiModel model{name_of(files), chat.tokenizer, chat.chat_template, chat.eos_token_ids,
                   chat.bad_words};
    model.trie = make_tool_trie(model.tokenizer, chat.eos_token_ids);
    model.context_length = context_length;
    model.max_prompt_tokens = context_length - 1;
    if (arguments.max_prompt_tokens > 0)
        model.max_prompt_tokens =
            std::min(model.max_prompt_tokens, arguments.max_prompt_tokens);
    model.sampling = arguments.sampling;
    return model;
}

void check_access(const Options& options, Arguments& arguments) {
    require(!options.given("--api-key") || is_valid_key(arguments.server.api_key),
            "--api-key must be visible ASCII without spaces and %, and not empty");
    for (std::string& origin : arguments.server.origins) {
        origin = lower_case(origin);
        require(origin == "*" || is_origin(origin),
                "--allow-origin takes SCHEME://HOST or SCHEME://HOST:PORT, not {}",
                escaped(origin));
    }
}

void serve_texts(Arguments& arguments, const ChatModelFiles& files) {
    check_temperature(arguments.sampling);
    check_fast_path(files.model_path);
    const ChatModel chat = load_chat_model(files);
    const ApiModel model = api_model(arguments, files, chat);
    Metrics metrics;
    EngineLoop loop(std::get<FastModel>(chat.model), arguments.engine, arguments.max_waiting,
                    metrics);
    run_server(arguments.server, TextGeneration{model, loop}, metrics,
               read_text(asset("serve/page.html")));
}

// Options of what an encoder does not have.
void reject_options_of_texts(const Options& options, const std::string& path) {
    for (const char* name :
         {"--adapter", "--template", "--dtype", "--cache-dtype", "--max-prompt-tokens",
          "--pages", "--max-sequences", "--temperature", "--top-k", "--top-p", "--min-p",
          "--repetition-penalty"})
        require(!options.given(name), "{}: {} is an encoder, which writes no text", name, path);
}

constexpr const char* page_of_encoder =
    "<!doctype html><title>Embeddings</title><p>POST /v1/embeddings gives vectors of texts.";

void serve_vectors(const Arguments& arguments, const ChatModelFiles& files) {
    const TextEncoder encoder = load_text_encoder(files.model_path, files.tokenizer_path);
    const FastEncoder fast = make_fast_encoder(encoder.encoder);
    const EncoderFamilyConfig& config = fast.config;
    const EmbeddingModel model{name_of(files),
                               encoder.tokenizer,
                               config.vocab_size,
                               config.hidden_size,
                               std::min(encoder.max_tokens, arguments.context_length),
                               arguments.matryoshka};
    Metrics metrics;
    EmbeddingLoop loop(fast, encoder.pooling, arguments.engine.scheduler.max_step_tokens,
                       arguments.max_waiting, metrics);
    run_server(arguments.server, TextEmbedding{model, loop}, metrics, page_of_encoder);
}

int main(int argc, char** argv) {
    Arguments arguments;
    Options options("serve", "OpenAI's API for a model, with continuous batching");
    add_options(options, arguments);
    return options.run(argc, argv, [&] {
        check_access(options, arguments);
        arguments.server.seed = options.seed();
        const ChatModelFiles files = chosen_files(options, arguments.model);
        if (!find_encoder_family(files.model_path)) {
            require(!options.given("--matryoshka"), "--matryoshka is for encoders");
            return serve_texts(arguments, files);
        }
        reject_options_of_texts(options, files.model_path);
        // A text is computed as a whole, so a batch is larger than a step of a decoder.
        if (!options.given("--max-step-tokens"))
            arguments.engine.scheduler.max_step_tokens = 512;
        serve_vectors(arguments, files);
    });
}
