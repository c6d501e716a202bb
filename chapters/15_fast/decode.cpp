#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/15_fast/token_block.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

void apply_linear(const QuantizedLinear& linear, std::span<const Real> inputs,
                  std::span<Real> outputs, Update update = Update::overwrite) {
    matvec(linear.weight, inputs, outputs, update);
    add_bias(outputs, linear.bias);
}

// The attention of one token; the heads are divided among the threads.
void compute_context_of_token(const FastModel& model, std::size_t n, const TokenBlock& token,
                              RunState& state) {
    const std::size_t head_dim = model.config.head_dim, kv_len = token.first_position + 1;
    const std::size_t num_heads = model.config.num_attention_heads;
    const std::size_t num_key_value_groups = num_heads / model.config.num_key_value_heads;
    parallel_for(num_heads, [&](std::size_t head, std::size_t thread) {
        const std::size_t kv_head = head / num_key_value_groups;
        decode_attention(token.qkv[0].subspan(head * head_dim, head_dim),
                         state.cached_keys(n, kv_head).rows(0, kv_len),
                         state.cached_values(n, kv_head).rows(0, kv_len),
                         std::span(state.workspaces[thread].scores).first(kv_len),
                         token.context[0].subspan(head * head_dim, head_dim));
    });
}

}  // namespace

void decode(const FastModel& model, Id new_id, RunState& state) {
    const std::size_t width = model.config.intermediate_size;
    const TokenBlock token = make_token_block(state, model.config, 1);
    const std::span<Real> hidden_state = token.hidden_states[0], qkv = token.qkv[0];
    RunState::ThreadWorkspace& workspace = state.workspaces[0];
    const std::span<Real> normalized =
        ensure_capacity(workspace.normalized, 1, hidden_state.size())[0];
    const std::span<Real> gate_up = ensure_capacity(workspace.gate_up, 1, 2 * width)[0];
    model.embed_tokens.dequantize_row(static_cast<std::size_t>(new_id), hidden_state);

    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const FastLayer& layer = model.layers[n];
        apply_norm(layer.attention_norm, hidden_state, normalized);
        apply_linear(layer.qkv_proj, normalized, qkv);
        update_kv_cache(model, n, qkv, state.seq_len, state);
        compute_context_of_token(model, n, token, state);
        apply_linear(layer.o_proj, token.context[0], hidden_state, Update::accumulate);

        apply_norm(layer.ffn_norm, hidden_state, normalized);
        apply_linear(layer.gate_up_proj, normalized, gate_up);
        silu_and_mul(gate_up.first(width), gate_up.subspan(width));
        apply_linear(layer.down_proj, gate_up.first(width), hidden_state, Update::accumulate);
    }
    compute_last_logits(model, hidden_state, state);
}

}  // namespace llm
