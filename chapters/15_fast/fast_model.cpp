#include "chapters/15_fast/fast_model.hpp"

#include <cmath>

#include "common/system/parallel.hpp"

namespace llm {
namespace {

// At most so many tokens pass through a layer's matrices together on one core.
constexpr std::size_t largest_block = 256;

std::span<const Real> numbers_of(const Vector& vector) {
    return {vector.data(), vector.size()};
}

void add(std::span<Real> sums, std::span<const Real> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) sums[i] += numbers[i];
}

void apply_norm(std::span<const Real> row, const RMSNorm& norm, std::span<Real> normalized) {
    normalize(row, numbers_of(norm.weight), norm.eps, normalized);
}

// What chapter 05 calls placed(): for the queries or the keys of one token, head by head.
void place(std::span<Real> heads, const ModelConfig& config, const std::optional<Vector>& norm,
           const RotaryTable& table, std::size_t position) {
    for (std::size_t begin = 0; begin < heads.size(); begin += config.head_dim) {
        const std::span<Real> head = heads.subspan(begin, config.head_dim);
        if (norm) normalize(head, numbers_of(*norm), config.rms_norm_eps, head);
        rotate_head(head, rows_of(table.cos)[position], rows_of(table.sin)[position]);

        // Llama 4's norm has no weights and comes behind the rotation.
        if (!config.use_qk_norm || norm) continue;
        const Real size = dot(head, head) / static_cast<Real>(head.size());
        for (Real& number : head) number /= std::sqrt(size + config.rms_norm_eps);
    }
}

// Says where a token's queries and keys stand, and puts its keys and values into the cache.
void place_and_keep(const FastModel& model, std::size_t n, std::span<Real> qkv,
                    std::size_t position, FastState& state) {
    const ModelConfig& config = model.config;
    const std::size_t head_dim = config.head_dim, num_kv_heads = config.num_key_value_heads;
    const std::size_t query_width = config.num_attention_heads * head_dim;
    const std::size_t kv_width = num_kv_heads * head_dim;
    const std::span<Real> keys = qkv.subspan(query_width, kv_width);
    const std::span<Real> values = qkv.subspan(query_width + kv_width);

    place(qkv.first(query_width), config, model.layers[n].q_norm, state.table, position);
    place(keys, config, model.layers[n].k_norm, state.table, position);
    for (std::size_t h = 0; h < num_kv_heads; ++h) {
        std::ranges::copy(keys.subspan(h * head_dim, head_dim),
                          state.keys_of(n, h)[position].begin());
        std::ranges::copy(values.subspan(h * head_dim, head_dim),
                          state.values_of(n, h)[position].begin());
    }
}

void project_block(const PackedLinear& linear, ConstRows inputs, Rows outputs,
                   std::vector<Real>& scratch, Old old = Old::replace) {
    project_tokens(linear.weight, inputs, outputs, scratch, old);
    for (std::size_t t = 0; t < outputs.count; ++t) add(outputs[t], linear.bias);
}

void project_one(const PackedLinear& linear, std::span<const Real> inputs,
                 std::span<Real> outputs, Old old = Old::replace) {
    project_token(linear.weight, inputs, outputs, old);
    add(outputs, linear.bias);
}

// Rows of a workspace that grows when it is too small, and is never made smaller.
Rows room_for(Matrix& workspace, std::size_t count, std::size_t width) {
    if (workspace.shape(0) < count || workspace.shape(1) != width)
        workspace = xt::zeros<Real>({count, width});
    return rows_of(workspace).rows(0, count);
}

// Neighbouring tokens on their way through a layer.
struct Tokens {
    Rows stream;           // (N, C)
    Rows qkv;              // (N, (H + 2*Hkv)*D)
    Rows context;          // (N, H*D)
    std::size_t position;  // of the first

