// Chapter 27: pictures as patches, a ViT that tells shapes apart, and pictures of other sizes.
#pragma once

#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/27_vision/vision.hpp"

namespace llm {

// A ViT, and a linear layer that reads the class token or the mean of the patches. Source:
// Hugging Face, ViTForImageClassification.
struct PictureClassifier {
    VitModel vit;
    Linear classifier;  // (classes, C)
    Pooling pooling;

    Matrix operator()(const Tensor4& pixel_values) const;  // (B, 1, h, w) -> (B, classes)
};
std::vector<Parameter> named_parameters(PictureClassifier& model);

void patches_of_a_picture();
void train_on_shapes(std::size_t num_steps, std::uint32_t seed);
// Trains one to say where a spot is, and shows it pictures of other sizes.
void spots_in_other_sizes(std::size_t num_steps, std::uint32_t seed);

}  // namespace llm
