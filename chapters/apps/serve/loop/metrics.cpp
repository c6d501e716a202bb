#include "chapters/apps/serve/loop/metrics.hpp"

#include "common/output/show.hpp"

namespace llm::serve {
namespace {

std::string heading(const std::string& name, const std::string& type, const std::string& help) {
    return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

std::string single(const std::string& name, const std::string& type, std::uint64_t value,
                   const std::string& help) {
    return heading(name, type, help) + name + " " + std::to_string(value) + "\n";
}

std::string histogram(const std::string& name, const Histogram& values,
                      const std::string& help) {
    std::string text = heading(name, "histogram", help);
    for (std::size_t i = 0; i < values.bounds.size(); ++i)
        text += name + "_bucket{le=\"" + round_trip(values.bounds[i]) + "\"} " +
                std::to_string(values.counts[i]) + "\n";
    const std::string count = std::to_string(values.count);
    return text + name + "_bucket{le=\"+Inf\"} " + count + "\n" + name + "_sum " +
           round_trip(values.sum) + "\n" + name + "_count " + count + "\n";
}

}  // namespace

void Histogram::observe(double value) {
    for (std::size_t i = 0; i < bounds.size(); ++i) counts[i] += value <= bounds[i];
    ++count;
    sum += value;
}

void Metrics::set_state(const EngineState& state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
}

void Metrics::add_prompt(std::size_t num_tokens) {
    const std::lock_guard lock(mutex_);
    prompt_tokens_ += num_tokens;
}

void Metrics::add_first_token(double seconds) {
    const std::lock_guard lock(mutex_);
    time_to_first_token_.observe(seconds);
}

void Metrics::add_next_token(double seconds) {
    const std::lock_guard lock(mutex_);
    time_between_tokens_.observe(seconds);
}

void Metrics::add_response(int status) {
    const std::lock_guard lock(mutex_);
    ++responses_[status];
}

EngineState Metrics::state() const {
    const std::lock_guard lock(mutex_);
    return state_;
}

std::string Metrics::text() const {
    const std::lock_guard lock(mutex_);
    const std::uint64_t generated = time_to_first_token_.count + time_between_tokens_.count;
    std::string text =
        single("llm_requests_running", "gauge", state_.running,
               "Sequences that are computed in each step.") +
        single("llm_requests_waiting", "gauge", state_.waiting,
               "Sequences that wait until there are pages and a place for them.") +
        single("llm_pages_used", "gauge", state_.pages_used,
               "Pages of the KV cache that sequences use.") +
        single("llm_pages_total", "gauge", state_.pages_total, "Pages of the KV cache.") +
        single("llm_preemptions_total", "counter", state_.preemptions,
               "Sequences that gave back their pages to be computed again later.") +
        single("llm_prompt_tokens_total", "counter", prompt_tokens_, "Tokens of prompts.") +
        single("llm_generated_tokens_total", "counter", generated, "Tokens that were sampled.");
    text += heading("llm_http_responses_total", "counter", "Responses, by HTTP status.");
    for (const auto& [status, count] : responses_)
        text += "llm_http_responses_total{status=\"" + std::to_string(status) + "\"} " +
                std::to_string(count) + "\n";
    return text +
           histogram("llm_time_to_first_token_seconds", time_to_first_token_,
                     "From the arrival of a request to its first token.") +
           histogram("llm_time_between_tokens_seconds", time_between_tokens_,
                     "From a token of a request to its next one.");
}

}  // namespace llm::serve
