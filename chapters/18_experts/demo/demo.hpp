// The demos of chapter 18's program.
#pragma once

#include <optional>
#include <string>

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/18_experts/mixture_model.hpp"
#include "chapters/18_experts/mixture_training.hpp"
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
void collapse(const std::vector<Id>& tokens, std::size_t vocab_size, const MixtureSizes& sizes,
              Real aux_loss_coefficient, std::uint32_t seed);

// specialization.cpp: what the experts of a trained model process.
void load_of_layers(const MixtureModel& model, const std::vector<Id>& tokens);
void words_of_experts(const MixtureModel& model, const Tokenizer& tokenizer,
                      const std::vector<Id>& tokens);

// experiments.cpp: mixtures against dense models, with several seeds.
void train_against_dense(const std::vector<Id>& tokens, std::size_t vocab_size,
                         std::size_t num_steps, std::size_t num_seeds,
                         const std::string& save_folder);

// model.cpp: a published model: its layers, its logits for these tokens, the text that it
// writes after a prompt, and a copy of it in another folder.
struct MixtureModelRun {
    std::string model_path, tokenizer_path, export_folder, gguf_file;
    std::vector<Id> tokens;             // none: no logits
    std::optional<std::string> prompt;  // none: no text
    GenerationConfig generation;
};
void run_model(const MixtureModelRun& run, Generator& generator);

}  // namespace llm
