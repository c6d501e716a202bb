// Chapter 11 — How does a model learn?
#pragma once

#include <functional>

#include "chapters/12_gradients/backward.hpp"

namespace llm {

// How surprised the model was by the tokens that did come: the mean of -ln p. For V tokens and
// no knowledge it is ln V. The gradient says how the loss grows with each logit: p - 1 for the
// token that came, p for the others, divided by N. Throws ShapeError if the sizes do not fit or
// an id is no token.
struct Loss {
    double value;
    Matrix gradient;  // (N, V)
};
Loss cross_entropy(const Matrix& logits,      // (N, V)
                   const IdVector& targets);  // (N)

// A step of the forward pass that has been taken, and its way back (a closure that has kept
// what it needs): from the gradient with respect to its output to the one with respect to its
// input, (N, C) -> (N, C). On its way it adds the gradients of its weights to the struct that
// was given for them. To be called once.
struct Taken {
    Matrix output;  // (N, C)
    std::function<Matrix(const Matrix& output_gradient)> back;
};
using Function = std::function<Taken(const Matrix& input)>;

// Parts of a block as such functions. Part, gradient and placement must outlive them. Throws
// ShapeError if an RMSNorm has a bias, whose gradient is not here.
Function trained(const RMSNorm& norm, RMSNorm& gradient);
Function trained(const LayerNorm& norm, LayerNorm& gradient);
Function trained(const GatedMlp& mlp, GatedMlp& gradient);
Function trained(const Mlp& mlp, Mlp& gradient);
// Throws ShapeError with use_qk_norm, whose way back is not here.
Function trained(const AttentionLayer& layer, const Placement& placement,
                 AttentionLayer& gradient);

// The arrangements of chapter 08 with any parts, there and back: (N, C) -> (N, C).
struct Parts {
    Function attend, mlp, attention_norm, ffn_norm;
};
Taken pre_norm(const Matrix& stream, const Parts& parts);       // x + f(norm(x))
Taken post_norm(const Matrix& stream, const Parts& parts);      // norm(x + f(x))
Taken res_post_norm(const Matrix& stream, const Parts& parts);  // x + norm(f(x))
Taken parallel(const Matrix& stream, const Parts& parts);       // x + f(norm(x)) + g(norm(x))

Function block_of(Taken (*arrangement)(const Matrix&, const Parts&), Parts parts);

// A table of vectors and its gradient: the embedding, or the head.
struct Table {
    const Matrix& weight;  // (V, C)
    Matrix& gradient;      // (V, C)
};

// A decoder of any parts: the embedding, the steps from stream to stream (blocks, then a norm),
// the head, the loss; and back. Returns the loss, adds the gradients.
double there_and_back(const IdMatrix& inputs, const IdMatrix& targets,  // (B, T)
                      const Table& embedding, const std::vector<Function>& steps,
                      const Table& head);

// The loss of a batch, and what each number of the model has to do with it: the gradients are
// added. Position t of inputs is to predict position t of targets. Throws ShapeError as the
// model does, and if the shapes differ.
double loss_and_gradients(const Model& model, const IdMatrix& inputs,                 // (B, T)
                          const IdMatrix& targets, Model& gradient);                  // (B, T)
double loss_of(const Model& model, const IdMatrix& inputs, const IdMatrix& targets);  // (B, T)

}  // namespace llm
