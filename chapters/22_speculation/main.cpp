// Chapter 22 — How can one step give several tokens? This program accepts and rejects proposed
// tokens by hand, verifies the proposals of a draft in one step of the shipped model, and
// compares drafts: n-grams, the first layers, and a module for multi-token prediction.
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/22_speculation/demo/speculation.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    VerificationDemo verification;
    Options options("22_speculation", "How can one step give several tokens?");
    options.text("--prompt", verification.prompt, "the text before the proposals of step 2");
    options.count("--draft-layers", verification.draft_layers, 1, 3,
                  "the draft of step 2: the first layers of the model");
    options.count("--num-proposals", verification.num_proposals, 1, 16,
                  "K, the tokens that the draft of step 2 proposes");
    return options.run(argc, argv, [&] {
        Generator generator(options.seed());
        const std::string path = asset("king_james");
        const Model model = models::load_model(path);
        const Tokenizer tokenizer =
            models::load_tokenizer_of_model(path, "", model.config.vocab_size);
        const FastModel fast = make_fast_model(model, DType::float32);
        const FastMtpModule mtp = make_fast_mtp_module(
            load_mtp_module(asset("king_james_mtp/model.safetensors"), model.config), fast);
        const std::vector<Id> prompt = prompt_ids(fast, tokenizer, verification);
        speculative_sampling_by_hand(generator);
        one_verification_step(fast, tokenizer, verification, prompt);
        ngram_proposals();
        tokens_per_step(fast, mtp, tokenizer);
        acceptance_by_temperature(fast, mtp, tokenizer);
    });
}
