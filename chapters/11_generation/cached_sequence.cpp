#include "chapters/11_generation/cached_sequence.hpp"

#include <algorithm>

#include "common/system/interrupt.hpp"

namespace llm {
namespace {

// The tokens of one call of the model: between two of them Ctrl-C is noticed.
constexpr std::size_t prefill_chunk = 256;

}  // namespace

IdMatrix one_sequence(std::span<const Id> ids) {
    IdMatrix batch(std::array{std::size_t{1}, ids.size()});
    std::copy(ids.begin(), ids.end(), batch.begin());
    return batch;
}

Vector last_logits(const ModelOutput& output) {
    const auto [batch_size, seq_len, vocab_size] = dims(output.logits);
    require(batch_size > 0 && seq_len > 0, "generate: there are no logits in {}",
            output.logits.shape());
    return xt::view(output.logits, 0, seq_len - 1);
}

Vector next_token_logits(const std::vector<Id>& ids, CachedSequence& cached) {
    require(!ids.empty(), "next_token_logits: there are no tokens");

    // Keep the common prefix, but not the last token, whose logits are wanted.
    const auto differs =
        std::mismatch(ids.begin(), ids.end(), cached.ids.begin(), cached.ids.end()).first;
    std::size_t done = cached.cache->crop(
        std::min(static_cast<std::size_t>(differs - ids.begin()), ids.size() - 1));
    cached.ids.resize(done);

    // Compute the other tokens: those of a prompt in chunks (prefill), a new one alone
    // (decode).
    Vector logits;  // (V)
    while (done < ids.size()) {
        InterruptHandler::throw_if_interrupted();
        const std::size_t count = std::min(prefill_chunk, ids.size() - done);
        const std::span<const Id> chunk = std::span(ids).subspan(done, count);
        logits = cached.cache->append(chunk);
        cached.ids.insert(cached.ids.end(), chunk.begin(), chunk.end());
        done += count;
    }
    return logits;
}

}  // namespace llm