    Tokens part(std::size_t begin, std::size_t count) const {
        return {stream.rows(begin, count), qkv.rows(begin, count), context.rows(begin, count),
                position + begin};
    }
};

Tokens tokens_in(FastState& state, const ModelConfig& config, std::size_t count) {
    const std::size_t query_width = config.num_attention_heads * config.head_dim;
    const std::size_t kv_width = config.num_key_value_heads * config.head_dim;
    return {room_for(state.stream, count, config.hidden_size),
            room_for(state.qkv, count, query_width + 2 * kv_width),
            room_for(state.context, count, query_width), state.length};
}

// One core takes a block of tokens to their queries, keys and values.
void before_attention(const FastModel& model, std::size_t n, const Tokens& tokens,
                      FastState& state, FastState::Desk& desk) {
    const FastLayer& layer = model.layers[n];
    const auto [stream, qkv, context, position] = tokens;
    const Rows normalized = room_for(desk.normalized, stream.count, stream.width);
    for (std::size_t t = 0; t < stream.count; ++t)
        apply_norm(stream[t], layer.attention_norm, normalized[t]);
    project_block(layer.qkv_proj, normalized, qkv, desk.unpacked);
    for (std::size_t t = 0; t < stream.count; ++t)
        place_and_keep(model, n, qkv[t], position + t, state);
}

// One core takes a tile of queries of one head to their contexts.
void attend(const FastModel& model, std::size_t n, std::size_t head, std::size_t tile,
            const Tokens& all, FastState& state) {
    const ModelConfig& config = model.config;
    const std::size_t head_dim = config.head_dim;
    const std::size_t kv_head =
        head / (config.num_attention_heads / config.num_key_value_heads);
    const std::size_t begin = tile * tile_size;
    const Tokens tokens = all.part(begin, std::min(tile_size, all.stream.count - begin));
    attend_blockwise(tokens.qkv.columns(head * head_dim, head_dim), state.keys_of(n, kv_head),
                     state.values_of(n, kv_head), tokens.position,
                     tokens.context.columns(head * head_dim, head_dim));
}

// One core takes a block of tokens through the rest of the layer. What one matrix puts out is
// still in a cache when the next one reads it.
void after_attention(const FastModel& model, std::size_t n, const Tokens& tokens,
                     FastState::Desk& desk) {
    const FastLayer& layer = model.layers[n];
    const auto [stream, qkv, context, position] = tokens;
    const std::size_t mlp_width = model.config.intermediate_size;
    const Rows normalized = room_for(desk.normalized, stream.count, stream.width);
    const Rows gate_up = room_for(desk.gate_up, stream.count, 2 * mlp_width);

    project_block(layer.o_proj, context, stream, desk.unpacked, Old::keep);
    for (std::size_t t = 0; t < stream.count; ++t)
        apply_norm(stream[t], layer.ffn_norm, normalized[t]);
    project_block(layer.gate_up_proj, normalized, gate_up, desk.unpacked);
    for (std::size_t t = 0; t < stream.count; ++t)
        apply_gate(gate_up[t].first(mlp_width), gate_up[t].subspan(mlp_width));
    project_block(layer.down_proj, gate_up.columns(0, mlp_width), stream, desk.unpacked,
                  Old::keep);
}

// One token's stream to the first row of the logits.
void last_logits(const FastModel& model, std::span<Real> stream, FastState& state) {
    apply_norm(stream, model.norm, stream);
    project_token(model.head(), stream, rows_of(state.logits)[0]);
}

// One core takes a block of tokens to their logits.
void all_logits(const FastModel& model, const Tokens& tokens, std::size_t first_position,
                FastState& state, FastState::Desk& desk) {
    const Rows stream = tokens.stream;
    for (std::size_t t = 0; t < stream.count; ++t) apply_norm(stream[t], model.norm, stream[t]);
    const std::size_t begin = tokens.position - first_position;
    project_tokens(model.head(), stream, rows_of(state.logits).rows(begin, stream.count),
                   desk.unpacked);
}

// One block for every core; more, if a block would have more tokens than the largest.
std::vector<Tokens> blocks_of(const Tokens& all) {
    const std::size_t count = all.stream.count, in_one_round = num_cores() * largest_block;
    const std::size_t rounds = (count + in_one_round - 1) / in_one_round;
    const std::size_t num_blocks = std::min(count, rounds * num_cores());
    std::vector<Tokens> blocks;
    for (std::size_t block = 0; block < num_blocks; ++block) {
        const std::size_t begin = block * count / num_blocks;
        blocks.push_back(all.part(begin, (block + 1) * count / num_blocks - begin));
    }
    return blocks;
}

// Many tokens: every core takes some tokens through all weights.
void prefill(const FastModel& model, std::span<const Id> new_ids, FastState& state,
             LogitsOf which) {
    const Tokens all = tokens_in(state, model.config, new_ids.size());
    for (std::size_t t = 0; t < new_ids.size(); ++t)
        model.embed_tokens.unpack_row(static_cast<std::size_t>(new_ids[t]), all.stream[t]);

    const std::vector<Tokens> blocks = blocks_of(all);
    const std::size_t num_tiles = (new_ids.size() + tile_size - 1) / tile_size;
    const std::size_t num_heads = model.config.num_attention_heads;

    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        in_parallel(blocks.size(), [&](std::size_t i, std::size_t core) {
            before_attention(model, n, blocks[i], state, state.desks[core]);
        });
        // The last tiles see most keys and take longest, so they come first.
        in_parallel(num_tiles * num_heads, [&](std::size_t i) {
            attend(model, n, i % num_heads, num_tiles - 1 - i / num_heads, all, state);
        });
        in_parallel(blocks.size(), [&](std::size_t i, std::size_t core) {
            after_attention(model, n, blocks[i], state.desks[core]);
        });
    }
    if (which == LogitsOf::all) {
        in_parallel(blocks.size(), [&](std::size_t i, std::size_t core) {
            all_logits(model, blocks[i], all.position, state, state.desks[core]);
        });
    } else {
        last_logits(model, all.stream[new_ids.size() - 1], state);
    }
}

