#include "chapters/05_gqa/demo/optional.hpp"

#include <cmath>

#include "chapters/05_gqa/dropout.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/show.hpp"

namespace llm {

void einsum_that_sums_over_the_group(const QueriesKeysValues& heads) {
    const auto [batch_size, num_heads, query_len, head_dim] = dims(heads.queries);
    const std::size_t num_kv_heads = heads.keys.shape(1);
    if (num_heads == num_kv_heads) return;

    step("Wrong: an einsum that sums over the query heads of a group");
    // bghnd,bhsd->bhns has no g in its output, so the queries of a group are summed.
    Matrix summed_queries = xt::zeros<Real>({query_len, head_dim});
    for (std::size_t g = 0; g < num_heads / num_kv_heads; ++g)
        summed_queries = summed_queries + head_of(heads.queries, 0, g);
    show("query heads in the result", num_kv_heads);
    show("attn_scores_summed", attention_scores(summed_queries, head_of(heads.keys, 0, 0)));
    say("There is one score matrix per group instead of one per query head, so the result has "
        "Hkv heads. The correct einsum keeps the g: bghnd,bhsd->bghns.");
}

void norm_of_queries_and_keys(const QueriesKeysValues& heads,  // after RoPE
                              Real eps) {
    const auto largest_score = [](const Tensor4& queries, const Tensor4& keys) {
        const Matrix scores =
            xt::abs(attention_scores(head_of(queries, 0, 0), head_of(keys, 0, 0)));
        return xt::amax(scores)();
    };
    step("QK norm without weights (Llama 4): a root mean square of 1");
    const Tensor4 normalized_queries = rms_normalize(heads.queries, eps);
    const Tensor4 normalized_keys = rms_normalize(heads.keys, eps);
    show("normalized_queries", normalized_queries);
    show("largest |score| of head 0, before", largest_score(heads.queries, heads.keys));
    show("after", largest_score(normalized_queries, normalized_keys));
    show("√D, which no score exceeds", std::sqrt(static_cast<Real>(heads.keys.shape(3))));
}

void order_of_norm_and_rope(const Tensor4& states,  // (B, Hkv, T, D), any states
                            const AttentionInputs& inputs, Real eps, Generator& generator) {
    const auto rotate = [&](const Tensor4& x) {
        return apply_rotary_embedding(x, inputs.rotary_table, inputs.position_ids);
    };
    step("QK norm before or after RoPE?");
    const Tensor4 norm_first = rotate(rms_normalize(states, eps));
    const Tensor4 rope_first = rms_normalize(rotate(states), eps);
    show("without weights, difference", largest_difference(norm_first, rope_first));
    const Tensor4 weight = rand({1, 1, 1, states.shape(3)}, generator);
    const Tensor4 weighted_norm_first = rotate(rms_normalize(states, eps) * weight);
    const Tensor4 weighted_rope_first = rms_normalize(rotate(states), eps) * weight;
    show("with weights, difference",
         largest_difference(weighted_norm_first, weighted_rope_first));
    say("A rotation preserves the norm of a vector, so without weights the order does not "
        "matter. Weights scale each feature differently, and RoPE then mixes the two features "
        "of a pair, so with weights it does.");
}

void dropout_of_weights(Generator& generator) {
    step("Dropout: in training, sets random weights to 0, scales up the others");
    const Tensor4 ones = xt::ones<Real>({1, 1, 2, 8});
    const Tensor4 weights = ones / Real(8);
    show("weights_before_dropout", weights);
    show("weights_after_dropout", dropout(weights, Real(0.25), generator));
}

}  // namespace llm
