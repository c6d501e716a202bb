// ./learn serve: OpenAI's API for a model of chapters 15 and 16, with the engine of chapter 21.
#include <thread>

#include "chapters/11_generation/sampling_options.hpp"
#include "chapters/23_structured_output/tool_use.hpp"
#include "chapters/apps/chat/model_options.hpp"
#include "chapters/apps/serve/http/handlers.hpp"
#include "chapters/apps/serve/http/header_values.hpp"
#include "chapters/apps/serve/http/http_server.hpp"
#include "chapters/models/load.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/ceil_div.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/options.hpp"

using namespace llm;
using namespace llm::chat;
using namespace llm::models;
using namespace llm::serve;

struct Arguments {
    ModelOptions model;
    std::string host = "127.0.0.1", api_key;
    std::vector<std::string> origins;
    std::size_t port = 8080, context_length = 2048, max_prompt_tokens = 0, num_pages = 0;
    std::size_t max_waiting = 128, time_limit = 120, stop_seconds = 5;
    EngineConfig engine;
    HttpLimits http;
    SamplingConfig sampling;
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
    options.count("--max-body-bytes", arguments.http.max_body_bytes, 1024, 1 << 26,
                  "of a request; larger ones get status 413");
    options.count("--max-connections", arguments.http.max_connections, 1, 4096,
                  "that are served at the same time; others wait");
    options.count("--time-limit", arguments.time_limit, 1, 1 << 16,
                  "seconds of a request; then its answer ends as it is");
    options.count("--stop-seconds", arguments.stop_seconds, 0, 3600,
                  "that requests have to finish after Ctrl-C");
}

void add_options(Options& options, Arguments& arguments) {
    add_model_options(options, arguments.model);
    options.count("--port", arguments.port, 0, 65535, "0: a free one");
    options.text("--host", arguments.host,
                 "the address to listen at; other machines can only "
                 "reach the server if it is not 127.0.0.1");
    options.text("--api-key", arguments.api_key,
                 "clients must send it: Authorization: Bearer KEY");
    options.list("--allow-origin", arguments.origins,
                 "of pages elsewhere that may ask, such as https://example.org; *: all");
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

void sleep_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Accepts no connection and no request any more. What runs may finish within some seconds; what
// has not is canceled.
void stop(httplib::Server& server, EngineLoop& loop, std::size_t seconds) {
    const std::size_t running = loop.stop_accepting();
    server.stop();
    const Clock::time_point end = Clock::now() + std::chrono::seconds(seconds);
    if (running > 0)
        note("Stopping: " + to_text(running) + " sequences are running; they have " +
             to_text(seconds) + " seconds.");
    while (loop.num_open() > 0 && Clock::now() < end) sleep_briefly();
    const std::size_t canceled = loop.cancel_all();
    if (running > 0)
        note(to_text(running - canceled) + " of them have ended, " + to_text(canceled) +
             " were canceled.");
    // The last bytes of their answers, then whoever is still connected.
    const Clock::time_point last = Clock::now() + std::chrono::milliseconds(300);
    while (Clock::now() < last) sleep_briefly();
    hang_up();
}

// Who may ask. Without a key, a server at a loopback address has only these names.
AccessRules access_rules(const Arguments& arguments, const ListeningAddress& address) {
    AccessRules rules{arguments.api_key, {}, arguments.origins, arguments.http.max_body_bytes};
    if (!address.is_loopback || !arguments.api_key.empty()) return rules;
    rules.hosts = {"localhost", "127.0.0.1", "[::1]"};
    const std::string host = host_name(url_host(arguments.host));
    if (!std::ranges::count(rules.hosts, host)) rules.hosts.push_back(host);
    return rules;
}

void check_access(const Options& options, Arguments& arguments) {
    require(!options.given("--api-key") || is_valid_key(arguments.api_key),
            "--api-key must be visible ASCII without spaces and %, and not empty");
    for (std::string& origin : arguments.origins) {
        origin = lower_case(origin);
        require(origin == "*" || is_origin(origin),
                "--allow-origin takes SCHEME://HOST or SCHEME://HOST:PORT, not {}",
                escaped(origin));
    }
}

void print_address(const std::string& model, const std::string& host, int port) {
    const std::string end = ":" + to_text(port), url = "http://" + url_host(host) + end;
    note("Serving " + model + " at " + url + "  (Ctrl-C ends)");
    note("OpenAI's clients need the base URL " + url + "/v1");
    if (host == "0.0.0.0" || host == "::")
        note("Other machines use the name of this one instead of " + url_host(host));
}

void run_server(Arguments arguments, const ChatModelFiles& files, std::uint32_t seed) {
    check_temperature(arguments.sampling);
    check_fast_path(files.model_path);
    const ChatModel chat = load_chat_model(files);
    const ApiModel model = api_model(arguments, files, chat);

    Metrics metrics;
    EngineLoop loop(std::get<FastModel>(chat.model), arguments.engine, arguments.max_waiting,
                    metrics);
    ConnectionPool connections(arguments.http.max_connections);
    httplib::Server server;
    set_limits(server, arguments.http, connections);
    const ListeningAddress address = bind_server(server, arguments.host, int(arguments.port));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const HandlerContext context{model,
                                 loop,
                                 metrics,
                                 connections,
                                 read_text(asset("serve/page.html")),
                                 access_rules(arguments, address),
                                 std::chrono::seconds(arguments.time_limit),
                                 seed,
                                 std::chrono::duration_cast<std::chrono::seconds>(now).count()};
    add_endpoints(server, context);

    const InterruptHandler handler;
    std::thread listener([&] { server.listen_after_bind(); });
    print_address(model.name, arguments.host, address.port);
    while (!InterruptHandler::interrupted()) {
        sleep_briefly();
        connections.make_room();
    }
    stop(server, loop, arguments.stop_seconds);
    listener.join();
}

int main(int argc, char** argv) {
    Arguments arguments;
    Options options("serve", "OpenAI's API for a model, with continuous batching");
    add_options(options, arguments);
    return options.run(argc, argv, [&] {
        check_access(options, arguments);
        run_server(arguments, chosen_files(options, arguments.model), options.seed());
    });
}
