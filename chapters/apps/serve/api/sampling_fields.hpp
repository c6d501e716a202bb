// The fields of a request that change how tokens are sampled.
#pragma once

#include "chapters/11_generation/sampling.hpp"
#include "chapters/apps/serve/api/request_fields.hpp"

namespace llm::serve {

// Changes of logits before a token is sampled. The penalties are of tokens that the answer has:
// presence_penalty once, frequency_penalty for each time. Source: OpenAI, "Frequency and
// presence penalties".
struct LogitChanges {
    Real frequency_penalty = 0, presence_penalty = 0;
    std::vector<std::pair<Id, Real>> bias{};

    bool any() const {
        return frequency_penalty != 0 || presence_penalty != 0 || !bias.empty();
    }
};
Vector changed_logits(const LogitChanges& changes, const Vector& logits,  // (V) -> (V)
                      std::span<const Id> new_ids);

// They throw ApiError 400, which names the field.
void read_sampling(RequestFields& fields, SamplingConfig& sampling);
LogitChanges read_logit_changes(RequestFields& fields, std::size_t vocab_size);

}  // namespace llm::serve
