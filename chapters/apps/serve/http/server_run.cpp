#include "chapters/apps/serve/http/server_run.hpp"

#include <algorithm>
#include <thread>

#include "chapters/apps/serve/http/handlers.hpp"
#include "chapters/apps/serve/http/header_values.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"

namespace llm::serve {
namespace {

void sleep_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Accepts no connection and no request any more. What runs may finish within some seconds; what
// has not is canceled.
void stop(httplib::Server& server, RequestLoop& loop, std::size_t seconds) {
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
AccessRules access_rules(const ServerSettings& settings, const ListeningAddress& address) {
    AccessRules rules{settings.api_key, {}, settings.origins, settings.http.max_body_bytes};
    if (!address.is_loopback || !settings.api_key.empty()) return rules;
    rules.hosts = {"localhost", "127.0.0.1", "[::1]"};
    const std::string host = host_name(url_host(settings.host));
    if (!std::ranges::count(rules.hosts, host)) rules.hosts.push_back(host);
    return rules;
}

void print_address(const std::string& model, const std::string& host, int port) {
    const std::string end = ":" + to_text(port), url = "http://" + url_host(host) + end;
    note("Serving " + model + " at " + url + "  (Ctrl-C ends)");
    note("OpenAI's clients need the base URL " + url + "/v1");
    if (host == "0.0.0.0" || host == "::")
        note("Other machines use the name of this one instead of " + url_host(host));
}

RequestLoop& loop_of(const std::variant<TextGeneration, TextEmbedding>& served) {
    return std::visit([](const auto& what) -> RequestLoop& { return what.loop; }, served);
}

}  // namespace

void run_server(const ServerSettings& settings,
                const std::variant<TextGeneration, TextEmbedding>& served, Metrics& metrics,
                const std::string& page) {
    ConnectionPool connections(settings.http.max_connections);
    httplib::Server server;
    set_limits(server, settings.http, connections);
    const ListeningAddress address = bind_server(server, settings.host, int(settings.port));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const HandlerContext context{served,
                                 metrics,
                                 connections,
                                 page,
                                 access_rules(settings, address),
                                 std::chrono::seconds(settings.time_limit),
                                 settings.seed,
                                 std::chrono::duration_cast<std::chrono::seconds>(now).count()};
    add_endpoints(server, context);

    const InterruptHandler handler;
    std::thread listener([&] { server.listen_after_bind(); });
    print_address(context.model_name(), settings.host, address.port);
    while (!InterruptHandler::interrupted()) {
        sleep_briefly();
        connections.make_room();
    }
    stop(server, loop_of(served), settings.stop_seconds);
    listener.join();
}

}  // namespace llm::serve