// One token and one layer: every core takes some of the heads.
void attend_to_all(const FastModel& model, std::size_t n, const Tokens& token,
                   FastState& state) {
    const std::size_t head_dim = model.config.head_dim, seen = token.position + 1;
    const std::size_t num_heads = model.config.num_attention_heads;
    const std::size_t heads_per_kv_head = num_heads / model.config.num_key_value_heads;
    in_parallel(num_heads, [&](std::size_t head, std::size_t core) {
        const std::size_t kv_head = head / heads_per_kv_head;
        attend_one(token.qkv[0].subspan(head * head_dim, head_dim),
                   state.keys_of(n, kv_head).rows(0, seen),
                   state.values_of(n, kv_head).rows(0, seen),
                   std::span(state.desks[core].weights).first(seen),
                   token.context[0].subspan(head * head_dim, head_dim));
    });
}

// One token: every core takes some of the weights.
void decode(const FastModel& model, Id new_id, FastState& state) {
    const std::size_t mlp_width = model.config.intermediate_size;
    const Tokens token = tokens_in(state, model.config, 1);
    const std::span<Real> stream = token.stream[0], qkv = token.qkv[0];
    FastState::Desk& desk = state.desks[0];
    const std::span<Real> normalized = room_for(desk.normalized, 1, stream.size())[0];
    const std::span<Real> gate_up = room_for(desk.gate_up, 1, 2 * mlp_width)[0];
    model.embed_tokens.unpack_row(static_cast<std::size_t>(new_id), stream);

    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const FastLayer& layer = model.layers[n];
        apply_norm(stream, layer.attention_norm, normalized);
        project_one(layer.qkv_proj, normalized, qkv);
        place_and_keep(model, n, qkv, state.length, state);
        attend_to_all(model, n, token, state);
        project_one(layer.o_proj, token.context[0], stream, Old::keep);

        apply_norm(stream, layer.ffn_norm, normalized);
        project_one(layer.gate_up_proj, normalized, gate_up);
        apply_gate(gate_up.first(mlp_width), gate_up.subspan(mlp_width));
        project_one(layer.down_proj, gate_up.first(mlp_width), stream, Old::keep);
    }
    last_logits(model, stream, state);
}

PackedLinear pack_together(std::initializer_list<const Linear*> linears, Weights kind) {
    std::size_t out_features = 0;
    for (const Linear* linear : linears) out_features += linear->weight.shape(0);
    Matrix stacked = xt::zeros<Real>({out_features, (*linears.begin())->weight.shape(1)});
    std::vector<Real> bias(out_features);
    bool has_bias = false;
    std::size_t row = 0;
    for (const Linear* linear : linears) {
        const auto [count, width] = dims(linear->weight);
        require(width == stacked.shape(1), "fast model: {} and {} do not read the same input",
                linear->weight.shape(), stacked.shape());
        xt::view(stacked, xt::range(row, row + count)) = linear->weight;
        if (linear->bias) {
            has_bias = true;
            std::ranges::copy(*linear->bias, &bias[row]);
        }
        row += count;
    }
    if (!has_bias) bias.clear();
    return {pack(stacked, kind), bias};
}

}  // namespace

