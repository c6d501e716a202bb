// How much memory and computation a model needs: ./learn size.
#pragma once

#include "chapters/models/anatomy.hpp"
#include "common/output/show.hpp"

namespace llm::models {

// The number of tokens that a token at a position (from 0) attends to, itself included.
std::uint64_t num_attended(const AttentionPattern& pattern, std::uint64_t position);

// FLOPs of the forward pass for one token at a position: two per element of each matrix by
// which it is multiplied (with experts: those that it uses), and four per feature of each query
// head for each token that it attends to; latent attention in the cheaper order of chapter 19.
// Equal to chapter 09's flops_per_token for its models.
std::uint64_t flops_per_token(const FamilyConfig& config, std::uint64_t position);
// The sum for the first seq_len positions. (Prompts are processed at once, and the head is then
// needed for the last token alone; it is counted for all.)
double flops_of_prefill(const FamilyConfig& config, std::uint64_t seq_len);

// The bytes of keys and values of all layers after seq_len tokens of each sequence.
std::uint64_t kv_cache_bytes(const FamilyConfig& config, std::uint64_t seq_len,
                             std::uint64_t batch_size, std::size_t bytes_per_element);

// Prints what a model needs for a batch of sequences of this length, each number with its
// formula and the chapter that explains it.
void show_size(const PublishedExample& example, std::uint64_t seq_len,
               std::uint64_t batch_size);

// Rows of that table: the bytes of this many parameters in four types, and while they are
// trained. Numbers of bytes and FLOPs: "6.74 GB", "12.30 TFLOPs".
std::vector<TableRow> weight_rows(double parameters);
TableRow training_row(double parameters);
std::string bytes_as_text(double number);
std::string flops_as_text(double number);

// ", one shared", ", 2 shared", or nothing.
std::string shared_experts_of(const ExpertSizes& experts);

}  // namespace llm::models
