#include "chapters/18_experts/mixture_of_experts.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/12_gradients/linear_backward.hpp"
#include "common/tensors/elementwise.hpp"

namespace llm {
namespace {

bool scales_input(const Routing& routing) {
    return std::holds_alternative<InputSigmoidRouting>(routing);
}

// Multiplies each row by the routing weight of its token and slot.
Matrix apply_routing_weights(Matrix rows, const Matrix& routing_weights,
                             const Dispatch& dispatch) {
    for (std::size_t row = 0; row < rows.shape(0); ++row)
        for (std::size_t c = 0; c < rows.shape(1); ++c)
            rows(row, c) *= routing_weights(dispatch.tokens[row], dispatch.slots[row]);
    return rows;
}

// The dot product of each row with its gradient, at its token and slot, (M, C) -> (N, K).
Matrix row_dot_products(const Matrix& rows, const Matrix& row_gradient,
                        const Matrix& routing_weights, const Dispatch& dispatch) {
    Matrix gradient = xt::zeros<Real>(routing_weights.shape());  // (N, K)
    for (std::size_t row = 0; row < rows.shape(0); ++row)
        for (std::size_t c = 0; c < rows.shape(1); ++c)
            gradient(dispatch.tokens[row], dispatch.slots[row]) +=
                rows(row, c) * row_gradient(row, c);
    return gradient;
}

// Adds each row to the one of its token: the backward pass of gather_tokens.
Matrix add_to_tokens(const Matrix& rows, const Dispatch& dispatch, std::size_t num_tokens) {
    Matrix sums = xt::zeros<Real>({num_tokens, rows.shape(1)});  // (N, C)
    for (std::size_t row = 0; row < rows.shape(0); ++row)
        for (std::size_t c = 0; c < rows.shape(1); ++c)
            sums(dispatch.tokens[row], c) += rows(row, c);
    return sums;
}

// The rows of one expert as a batch of one sequence: (1, rows, C).
Tensor3 rows_of_expert(const Matrix& rows, const Dispatch& dispatch, std::size_t e) {
    const Matrix part =
        xt::view(rows, xt::range(dispatch.first_row[e], dispatch.first_row[e + 1]), xt::all());
    return reshape(part, {std::size_t{1}, part.shape(0), part.shape(1)});
}
void set_rows_of_expert(Matrix& rows, const Dispatch& dispatch, std::size_t e,
                        const Tensor3& part) {
    std::copy(part.begin(), part.end(), rows.data() + dispatch.first_row[e] * rows.shape(1));
}

bool has_tokens(const Dispatch& dispatch, std::size_t e) {
    return dispatch.first_row[e] < dispatch.first_row[e + 1];
}

Matrix token_rows(const Tensor3& states) {
    return reshape(states, {states.shape(0) * states.shape(1), states.shape(2)});
}

}  // namespace

Dispatch dispatch_tokens(const IdMatrix& experts, std::size_t num_experts) {
    const auto [num_tokens, num_slots] = dims(experts);
    Dispatch dispatch;
    dispatch.first_row.assign(num_experts + 1, 0);
    for (const Id expert : experts) {
        require(expert >= 0 && expert < static_cast<Id>(num_experts),
                "dispatch: there is no expert {} of {}", expert, num_experts);
        ++dispatch.first_row[static_cast<std::size_t>(expert) + 1];
    }
    for (std::size_t e = 0; e < num_experts; ++e)
        dispatch.first_row[e + 1] += dispatch.first_row[e];

    // A counting sort: the next free row of each expert.
    std::vector<std::size_t> next = dispatch.first_row;
    dispatch.tokens.resize(experts.size());
    dispatch.slots.resize(experts.size());
    for (std::size_t n = 0; n < num_tokens; ++n)
        for (std::size_t k = 0; k < num_slots; ++k) {
            const std::size_t row = next[static_cast<std::size_t>(experts(n, k))]++;
            dispatch.tokens[row] = n;
            dispatch.slots[row] = k;
        }
    return dispatch;
}

std::size_t expert_capacity(std::size_t num_choices, std::size_t num_experts,
                            double capacity_factor) {
    require(capacity_factor > 0, "expert_capacity: the capacity factor must be above 0");
    return static_cast<std::size_t>(
        std::ceil(double(num_choices) / double(num_experts) * capacity_factor));
}

Dispatch drop_over_capacity(const Dispatch& dispatch, std::size_t capacity) {
    Dispatch kept;
    kept.first_row = {0};
    for (std::size_t e = 0; e + 1 < dispatch.first_row.size(); ++e) {
        const std::size_t first = dispatch.first_row[e];
        const std::size_t last = std::min(dispatch.first_row[e + 1], first + capacity);
        for (std::size_t row = first; row < last; ++row) {
            kept.tokens.push_back(dispatch.tokens[row]);
            kept.slots.push_back(dispatch.slots[row]);
        }
        kept.first_row.push_back(kept.tokens.size());
    }
    return kept;
}

Matrix gather_tokens(const Matrix& hidden_states, const Dispatch& dispatch) {
    Matrix rows(std::array{dispatch.tokens.size(), hidden_states.shape(1)});  // (M, C)
    for (std::size_t row = 0; row < rows.shape(0); ++row)
        for (std::size_t c = 0; c < rows.shape(1); ++c)
            rows(row, c) = hidden_states(dispatch.tokens[row], c);
    return rows;
}

Matrix combine_experts(const Matrix& expert_outputs, const Matrix& routing_weights,
                       const Dispatch& dispatch) {
    return add_to_tokens(apply_routing_weights(expert_outputs, routing_weights, dispatch),
                         dispatch, routing_weights.shape(0));
}

Tensor3 MixtureOfExperts::operator()(const Tensor3& hidden_states) const {
    return moe_forward(*this, hidden_states).output;
}

namespace {

// Chooses the experts of each token, and sorts the pairs of token and expert by expert.
void route_tokens(const MixtureOfExperts& moe, std::optional<double> capacity_factor,
                  MoeActivations& saved) {
    saved.router_logits = moe.router(saved.input);
    const std::size_t num_experts = saved.router_logits.shape(1);
    saved.routed = route(saved.router_logits, moe.num_experts_per_tok, moe.routing);
    saved.dispatch = dispatch_tokens(saved.routed.experts, num_experts);
    if (capacity_factor)
        saved.dispatch = drop_over_capacity(
            saved.dispatch,
            expert_capacity(saved.routed.experts.size(), num_experts, *capacity_factor));
}

// The output of the shared expert, times its gate.
Tensor3 shared_forward(const MixtureOfExperts& moe, const Tensor3& input,  // (B, T, C)
                       MoeActivations& saved) {
    auto [output, activations] = mlp_forward(*moe.shared, input);
    saved.shared = std::move(activations);
    if (!moe.shared_gate) return output;
    saved.shared_output = output;
    return output * activate(Sigmoid, (*moe.shared_gate)(input));
}

// The gradient of the routing weights, (N, K). They multiply the outputs of the experts, or
// their inputs in Llama 4.
Matrix routing_weight_gradient_of(const MixtureOfExperts& moe, const MoeActivations& saved,
                                  const Matrix& row_gradient,           // (M, C)
                                  const Matrix& input_rows_gradient) {  // (M, C)
    const Matrix& routing_weights = saved.routed.weights;
    if (scales_input(moe.routing))
        return row_dot_products(gather_tokens(saved.input, saved.dispatch), input_rows_gradient,
                                routing_weights, saved.dispatch);
    return row_dot_products(saved.expert_outputs, row_gradient, routing_weights,
                            saved.dispatch);
}

// The gradient with respect to the input, through the shared expert and its gate.
Tensor3 shared_backward(const MixtureOfExperts& moe, const MoeActivations& saved,
                        const Tensor3& output_gradient,  // (B, T, C)
                        MixtureOfExperts& gradient) {
    if (!moe.shared_gate)
        return mlp_backward(*moe.shared, saved.shared, output_gradient, *gradient.shared);
    const auto [batch_size, seq_len, hidden_size] = dims(output_gradient);
    const Tensor3 input = reshape(saved.input, {batch_size, seq_len, hidden_size});
    const Tensor3 before = (*moe.shared_gate)(input);  // (B, T, 1)
    const Matrix products = token_rows(output_gradient * saved.shared_output);
    const Tensor3 gate_gradient = reshape(row_sum(products), {batch_size, seq_len, 1});
    return mlp_backward(*moe.shared, saved.shared, output_gradient * activate(Sigmoid, before),
                        *gradient.shared) +
           linear_backward(*moe.shared_gate, input,
                           gate_gradient * activation_derivative(Sigmoid, before),
                           *gradient.shared_gate);
}

}  // namespace

void apply_experts(const MixtureOfExperts& moe, const Matrix& rows, MoeActivations& saved) {
    require(saved.dispatch.first_row.size() == moe.experts.size() + 1,
            "apply_experts: rows of {} experts, but there are {}",
            saved.dispatch.first_row.size() - 1, moe.experts.size());
    // A few large products instead of many small ones.
    saved.experts.assign(moe.experts.size(), {});
    saved.expert_outputs = Matrix(rows.shape());
    for (std::size_t e = 0; e < moe.experts.size(); ++e)
        if (has_tokens(saved.dispatch, e)) {
            auto [outputs, activations] =
                expert_forward(moe.experts[e], rows_of_expert(rows, saved.dispatch, e));
            set_rows_of_expert(saved.expert_outputs, saved.dispatch, e, outputs);
            saved.experts[e] = std::move(activations);
        }
}

Matrix experts_backward(const MixtureOfExperts& moe, const MoeActivations& saved,
                        const Matrix& output_gradient, MixtureOfExperts& gradient) {
    Matrix rows_gradient = xt::zeros<Real>(output_gradient.shape());  // (M, C)
    for (std::size_t e = 0; e < moe.experts.size(); ++e)
        if (has_tokens(saved.dispatch, e))
            set_rows_of_expert(
                rows_gradient, saved.dispatch, e,
                expert_backward(moe.experts[e], saved.experts[e],
                                rows_of_expert(output_gradient, saved.dispatch, e),
                                gradient.experts[e]));
    return rows_gradient;
}

ForwardPass<MoeActivations> moe_forward(const MixtureOfExperts& moe, const Tensor3& input,
                                        std::optional<double> capacity_factor,
                                        const std::function<decltype(apply_experts)>& apply) {
    MoeActivations saved;
    saved.input = token_rows(input);
    route_tokens(moe, capacity_factor, saved);
    const Matrix& routing_weights = saved.routed.weights;

    // Gather the tokens of each expert, apply the experts, and add their outputs to the tokens.
    // The routing weights multiply outputs, or inputs in Llama 4.
    const bool on_input = scales_input(moe.routing);
    Matrix rows = gather_tokens(saved.input, saved.dispatch);  // (M, C)
    if (on_input)
        rows = apply_routing_weights(std::move(rows), routing_weights, saved.dispatch);
    apply(moe, rows, saved);
    const Matrix combined =  // (N, C)
        on_input ? add_to_tokens(saved.expert_outputs, saved.dispatch, saved.input.shape(0))
                 : combine_experts(saved.expert_outputs, routing_weights, saved.dispatch);

    Tensor3 output = reshape(combined, {input.shape(0), input.shape(1), input.shape(2)});
    if (moe.shared) output += shared_forward(moe, input, saved);
    return {std::move(output), std::move(saved)};
}

Tensor3 moe_backward(const MixtureOfExperts& moe, const MoeActivations& saved,
                     const Tensor3& output_gradient, MixtureOfExperts& gradient,
                     const std::function<decltype(experts_backward)>& backward) {
    const bool on_input = scales_input(moe.routing);
    const Matrix& routing_weights = saved.routed.weights;
    const std::size_t num_tokens = saved.input.shape(0);

    // Each row receives the gradient of its token, times its routing weight.
    const Matrix row_gradient = gather_tokens(token_rows(output_gradient), saved.dispatch);
    const Matrix expert_gradient =  // (M, C)
        on_input ? row_gradient
                 : apply_routing_weights(row_gradient, routing_weights, saved.dispatch);
    Matrix input_rows_gradient = backward(moe, saved, expert_gradient, gradient);

    // The gradient of the routing weights continues to the logits of the router.
    Matrix logits_gradient = route_backward(  // (N, E)
        saved.router_logits, saved.routed, moe.routing,
        routing_weight_gradient_of(moe, saved, row_gradient, input_rows_gradient));
    if (saved.router_logits_gradient) logits_gradient += *saved.router_logits_gradient;

    // Add the gradients of a token's rows, and that of the router.
    if (on_input)
        input_rows_gradient = apply_routing_weights(std::move(input_rows_gradient),
                                                    routing_weights, saved.dispatch);
    const Matrix input_gradient =  // (N, C): through the experts and through the router
        add_to_tokens(input_rows_gradient, saved.dispatch, num_tokens) +
        linear_backward(moe.router, saved.input, logits_gradient, gradient.router);
    const Tensor3 result =
        reshape(input_gradient,
                {output_gradient.shape(0), output_gradient.shape(1), output_gradient.shape(2)});
    if (!moe.shared) return result;
    return result + shared_backward(moe, saved, output_gradient, gradient);
}

}  // namespace llm
