#include "chapters/15_fast/inference.hpp"

namespace llm {
namespace {

// Checks everything before anything is changed.
void check_batch(const FastModel& model, SequenceBatch batch, const KVMemory& memory,
                 const Workspace& workspace) {
    const auto [num_layers, num_kv_heads, num_slots, head_dim] = memory.cache_shape();
    require(num_layers == model.layers.size() &&
                num_kv_heads == model.config.num_key_value_heads &&
                head_dim == model.config.head_dim,
            "fast model: a cache of {} belongs to another model", memory.cache_shape());
    require(!batch.empty(), "fast model: no sequences are given");
    for (const auto& [new_ids, seq_len, slots, logits_to_keep, hidden_states] : batch) {
        require(!new_ids.empty(), "fast model: no tokens are given");
        for (const ConstMatrixView view :
             {hidden_states.inputs_embeds, ConstMatrixView(hidden_states.last_hidden_states)})
            require(view.num_rows == 0 || (view.num_rows == new_ids.size() &&
                                           view.num_columns == model.config.hidden_size),
                    "fast model: hidden states of ({}, {}) for {} tokens of {} features",
                    view.num_rows, view.num_columns, new_ids.size(), model.config.hidden_size);
        const std::size_t num_positions =
            std::min(slots.num_positions(), workspace.rotary_table.cos.shape(0));
        require(seq_len + new_ids.size() <= num_positions,
                "cache: {} tokens after {} others exceed {} positions", new_ids.size(), seq_len,
                num_positions);
        for (const std::size_t page : slots.pages)
            require((page + 1) * slots.page_size <= num_slots,
                    "cache: page {} of {} slots is not in a memory of {} slots", page,
                    slots.page_size, num_slots);
        for (const Id id : new_ids)
            require(id >= 0 && static_cast<std::size_t>(id) < model.config.vocab_size,
                    "model: there is no token {} in a vocabulary of {}", id,
                    model.config.vocab_size);
    }
}

// Copies the rows of the sequences whose hidden states are wanted, after the final norm.
void copy_last_hidden_states(const FastModel& model, SequenceBatch batch,
                             MatrixView hidden_states) {
    std::size_t begin = 0;
    for (const SequenceTokens& sequence : batch) {
        const std::size_t count = sequence.new_ids.size();
        const MatrixView wanted = sequence.hidden_states.last_hidden_states;
        if (wanted.num_rows > 0)
            apply_norm(model.norm, hidden_states.rows(begin, count), wanted);
        begin += count;
    }
}

// Moves the rows whose logits are kept to the front.
MatrixView kept_rows(SequenceBatch batch, MatrixView hidden_states) {
    std::size_t num_kept = 0, end_of_sequence = 0;
    for (const SequenceTokens& sequence : batch) {
        const std::size_t count = sequence.new_ids.size();
        end_of_sequence += count;
        if (!sequence.logits_to_keep) continue;
        const bool all = sequence.logits_to_keep == LogitsToKeep::all;
        for (std::size_t row = end_of_sequence - (all ? count : 1); row < end_of_sequence;
             ++row)
            if (const std::size_t kept = num_kept++; kept != row)
                std::ranges::copy(hidden_states[row], hidden_states[kept].begin());
    }
    return hidden_states.rows(0, num_kept);
}

}  // namespace

ConstMatrixView compute_logits(const FastModel& model, SequenceBatch batch, KVMemory& memory,
                               Workspace& workspace) {
    check_batch(model, batch, memory, workspace);
    const bool few = num_new_tokens(batch) <= max_decode_tokens;
    const MatrixView of_all = (few ? decode : prefill)(model, batch, memory, workspace);
    copy_last_hidden_states(model, batch, of_all);
    const MatrixView hidden_states = kept_rows(batch, of_all);
    const MatrixView logits =
        ensure_capacity(workspace.logits, hidden_states.num_rows, model.config.vocab_size);
    if (hidden_states.num_rows == 0) return logits;
    const bool few_kept = hidden_states.num_rows <= max_decode_tokens;
    (few_kept ? decode_head : prefill_head)(model, hidden_states, logits, workspace);
    return logits;
}

ConstMatrixView compute_logits(const FastModel& model, std::span<const Id> new_ids,
                               RunState& state, LogitsToKeep logits_to_keep,
                               HiddenStateViews hidden_states) {
    const std::array<std::size_t, 1> one_page = {0};
    const SequenceTokens sequence{new_ids,
                                  state.seq_len,
                                  {one_page, state.cache_shape()[2]},
                                  logits_to_keep,
                                  hidden_states};
    const ConstMatrixView logits = compute_logits(model, {&sequence, 1}, state, state);
    state.seq_len += new_ids.size();
    return logits;
}

Vector to_vector(std::span<const Real> logits) {
    Vector result(std::array{logits.size()});
    std::ranges::copy(logits, result.begin());
    return result;
}

Vector FastSequence::append(std::span<const Id> new_ids) {
    return to_vector(compute(new_ids, LogitsToKeep::last)[0]);
}

void FastSequence::keep_hidden_states() {
    last_hidden_states =
        xt::zeros<Real>({state.rotary_table.cos.shape(0), model.config.hidden_size});
}

ConstMatrixView FastSequence::compute(std::span<const Id> new_ids, LogitsToKeep logits_to_keep,
                                      ConstMatrixView inputs_embeds) {
    const std::size_t num_free = state.rotary_table.cos.shape(0) - state.seq_len;
    HiddenStateViews hidden_states{inputs_embeds, {}};
    if (last_hidden_states.size() > 0 && new_ids.size() <= num_free)  // else it throws
        hidden_states.last_hidden_states =
            view_of(last_hidden_states).rows(state.seq_len, new_ids.size());
    return compute_logits(model, new_ids, state, logits_to_keep, hidden_states);
}

std::size_t FastSequence::crop(std::size_t count) {
    require(count <= state.seq_len, "cache: {} of {} tokens cannot be kept", count,
            state.seq_len);
    state.seq_len = count;
    return count;
}

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
