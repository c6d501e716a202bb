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

std::vector<Id> generate_greedily(const FastModel& model, std::vector<Id> ids,
                                  std::size_t max_new_tokens,
                                  const std::vector<Id>& eos_token_ids, DType cache_dtype) {
    const std::size_t max_len =
        std::min(ids.size() + max_new_tokens, model.config.max_position_embeddings);
    RunState state = make_run_state(model, max_len, cache_dtype);
    ConstMatrixView logits = compute_logits(model, ids, state);
    while (ids.size() < max_len) {
        const std::span<const Real> row = logits[0];
        const Id id = std::max_element(row.begin(), row.end()) - row.begin();
        if (std::ranges::find(eos_token_ids, id) != eos_token_ids.end()) break;
        ids.push_back(id);
        if (ids.size() < max_len) logits = compute_logits(model, std::span(&id, 1), state);
    }
    return ids;
}

}  // namespace llm
