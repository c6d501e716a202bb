#include "chapters/11_generation/demo/cache.hpp"

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/11_generation/cached_sequence.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

// Runs the attention of layer 0 on the new tokens.
AttentionLayer::Output attention_of_layer_0(const Model& model, std::span<const Id> new_ids,
                                            const AttentionInputs& inputs, LayerCache& cache) {
    const PreNormBlock& layer = model.layers[0];
    const Tensor3 embeddings = model.embed(one_sequence(new_ids));  // (1, T, C)
    return layer.self_attn(layer.attention_norm(embeddings), inputs, &cache);
}

// The tensor shapes in the attention of layer 0, as a column of a table.
TableRow shapes_of(const Model& model, std::span<const Id> new_ids,
                   const AttentionInputs& inputs, LayerCache& cache) {
    const PreNormBlock& layer = model.layers[0];
    const Tensor3 hidden_states = layer.attention_norm(model.embed(one_sequence(new_ids)));
    const Tensor4 queries = project_qkv(layer.self_attn, hidden_states).queries;
    const Tensor4 attentions = layer.self_attn(hidden_states, inputs, &cache).attentions;
    const IdMatrix& positions = inputs.position_ids;
    return {to_text(hidden_states.shape()),
            to_text(positions(0, 0)) + " to " + to_text(positions(0, new_ids.size() - 1)),
            to_text(queries.shape()),
            to_text(cache.keys.shape()),
            to_text(inputs.attention_mask.shape()),
            to_text(attentions.shape())};
}

void prefill_and_decode(const Model& model, std::span<const Id> prompt,
                        std::span<const Id> new_token) {
    const RotaryTable table = model.rotary_table(prompt.size() + 1);
    const AttentionInputs prefill = causal_attention_inputs(table, 1, prompt.size());
    const AttentionInputs decode = causal_attention_inputs(table, 1, 1, prompt.size());
    const TableRow names = {"hidden_states",     "position_ids",   "queries",
                            "keys in the cache", "attention_mask", "attentions"};
    LayerCache cache;
    const TableRow prefill_shapes = shapes_of(model, prompt, prefill, cache);
    LayerCache copy = cache;
    const TableRow decode_shapes = shapes_of(model, new_token, decode, copy);
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < names.size(); ++i)
        rows.push_back({names[i], prefill_shapes[i], decode_shapes[i]});
    show_table({"", "prefill", "decode"}, rows);

    show("decode_mask", head_of(decode.attention_mask, 0, 0));
    const auto output = attention_of_layer_0(model, new_token, decode, cache);
    show("decode_weights", head_of(output.attentions, 0, 0));
}

void compare_logits(const Model& model, std::span<const Id> prompt,
                    std::span<const Id> new_token, const std::vector<Id>& ids) {
    step("The logits with and without the KV cache");
    KVCache cache = make_cache(model, ids.size());
    model.forward(one_sequence(prompt),
                  {.cache = &cache, .logits_to_keep = LogitsToKeep::last});
    const Vector cached_logits =
        last_logits(model.forward(one_sequence(new_token), {.cache = &cache}));
    const Vector logits =
        last_logits(model.forward(one_sequence(ids), {.logits_to_keep = LogitsToKeep::last}));
    show("cached_logits", cached_logits);
    show("within 1e-4 of the logits of a forward pass over the whole sequence",
         largest_difference(cached_logits, logits) < 1e-4);
}

void wrong_mask(const Model& model, std::span<const Id> prompt, std::span<const Id> new_token) {
    step("Wrong: the causal mask is upper-left aligned");
    const RotaryTable table = model.rotary_table(prompt.size() + 1);
    LayerCache cache;
    attention_of_layer_0(model, prompt, causal_attention_inputs(table, 1, prompt.size()),
                         cache);

    AttentionInputs inputs = causal_attention_inputs(table, 1, 1, prompt.size());
    for (std::size_t s = 1; s <= prompt.size(); ++s)
        inputs.attention_mask(0, 0, 0, s) = -infinity;
    const auto output = attention_of_layer_0(model, new_token, inputs, cache);
    show("wrong_mask", head_of(inputs.attention_mask, 0, 0));
    show("wrong_weights", head_of(output.attentions, 0, 0));
    say("Row 0 of an upper-left aligned mask is the row of position 0, so the new token "
        "attends to the first token only.");
}

