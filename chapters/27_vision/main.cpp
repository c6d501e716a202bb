// Chapter 27 — How does a transformer see? This program cuts pictures into patches, trains a
// ViT to tell shapes apart, and shows it pictures of other sizes.
#include "chapters/27_vision/demo/pictures.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    std::size_t num_steps = 200;
    Options options("27_vision", "How does a transformer see?");
    options.count("--steps", num_steps, 1, 100'000, "steps of each training");
    return options.run(argc, argv, [&] {
        patches_of_a_picture();
        train_on_shapes(num_steps, options.seed());
        spots_in_other_sizes(num_steps, options.seed());
    });
}
