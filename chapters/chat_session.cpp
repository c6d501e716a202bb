#include "chapters/chat_session.hpp"

#include <algorithm>

#include "common/system/interrupt.hpp"

namespace llm {
namespace {

// The tokens of one call of the model: between two of them Ctrl-C is noticed.
constexpr std::size_t prefill_chunk = 256;

}  // namespace

Vector next_token_logits(const FastModel& model, const std::vector<Id>& ids,
                         CachedSequence& cache) {
    require(!ids.empty(), "next_token_logits: there are no tokens");

    // Keep the common prefix, but not the last token, whose logits are wanted.
    const auto differs =
        std::mismatch(ids.begin(), ids.end(), cache.ids.begin(), cache.ids.end()).first;
    std::size_t done =
        std::min(static_cast<std::size_t>(differs - ids.begin()), ids.size() - 1);
    cache.ids.resize(done);
    cache.state.seq_len = done;

    // Compute the other tokens in chunks.
    Vector logits;  // (V)
    while (done < ids.size()) {
        InterruptHandler::throw_if_interrupted();
        const std::size_t count = std::min(prefill_chunk, ids.size() - done);
        const std::span<const Id> chunk = std::span(ids).subspan(done, count);
        const ConstMatrixView last = compute_logits(model, chunk, cache.state);  // (1, V)
        cache.ids.insert(cache.ids.end(), chunk.begin(), chunk.end());
        done += count;
        if (done < ids.size()) continue;
        logits = Vector(std::array{last.num_columns});
        std::copy_n(last.data, last.num_columns, logits.data());
    }
    return logits;
}

Answer generate_answer(const FastModel& model, const std::vector<Id>& prompt_ids,
                       const GenerationConfig& config, Generator& generator,
                       CachedSequence& cache, const std::function<void(Id)>& on_token) {
    const std::vector<Id>& eos = config.eos_token_ids;
    const std::size_t num_positions = cache.state.cache_shape()[2];
    Answer answer;
    std::vector<Id> ids = prompt_ids;
    try {
        while (answer.ids.size() < config.max_new_tokens && ids.size() < num_positions) {
            const Vector logits = next_token_logits(model, ids, cache);  // (V)
            const Id id = sample_next_token(logits, ids, config.sampling, generator);
            if (std::find(eos.begin(), eos.end(), id) != eos.end()) return answer;
            ids.push_back(id);
            answer.ids.push_back(id);
            on_token(id);
        }
    } catch (const Interrupted&) {
        answer.reason = StopReason::interrupted;
        return answer;
    }
    answer.reason = answer.ids.size() == config.max_new_tokens ? StopReason::max_new_tokens
                                                               : StopReason::last_position;
    return answer;
}

std::size_t drop_oldest_turns(std::vector<Message>& messages,
                              const std::function<bool(const std::vector<Message>&)>& fits) {
    const std::size_t before = messages.size();
    const auto from_user = [](const Message& message) { return message.role == "user"; };
    while (!fits(messages)) {
        const auto oldest = std::find_if(messages.begin(), messages.end(), from_user);
        if (oldest == messages.end()) break;
        const auto next = std::find_if(oldest + 1, messages.end(), from_user);
        if (next == messages.end()) break;
        messages.erase(oldest, next);
    }
    return before - messages.size();
}

std::size_t max_prompt_tokens(std::size_t num_positions, std::size_t max_new_tokens) {
    return num_positions - std::min(max_new_tokens, num_positions / 2);
}

}  // namespace llm
