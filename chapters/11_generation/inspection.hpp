// Chapter 10, second part: what happens inside while a text is read.
#pragma once

#include <vector>

#include "chapters/11_generation/generation.hpp"

namespace llm {

// The stream before the first layer and after each, and the attention of each layer. Throws
// ShapeError if an id is no token or the text is too long.
struct Inside {
    std::vector<Tensor3> stream;       // L + 1 times (1, T, C)
    std::vector<Attention> attention;  // L
};
Inside look_inside(const Model& model, const std::vector<Id>& ids);  // T

// What query t takes from each token it sees, one row a head.
Matrix weights_of_query(const Attention& attention, std::size_t t);  // (H, t + 1)

// What would come behind token t if the model ended with this stream: the final norm and the
// head, as after the last layer. Source: nostalgebraist, "interpreting GPT: the logit lens",
// 2020.
Vector logit_lens(const Model& model, const Tensor3& stream,
                  std::size_t t);  // probabilities, (V)

}  // namespace llm
