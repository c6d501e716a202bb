// The demos of chapter 18's program.
#pragma once

#include <optional>
#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/18_experts/moe_training.hpp"
#include "chapters/models/published_model.hpp"
#include "common/output/show.hpp"

namespace llm {

// routing.cpp: from router logits to outputs, by hand; published routers and sizes.
void route_by_hand();
void published_routers();
void dispatch_by_hand(Generator& generator);
void published_sizes();

// balance.cpp: the losses of a router, dropped tokens, and short training runs.
void losses_by_hand();
void dropped_tokens();
void collapse(const std::vector<Id>& tokens, std::size_t vocab_size, const ExpertSizes& sizes,
              Real aux_loss_coefficient, std::uint32_t seed);

// specialization.cpp: what the experts of a trained model process.
void load_of_layers(const PublishedModel& model, const std::vector<Id>& tokens);
void words_of_experts(const PublishedModel& model, const Tokenizer& tokenizer,
                      const std::vector<Id>& tokens);

}  // namespace llm
