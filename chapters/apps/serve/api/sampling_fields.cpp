#include "chapters/apps/serve/api/sampling_fields.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "chapters/apps/serve/api/api_error.hpp"
#include "common/files/unicode.hpp"

namespace llm::serve {

void read_sampling(RequestFields& fields, SamplingConfig& sampling) {
    sampling.temperature = Real(fields.number_or("temperature", 0, 2, sampling.temperature));
    if (sampling.temperature > 0 && sampling.temperature < Real(0.01))
        throw invalid_request("temperature must be 0, or from 0.01 to 2", "temperature");
    sampling.top_p = Real(fields.number_or("top_p", 0, 1, sampling.top_p));
    // Not in OpenAI's API, but in those of vLLM and llama.cpp.
    if (const auto top_k = fields.integer("top_k", -1, 1 << 24))
        sampling.top_k = size_t(std::max<std::int64_t>(*top_k, 0));  // -1: off, as in vLLM
    sampling.min_p = Real(fields.number_or("min_p", 0, 1, sampling.min_p));
    sampling.repetition_penalty =
        Real(fields.number_or("repetition_penalty", 0.01, 100, sampling.repetition_penalty));
}

namespace {

// Biases of logits by token: {"5": -100}.
void read_logit_bias(RequestFields& fields, std::size_t vocab_size, LogitChanges& changes) {
    const Json* value = fields.find("logit_bias");
    if (!value) return;
    const JsonObject* biases = value->as<JsonObject>();
    if (!biases || biases->size() > 1024)
        throw invalid_request("logit_bias must be an object of at most 1024 tokens",
                              "logit_bias");
    for (const auto& [key, bias] : *biases) {
        const bool is_id =
            !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == key.npos;
        const std::optional<double> number = bias.number();
        if (!is_id || std::stoul(key) >= vocab_size)
            throw invalid_request("logit_bias: " + escaped(key) + " is no token", "logit_bias");
        if (!number || !(std::abs(*number) <= 100))
            throw invalid_request(
                "logit_bias: a bias must be a number from -100 to 100, not " + brief_json(bias),
                "logit_bias");
        changes.bias.emplace_back(Id(std::stoul(key)), Real(*number));
    }
}

}  // namespace

LogitChanges read_logit_changes(RequestFields& fields, std::size_t vocab_size) {
    LogitChanges changes;
    changes.frequency_penalty = Real(fields.number_or("frequency_penalty", -2, 2, 0));
    changes.presence_penalty = Real(fields.number_or("presence_penalty", -2, 2, 0));
    read_logit_bias(fields, vocab_size, changes);
    return changes;
}

Vector changed_logits(const LogitChanges& changes, const Vector& logits,
                      std::span<const Id> new_ids) {
    Vector changed = logits;
    for (const auto& [id, bias] : changes.bias) changed(std::size_t(id)) += bias;
    std::map<Id, std::size_t> counts;
    for (const Id id : new_ids) ++counts[id];
    for (const auto& [id, count] : counts)
        changed(std::size_t(id)) -=
            changes.presence_penalty + Real(count) * changes.frequency_penalty;
    return changed;
}

}  // namespace llm::serve
