#include "chapters/11_generation/inspection.hpp"

#include "chapters/11_generation/sampling.hpp"

namespace llm {

Matrix attentions_of_query(const Tensor4& attentions, std::size_t t) {
    require(t < attentions.shape(2), "attentions: there is no query {} in {}", t,
            attentions.shape());
    return xt::view(attentions, 0, xt::all(), t, xt::range(0, t + 1));  // (H, t + 1)
}

Vector logit_lens(const Model& model, const Tensor3& hidden_states, std::size_t t) {
    require(t < hidden_states.shape(1), "logit_lens: there is no position {} in {}", t,
            hidden_states.shape());
    const Tensor3 row = xt::view(hidden_states, xt::all(), xt::range(t, t + 1));  // (1, 1, C)
    const Tensor3 logits = model.logits(row);                                     // (1, 1, V)
    return softmax(reshape(logits, {logits.size()}));                             // (V)
}

}  // namespace llm
