#include "chapters/11_generation/generation.hpp"

#include <numeric>

namespace llm {
namespace {

// All tokens, the likeliest first.
std::vector<std::size_t> by_likelihood(const Vector& logits) {
    std::vector<std::size_t> tokens(logits.size());
    std::iota(tokens.begin(), tokens.end(), std::size_t{0});
    std::stable_sort(tokens.begin(), tokens.end(),
                     [&](std::size_t a, std::size_t b) { return logits(a) > logits(b); });
    return tokens;
}

// Something must be possible, and nothing infinitely much so.
void check_logits(const Vector& logits) {
    Real highest = -infinity;
    for (const Real logit : logits) {
        require(logit < infinity, "sampling: a logit is infinite or not a number");
        highest = std::max(highest, logit);
    }
    require(highest > -infinity, "sampling: no token is possible");
}

// Puts the new tokens behind the old ones, along the axis of tokens.
void extend(Tensor4& kept, const Tensor4& fresh) {  // (B, Hkv, S, D), (B, Hkv, T, D)
    if (kept.size() == 0) {
        kept = fresh;
        return;
    }
    require(kept.shape(0) == fresh.shape(0) && kept.shape(1) == fresh.shape(1) &&
                kept.shape(3) == fresh.shape(3),
            "cache: it holds {}, {} does not go with it", kept.shape(), fresh.shape());
    const auto [batch_size, num_kv_heads, length, head_dim] = dims(kept);
    // The rows of a head lie together: first its old ones, then its new ones.
    const std::size_t old_size = length * head_dim, new_size = fresh.shape(2) * head_dim;
    Tensor4 both =
        xt::zeros<Real>({batch_size, num_kv_heads, length + fresh.shape(2), head_dim});
    for (std::size_t head = 0; head < batch_size * num_kv_heads; ++head) {
        Real* const end = std::copy_n(kept.data() + head * old_size, old_size,
                                      both.data() + head * (old_size + new_size));
        std::copy_n(fresh.data() + head * new_size, new_size, end);
    }
    kept = std::move(both);
}

}  // namespace

IdMatrix one_sequence(std::span<const Id> ids) {
    IdMatrix sequence(std::array{std::size_t{1}, ids.size()});
    std::copy(ids.begin(), ids.end(), sequence.begin());
    return sequence;
}

Vector probabilities_of(const Vector& logits) {
    return reshape(softmax(reshape(logits, {1, logits.size()})), {logits.size()});
}

Vector with_temperature(const Vector& logits, Real temperature) {
    require(temperature > 0, "sampling: the temperature must be above 0");
    return logits / temperature;
}

Vector keep_top_k(const Vector& logits, std::size_t k) {
    require(k > 0, "sampling: top-k must keep at least one token");
    const std::vector<std::size_t> tokens = by_likelihood(logits);
    Vector kept = logits;
    for (std::size_t rank = k; rank < tokens.size(); ++rank) kept(tokens[rank]) = -infinity;
    return kept;
}

Vector keep_top_p(const Vector& logits, Real p) {
    require(p >= 0 && p <= 1, "sampling: top-p must lie from 0 to 1");
    const Vector probabilities = probabilities_of(logits);
    Vector kept = logits;
    double reached = 0;
    for (const std::size_t token : by_likelihood(logits)) {
        // What stood before it has reached p: this token is one too many.
        if (reached > 0 && reached >= p) kept(token) = -infinity;
        reached += probabilities(token);
    }
    return kept;
}

Vector keep_min_p(const Vector& logits, Real p) {
    require(p >= 0 && p <= 1, "sampling: min-p must lie from 0 to 1");
    const Vector probabilities = probabilities_of(logits);
    const Real highest = *std::max_element(probabilities.begin(), probabilities.end());
    Vector kept = logits;
    for (std::size_t token = 0; token < kept.size(); ++token)
        if (probabilities(token) < p * highest) kept(token) = -infinity;
    return kept;
}

Vector penalize_repetition(const Vector& logits, const std::vector<Id>& seen, Real penalty) {
    require(penalty > 0, "sampling: the repetition penalty must be above 0");
    Vector penalized = logits;
    for (const Id id : seen) {
        const auto token = static_cast<std::size_t>(id);
        require(id >= 0 && token < logits.size(), "sampling: there is no token {} among {}", id,
                logits.size());
        // From the logits as they were: seen twice is no worse than seen once.
        const Real logit = logits(token);
        penalized(token) = logit > 0 ? logit / penalty : logit * penalty;
    }
    return penalized;
}

Id likeliest(const Vector& logits) {
    check_logits(logits);
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

Id draw(const Vector& logits, Generator& generator) {
    check_logits(logits);
    const Vector probabilities = probabilities_of(logits);

    // Lay the probabilities side by side, from 0 to 1, and see into which one a point falls.
    Real rest = generator.next_uniform();
    Id last_possible = 0;
    for (std::size_t token = 0; token < probabilities.size(); ++token) {
        if (probabilities(token) == 0) continue;
        last_possible = static_cast<Id>(token);
        if (rest < probabilities(token)) return last_possible;
        rest -= probabilities(token);
    }
    return last_possible;  // rounding: they added up to a little less than 1
}

Id next_token(const Vector& logits, const std::vector<Id>& seen, const Sampling& sampling,
              Generator& generator) {
    Vector kept = penalize_repetition(logits, seen, sampling.repetition_penalty);
    if (sampling.temperature == 0) return likeliest(kept);
    kept = with_temperature(kept, sampling.temperature);
    if (sampling.top_k > 0) kept = keep_top_k(kept, sampling.top_k);
    if (sampling.top_p < 1) kept = keep_top_p(kept, sampling.top_p);
    if (sampling.min_p > 0) kept = keep_min_p(kept, sampling.min_p);
    return draw(kept, generator);
}

KvCache make_cache(const Model& model, std::size_t num_positions) {
    return {model.rotary_table(num_positions),
            std::vector<LayerCache>(model.layers.size(), {xt::zeros<Real>({0, 0, 0, 0}),
                                                          xt::zeros<Real>({0, 0, 0, 0})})};
}

Placement placement_behind(const KvCache& cache, std::size_t batch_size, std::size_t seq_len) {
    const std::size_t kv_len = cache.length + seq_len;  // S + T
    require(kv_len <= cache.table.cos.shape(0),
            "cache: {} tokens behind {} do not fit into {} positions", seq_len, cache.length,
            cache.table.cos.shape(0));

    // The first new token does not stand at 0 again, but behind the last old one.
    IdMatrix positions = position_ids(batch_size, seq_len);  // (B, T)
    for (Id& position : positions) position += static_cast<Id>(cache.length);

    // T rows for the new tokens, S + T columns for all: aligned at the bottom right.
    return {cache.table, positions, expand_mask(causal_mask(seq_len, kv_len), batch_size)};
}

Attention attend(const AttentionLayer& layer, const Tensor3& hidden_states,
                 const Placement& placement, LayerCache& cache) {
    const Projections& projections = layer.projections;
    const std::size_t num_kv_heads = layer.config.num_key_value_heads;
    const auto& [table, positions, mask] = placement;

    // Project the new tokens alone, and say where they stand.
    const Tensor4 queries =
        split_heads(projections.q_proj(hidden_states), layer.config.num_attention_heads);
    const Tensor4 keys = split_heads(projections.k_proj(hidden_states), num_kv_heads);
    const Tensor4 values = split_heads(projections.v_proj(hidden_states), num_kv_heads);
    const Tensor4 placed_queries = layer.placed(queries, layer.q_norm, table, positions);
    const Tensor4 placed_keys = layer.placed(keys, layer.k_norm, table, positions);

    // Their keys and values join the others. New queries, (B, H, T, D), meet all keys,
    // (B, Hkv, S + T, D). Nobody will ever need the old queries again.
    extend(cache.keys, placed_keys);
    extend(cache.values, values);
    return grouped_query_attention(placed_queries, cache.keys, cache.values, mask);
}

Tensor3 finish_block(const PreNormBlock& block, const Tensor3& stream,
                     const Attention& attention) {
    const Tensor3 attended =
        stream + block.self_attn.projections.o_proj(merge_heads(attention.context));
    return attended + block.mlp(block.ffn_norm(attended));
}

Matrix next_logits(const Model& model, const IdMatrix& new_ids, KvCache& cache) {
    const auto [batch_size, seq_len] = dims(new_ids);
    require(seq_len > 0, "generate: there is no token to begin with");
    const Placement placement = placement_behind(cache, batch_size, seq_len);
    Tensor3 stream = model.embed(new_ids);  // (B, T, C)

    // The blocks of chapter 08, with a cache in the middle.
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const PreNormBlock& block = model.layers[n];
        const Attention attention =
            attend(block.self_attn, block.attention_norm(stream), placement, cache.layers[n]);
        stream = finish_block(block, stream, attention);
    }
    cache.length += seq_len;

    // Only the last token says how the text goes on. The head is spared the others.
    Tensor3 last = xt::zeros<Real>({batch_size, std::size_t{1}, stream.shape(2)});  // (B, 1, C)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t c = 0; c < stream.shape(2); ++c)
            last(b, 0, c) = stream(b, seq_len - 1, c);
    return reshape(model.logits(last), {batch_size, model.config.vocab_size});
}

std::vector<Id> generate(const Model& model, const std::vector<Id>& prompt,
                         const Writing& writing, Generator& generator,
                         const std::function<void(Id)>& on_token) {
    require(!prompt.empty(), "generate: there is no token to begin with");
    check_input(model.config, one_sequence(prompt));
    const std::size_t room = model.config.max_position_embeddings - prompt.size();
    const std::size_t num_positions = prompt.size() + std::min(writing.max_new_tokens, room);
    const KvCache empty_cache = make_cache(model, num_positions);
    KvCache cache = empty_cache;
    std::vector<Id> ids = prompt;

    while (ids.size() < num_positions) {
        // Compute what the cache does not hold: first the prompt, then token by token.
        if (!writing.use_cache) cache = empty_cache;
        const IdMatrix new_ids = one_sequence(std::span(ids).subspan(cache.length));  // (1, T)
        const Matrix logits = next_logits(model, new_ids, cache);                     // (1, V)
        const Id id =
            next_token(reshape(logits, {logits.size()}), ids, writing.sampling, generator);
        const auto& ends = writing.end_ids;
        if (std::find(ends.begin(), ends.end(), id) != ends.end()) break;
        ids.push_back(id);
        if (on_token) on_token(id);
    }
    return {ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), ids.end()};
}

}  // namespace llm
