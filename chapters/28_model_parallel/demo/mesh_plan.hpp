// Chapter 28: a mesh: who talks to whom, how many bytes, and how long a step takes.
#pragma once

#include <cstdint>

#include "common/system/options.hpp"

namespace llm {

// The options of a plan that is printed instead of the steps.
struct MeshArguments {
    std::vector<std::string> sizes;  // "data=4", "tensor=2"
    std::string config = "mini_llm";
    std::size_t global_batch_size = 512, micro_batch_size = 1, seq_len = 2048;
    bool sequence_parallel = false;
};
void add_mesh_options(Options& options, MeshArguments& arguments);
// Throws ValueError if an axis or a size is none, or if the model cannot be divided so.
void print_mesh_plan(const MeshArguments& arguments);

void picture_of_a_mesh();
void planned_and_counted_bytes(std::uint32_t seed);
void split_of_published_model();

}  // namespace llm