FastModel make_fast(const Model& model, Weights kind) {
    FastModel fast{model.config, pack(model.embed_tokens, kind), {}, model.norm, {}};
    if (model.lm_head) fast.lm_head = pack(*model.lm_head, kind);
    bool known = !model.norm.bias;
    for (const PreNormBlock& block : model.layers) {
        const auto& [config, projections, q_norm, k_norm] = block.self_attn;
        const auto& [q_proj, k_proj, v_proj, o_proj] = projections;
        const auto& [gate_proj, up_proj, down_proj, activation] = block.mlp;
        known = known && !block.attention_norm.bias && !block.ffn_norm.bias;
        known = known && activation == silu;
        require(q_norm.has_value() == k_norm.has_value() && (config.use_qk_norm || !q_norm),
                "fast model: norm weights for queries and keys come together, and with "
                "use_qk_norm");
        fast.layers.push_back({block.attention_norm, block.ffn_norm,
                               pack_together({&q_proj, &k_proj, &v_proj}, kind),
                               pack_together({&o_proj}, kind),
                               pack_together({&gate_proj, &up_proj}, kind),
                               pack_together({&down_proj}, kind), q_norm, k_norm});
    }
    if (!known) throw std::invalid_argument("fast model: only RMSNorm without bias and SwiGLU");
    return fast;
}

std::size_t FastModel::weight_memory() const {
    std::size_t bytes = head().memory();
    for (const FastLayer& layer : layers)
        for (const PackedLinear* linear :
             {&layer.qkv_proj, &layer.o_proj, &layer.gate_up_proj, &layer.down_proj})
            bytes += linear->weight.memory();
    return bytes;
}

FastState make_state(const FastModel& model, std::size_t num_positions) {
    const ModelConfig& config = model.config;
    require(num_positions > 0 && num_positions <= config.max_position_embeddings,
            "fast model: {} tokens are none or exceed max_position_embeddings of {}",
            num_positions, config.max_position_embeddings);
    FastState state;
    state.table = make_rotary_table(rotary_frequencies(config), num_positions);
    state.keys = xt::zeros<Real>(
        {config.num_hidden_layers, config.num_key_value_heads, num_positions, config.head_dim});
    state.values = state.keys;
    state.desks.resize(num_cores());
    for (FastState::Desk& desk : state.desks) desk.weights.resize(num_positions);
    return state;
}

Rows FastState::keys_of(std::size_t layer, std::size_t head) {
    return {&keys(layer, head, 0, 0), keys.shape(2), keys.shape(3), keys.shape(3)};
}
Rows FastState::values_of(std::size_t layer, std::size_t head) {
    return {&values(layer, head, 0, 0), values.shape(2), values.shape(3), values.shape(3)};
}

std::size_t FastState::memory() const {
    std::size_t numbers = table.cos.size() + table.sin.size() + keys.size() + values.size() +
                          stream.size() + qkv.size() + context.size() + logits.size();
    for (const Desk& desk : desks)
        numbers += desk.normalized.size() + desk.gate_up.size() + desk.unpacked.size() +
                   desk.weights.size();
    return numbers * sizeof(Real);
}

ConstRows compute_logits(const FastModel& model, std::span<const Id> new_ids, FastState& state,
                         LogitsOf which) {
    require(!new_ids.empty(), "fast model: there is no token to begin with");
    require(state.keys.shape(0) == model.layers.size() &&
                state.keys.shape(1) == model.config.num_key_value_heads &&
                state.keys.shape(3) == model.config.head_dim,
            "fast model: a cache of {} belongs to another model", state.keys.shape());
    const std::size_t num_positions = state.keys.shape(2);
    require(state.length + new_ids.size() <= num_positions,
            "cache: {} tokens behind {} do not fit into {} positions", new_ids.size(),
            state.length, num_positions);
    for (const Id id : new_ids)
        require(id >= 0 && static_cast<std::size_t>(id) < model.config.vocab_size,
                "model: there is no token {} in a vocabulary of {}", id,
                model.config.vocab_size);

    const std::size_t num_logits = which == LogitsOf::all ? new_ids.size() : 1;
    room_for(state.logits, num_logits, model.config.vocab_size);
    if (new_ids.size() == 1)
        decode(model, new_ids[0], state);
    else
        prefill(model, new_ids, state, which);
    state.length += new_ids.size();
    return rows_of(state.logits).rows(0, num_logits);
}

}  // namespace llm
