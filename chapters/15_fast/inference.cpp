#include "chapters/15_fast/inference.hpp"

namespace llm {
namespace {

// Checks everything before anything is changed.
void check_call(const FastModel& model, std::span<const Id> new_ids, const RunState& state) {
    require(!new_ids.empty(), "fast model: no tokens are given");
    const auto [num_layers, num_kv_heads, num_positions, head_dim] = state.cache_shape();
    require(num_layers == model.layers.size() &&
                num_kv_heads == model.config.num_key_value_heads &&
                head_dim == model.config.head_dim,
            "fast model: a cache of {} belongs to another model", state.cache_shape());
    require(state.seq_len + new_ids.size() <= num_positions,
            "cache: {} tokens after {} others exceed {} positions", new_ids.size(),
            state.seq_len, num_positions);
    for (const Id id : new_ids)
        require(id >= 0 && static_cast<std::size_t>(id) < model.config.vocab_size,
                "model: there is no token {} in a vocabulary of {}", id,
                model.config.vocab_size);
}

}  // namespace

ConstMatrixView compute_logits(const FastModel& model, std::span<const Id> new_ids,
                               RunState& state, LogitsToKeep logits_to_keep) {
    check_call(model, new_ids, state);
    const std::size_t num_logits = logits_to_keep == LogitsToKeep::all ? new_ids.size() : 1;
    const MatrixView logits =
        ensure_capacity(state.logits, num_logits, model.config.vocab_size);
    if (new_ids.size() <= max_decode_tokens)
        decode(model, new_ids, state, logits_to_keep);
    else
        prefill(model, new_ids, state, logits_to_keep);
    state.seq_len += new_ids.size();
    return logits;
}

Vector FastSequence::append(std::span<const Id> new_ids) {
    const ConstMatrixView last = compute_logits(model, new_ids, state);  // (1, V)
    Vector logits(std::array{last.num_columns});
    std::copy_n(last.data, last.num_columns, logits.data());
    return logits;
}

std::size_t FastSequence::crop(std::size_t count) { return state.seq_len = count; }

CachedSequence make_cached_sequence(const FastModel& model, std::size_t num_positions,
                                    DType cache_dtype) {
    return {std::make_unique<FastSequence>(model,
                                           make_run_state(model, num_positions, cache_dtype)),
            num_positions};
}

std::vector<Id> generate_greedily(const FastModel& model, std::vector<Id> ids,
                                  std::size_t max_new_tokens,
                                  const std::vector<Id>& eos_token_ids, DType cache_dtype) {
    GenerationConfig config{.max_new_tokens = max_new_tokens, .eos_token_ids = eos_token_ids};
    config.sampling.temperature = 0;
    CachedSequence cached = make_cached_sequence(
        model, std::min(ids.size() + max_new_tokens, model.config.max_position_embeddings),
        cache_dtype);
    Generator unused(0);
    const GeneratedTokens generated = generate(cached, ids, config, unused);
    if (generated.reason == StopReason::interrupted) throw Interrupted();
    ids.insert(ids.end(), generated.ids.begin(), generated.ids.end());
    return ids;
}

}  // namespace llm