void show_flops(const Model& model) {
    step("FLOPs of one token, in millions");
    std::vector<TableRow> rows;
    Line cached{"with a cache", {}, {}}, uncached{"without", {}, {}};
    const std::size_t lm_head = 2 * model.config.vocab_size * model.config.hidden_size;
    double all_layers = 0;
    for (std::size_t position = 0; position < model.config.max_position_embeddings;
         ++position) {
        // Without a cache, the layers process all earlier tokens again, the LM head does not.
        const std::uint64_t flops = flops_per_token(model.config, position);
        all_layers += double(flops - lm_head) / 1e6;
        const double with_cache = double(flops) / 1e6;
        const double without = all_layers + double(lm_head) / 1e6;
        for (Line* line : {&cached, &uncached}) line->x.push_back(double(position));
        cached.y.push_back(with_cache);
        uncached.y.push_back(without);
        if (((position + 1) & position) == 0 && (position == 0 || position >= 15))
            rows.push_back({to_text(position), fixed(with_cache, 2), fixed(without, 1),
                            fixed(without / with_cache, 0)});
    }
    show_table({"position", "with a cache", "without", "ratio"}, rows);
    plot("flops",
         {LinePlot{
             "Cost of one token", "position", "millions of FLOPs", {cached, uncached}, true}});
}

// Tokens that are timed together with a cache: one alone is too short for a browser's clock.
constexpr std::size_t num_timed_tokens = 8;

// Seconds per token from this position on, with and without a cache.
std::pair<double, double> seconds_per_token(const Model& model, std::size_t position) {
    const std::vector<Id> ids(position + 1, 1);
    KVCache cache = make_cache(model, position + num_timed_tokens);
    if (position > 0)
        model.forward(one_sequence(std::span(ids).first(position)), {.cache = &cache});
    std::vector<KVCache> caches(5, cache);
    std::size_t next = 0;
    const double with_cache = fastest_seconds(5, [&] {
        KVCache& own = caches[next++];
        for (std::size_t token = 0; token < num_timed_tokens; ++token)
            model.forward(IdMatrix{{1}}, {.cache = &own, .logits_to_keep = LogitsToKeep::last});
    });
    const double without = fastest_seconds(
        3, [&] { model.forward(one_sequence(ids), {.logits_to_keep = LogitsToKeep::last}); });
    return {with_cache / num_timed_tokens, without};
}

}  // namespace

void show_cache(const Model& model, const std::vector<Id>& ids) {
    const std::span<const Id> prompt(ids.data(), ids.size() - 1), new_token(&ids.back(), 1);
    step("KV cache: prefill and decode");
    show("input_ids", one_sequence(ids));
    prefill_and_decode(model, prompt, new_token);
    compare_logits(model, prompt, new_token, ids);
    wrong_mask(model, prompt, new_token);
    show_flops(model);
}

void measure_cache(const Model& model) {
    step("Time for one token on this machine, in milliseconds");
    std::vector<TableRow> rows;
    Line cached{"with a cache", {}, {}}, uncached{"without", {}, {}};
    const std::size_t last = std::min<std::size_t>(model.config.max_position_embeddings, 512);
    for (std::size_t position = 0; position + num_timed_tokens <= last;
         position += position < 32 ? 16 : 48) {
        const auto [with_cache, without] = seconds_per_token(model, position);
        for (Line* line : {&cached, &uncached}) line->x.push_back(double(position));
        cached.y.push_back(1 / with_cache);
        uncached.y.push_back(1 / without);
        rows.push_back({to_text(position), fixed(1000 * with_cache, 2),
                        fixed(1000 * without, 2), fixed(without / with_cache, 1)});
    }
    show_table({"position", "with a cache", "without", "ratio"}, rows);
    plot("speed",
         {LinePlot{"Speed", "position", "tokens per second", {cached, uncached}, true}});
}

}  // namespace llm
