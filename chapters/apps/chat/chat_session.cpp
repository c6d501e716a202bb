#include "chapters/apps/chat/chat_session.hpp"

#include <algorithm>

#include "common/system/interrupt.hpp"

namespace llm {
namespace {

// The tokens of one call of the model: between two of them Ctrl-C is noticed.
constexpr std::size_t prefill_chunk = 256;

struct FastCache final : SequenceCache {
    const FastModel& model;
    RunState state;

    FastCache(const FastModel& fast_model, RunState run_state)
        : model(fast_model), state(std::move(run_state)) {}

    Vector append(std::span<const Id> new_ids) override {
        const ConstMatrixView last = compute_logits(model, new_ids, state);  // (1, V)
        Vector logits(std::array{last.num_columns});
        std::copy_n(last.data, last.num_columns, logits.data());
        return logits;
    }
    std::size_t crop(std::size_t count) override { return state.seq_len = count; }
};

struct RollingCaches final : SequenceCache {
    const PublishedModel& model;
    const ModelCache<RollingCache> empty_cache;
    ModelCache<RollingCache> cache = empty_cache;

    RollingCaches(const PublishedModel& published_model, std::size_t num_positions)
        : model(published_model), empty_cache(make_cache(published_model, num_positions)) {}

    Vector append(std::span<const Id> new_ids) override {
        const IdMatrix ids = one_sequence({new_ids.begin(), new_ids.end()});  // (1, T)
        return last_logits(
            model.forward(ids, {.cache = &cache, .logits_to_keep = LogitsToKeep::last}));
    }
    std::size_t crop(std::size_t count) override {
        if (count == cache.seq_len) return count;
        const auto has_overwritten = [](const RollingCache& layer) {
            return layer.position_ids.size() < layer.seq_len;
        };
        if (std::any_of(cache.layers.begin(), cache.layers.end(), has_overwritten)) {
            cache = empty_cache;
            return 0;
        }
        for (RollingCache& layer : cache.layers) crop_layer(layer, count);
        return cache.seq_len = count;
    }

    // Entry p is that of position p, because none is overwritten.
    static void crop_layer(RollingCache& layer, std::size_t count) {
        const Tensor4 keys =
            xt::view(layer.keys, xt::all(), xt::all(), xt::range(std::size_t{0}, count));
        const Tensor4 values =
            xt::view(layer.values, xt::all(), xt::all(), xt::range(std::size_t{0}, count));
        const IdVector position_ids =
            xt::view(layer.position_ids, xt::range(std::size_t{0}, count));
        layer.keys = keys;
        layer.values = values;
        layer.position_ids = position_ids;
        layer.seq_len = count;
    }
};

}  // namespace

const Config& config_of(const AnyModel& model) {
    return std::visit([](const auto& typed) -> const Config& { return typed.config; }, model);
}

CachedSequence make_cached_sequence(const AnyModel& model, std::size_t num_positions,
                                    DType cache_dtype) {
    if (const auto* fast = std::get_if<FastModel>(&model))
        return {std::make_unique<FastCache>(*fast,
                                            make_run_state(*fast, num_positions, cache_dtype)),
                num_positions};
    require(cache_dtype == DType::float32,
            "a cache of {} is not supported for this model type; supported: float32",
            to_text(cache_dtype));
    return {std::make_unique<RollingCaches>(std::get<PublishedModel>(model), num_positions),
            num_positions};
}

Vector next_token_logits(const std::vector<Id>& ids, CachedSequence& cached) {
    require(!ids.empty(), "next_token_logits: there are no tokens");

    // Keep the common prefix, but not the last token, whose logits are wanted.
    const auto differs =
        std::mismatch(ids.begin(), ids.end(), cached.ids.begin(), cached.ids.end()).first;
    std::size_t done = cached.cache->crop(
        std::min(static_cast<std::size_t>(differs - ids.begin()), ids.size() - 1));
    cached.ids.resize(done);

    // Compute the other tokens in chunks.
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

Answer generate_answer(const std::vector<Id>& prompt_ids, const GenerationConfig& config,
                       Generator& generator, CachedSequence& cached,
                       const std::function<void(Id)>& on_token) {
    const std::vector<Id>& eos = config.eos_token_ids;
    Answer answer;
    std::vector<Id> ids = prompt_ids;
    try {
        while (answer.ids.size() < config.max_new_tokens && ids.size() < cached.num_positions) {
            const Vector logits = next_token_logits(ids, cached);  // (V)
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
