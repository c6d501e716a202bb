// Chapter 28: machines that are published, for estimates.
#pragma once

#include "chapters/28_model_parallel/mesh_time.hpp"

namespace llm {

// An NVIDIA H100 SXM computes 989 TFLOP/s in bfloat16 without sparsity, and sends 450 GB/s by
// NVLink 4 (data sheet: 900 GB/s in both directions). 40 % of the peak are reached in training:
// 38 % to 43 % in "The Llama 3 Herd of Models" (2024), table 4. Alpha is that of a ring in
// NCCL's model of itself (src/graph/tuning.cc, "Simple"): 3.4 microseconds with NVLink, 14 with
// a network.
constexpr double h100_flops_per_second = 0.4 * 989e12;
constexpr Network nvlink{3.4e-6, 1 / 450e9};

// Between machines of 8 GPUs, each GPU has an InfiniBand NDR port of 400 Gb/s, or 10 Gb/s of
// Ethernet.
constexpr Cluster infiniband_cluster{h100_flops_per_second, 8, nvlink, {14e-6, 1 / 50e9}};
constexpr Cluster ethernet_cluster{h100_flops_per_second, 8, nvlink, {14e-6, 1 / 1.25e9}};

// Bytes of a number that is sent, and of what is kept of a parameter, in mixed precision.
constexpr std::size_t bytes_per_bfloat16 = 2;
constexpr BytesPerParameter bytes_in_mixed_precision = {2, 2, 12};

}  // namespace llm
