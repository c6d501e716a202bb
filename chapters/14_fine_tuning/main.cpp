// Chapter 14 — How does a model learn to answer? The program: masked log-probabilities, LoRA,
// DPO and GRPO on numbers small enough to read, then a tiny model that learns to copy words and
// is fine-tuned to reverse them.
#include <cmath>

#include "chapters/12_gradients/loss.hpp"
#include "chapters/13_training/trainer.hpp"
#include "chapters/14_fine_tuning/demo/ask.hpp"
#include "chapters/14_fine_tuning/demo/preference.hpp"
#include "chapters/14_fine_tuning/demo/reward.hpp"
#include "chapters/14_fine_tuning/demo/training.hpp"
#include "chapters/14_fine_tuning/evaluation.hpp"
#include "chapters/14_fine_tuning/log_probs.hpp"
#include "chapters/14_fine_tuning/lora.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

const std::vector<std::string> token_names = {"1", "+", "2", "=", "3", "."};

// Logits whose softmax gives each target its probability, and the other tokens equal shares.
Tensor3 logits_of(const std::vector<double>& probabilities,  // of the targets
                  const IdMatrix& targets) {                 // (1, T) -> (1, T, V)
    const std::size_t vocab_size = token_names.size();
    Tensor3 logits = xt::zeros<Real>({std::size_t(1), probabilities.size(), vocab_size});
    for (std::size_t t = 0; t < probabilities.size(); ++t) {
        const double rest = (1 - probabilities[t]) / double(vocab_size - 1);
        for (std::size_t v = 0; v < vocab_size; ++v)
            logits(0, t, v) = static_cast<Real>(std::log(rest));
        logits(0, t, static_cast<std::size_t>(targets(0, t))) =
            static_cast<Real>(std::log(probabilities[t]));
    }
    return logits;
}

void masked_log_probs() {
    step("Which targets count: the prompt 1+2= and the response 3.");
    const std::vector<Completion> completions = {{{0, 1, 2, 3}, {4, 5}}};
    const ResponseBatch batch = make_response_batch(completions, 5);
    const Tensor3 logits = logits_of({0.2, 0.1, 0.8, 0.5, 0.9}, batch.targets);  // (1, 5, 6)
    const Matrix log_probs = token_log_probs(logits, batch.targets);             // (1, 5)
    const TokenLoss sft = sft_loss(log_probs, batch.response_mask);
    std::vector<TableRow> rows;
    for (std::size_t t = 0; t < 5; ++t)
        rows.push_back({token_names[std::size_t(batch.input_ids(0, t))],
                        token_names[std::size_t(batch.targets(0, t))],
                        fixed(double(batch.response_mask(0, t)), 0),
                        fixed(std::exp(double(log_probs(0, t))), 2),
                        fixed(double(log_probs(0, t)), 4),
                        fixed(double(sft.gradient(0, t)) + 0.0, 2)});
    show_table({"input", "target", "mask", "p", "ln p", "gradient"}, rows);
    show("log-probability of the response",
         fixed(double(sequence_log_probs(log_probs, batch.response_mask)(0)), 4));
    const ResponseBatch everything = make_response_batch(completions, 5, LossOn::everything);
    show("loss on the response", fixed(sft.loss, 4));
    show("loss on everything", fixed(sft_loss(log_probs, everything.response_mask).loss, 4));
    show("chapter 12's cross-entropy", fixed(cross_entropy(logits, batch.targets), 4));
}

void padding() {
    step("Completions of unequal length are padded on the right");
    const ResponseBatch batch =
        make_response_batch({{{0, 1, 2, 3}, {4, 5}}, {{2, 3}, {2, 5}}}, 5);
    show("input_ids", batch.input_ids);
    show("targets", batch.targets);
    show("response_mask", batch.response_mask);
}

void one_lora_layer() {
    step("LoRA: one linear layer with an adapter of rank 1");
    const Linear linear{{{1, 0, 2}, {0, 1, -1}}, {}};
    LoraLayer layer{"example", {{1, 2, 0}}, {{0}, {0}}};
    const Matrix inputs{{1, 2, 3}};
    show("weight", linear.weight);
    show("input", inputs);
    show("output", linear(inputs));
    show("output_with_zero_B", lora_linear(linear, layer, 2, inputs));
    layer.lora_B = {{1}, {-1}};
    show("output_with_adapter", lora_linear(linear, layer, 2, inputs));
    const Matrix product = xt::linalg::dot(layer.lora_B, layer.lora_A);
    const Linear merged{linear.weight + product * Real(2), {}};
    show("merged_weight", merged.weight);
    show("merged_output", merged(inputs));
}

// A model of Mini-LLM's form, small enough to compute at once.
Config lora_config() {
    Config config = mini_llm_config();
    config.hidden_size = 64;
    config.intermediate_size = 176;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 64;
    config.max_position_embeddings = 32;
    return validate_model(config);
}

// Replaces B, which is 0, by random numbers, as if the adapter were trained.
void randomize_b(LoraAdapter& adapter, Generator& generator) {
    for (LoraLayer& layer : adapter.layers)
        layer.lora_B =
            randn({layer.lora_B.shape(0), layer.lora_B.shape(1)}, generator) * Real(0.02);
}

void lora_on_a_model(Generator& generator) {
    step("LoRA: a whole model, before and after merging");
    const Model model = make_model_for_training(lora_config(), generator);
    const IdMatrix input_ids{{1, 2, 3, 4, 5, 6}};
    LoraAdapter adapter = make_lora(model, {}, generator);
    const Tensor3 before = model(input_ids);
    const auto change_to = [&](const Model& other) {
        return fixed(double(largest_difference(before, other(input_ids))), 6);
    };
    show("change of the logits with B = 0", change_to(merge_lora(model, adapter)));
    randomize_b(adapter, generator);
    Model merged = merge_lora(model, adapter);
    show("change of the logits with another B", change_to(merged));
    unmerge_lora(merged, adapter);
    show("change of the logits after unmerging", change_to(merged));
}

void lora_parameters(Generator& generator) {
    step("LoRA: trainable parameters, and AdamW's bytes for them");
    const Model model = make_model_for_training(lora_config(), generator);
    const std::uint64_t all = count_parameters(model.config).total();
    std::vector<TableRow> rows = {
        {"all parameters", with_commas(all), "100.0", with_commas(optimizer_bytes(all))}};
    for (const std::size_t r : {1u, 4u, 8u, 16u}) {
        LoraConfig config;
        config.r = r;
        const std::uint64_t count = num_parameters(make_lora(model, config, generator));
        rows.push_back({"q_proj and v_proj, r = " + to_text(r), with_commas(count),
                        fixed(100.0 * double(count) / double(all), 1),
                        with_commas(optimizer_bytes(count))});
    }
    show_table({"trained", "parameters", "%", "AdamW, bytes"}, rows);
}

void multiple_choice() {
    step("Multiple choice: which answer is most probable?");
    // The log-probabilities of the tokens of each answer, after the same question.
    const std::vector<std::string> texts = {"no", "it depends on the weather"};
    const std::vector<std::size_t> lengths = {1, 5};
    const Vector log_probs{-2, -4};
    std::vector<TableRow> rows;
    for (std::size_t k = 0; k < 2; ++k)
        rows.push_back({texts[k], to_text(lengths[k]), fixed(double(log_probs(k)), 1),
                        fixed(double(log_probs(k)) / double(lengths[k]), 1)});
    show_table({"answer", "tokens", "ln p", "ln p per token"}, rows);
    show("by the sum", texts[most_likely_choice(log_probs, lengths, ChoiceScore::sum)]);
    show("per token", texts[most_likely_choice(log_probs, lengths, ChoiceScore::per_token)]);
}

int main(int argc, char** argv) {
    RunArguments run;
    AskArguments ask;
    Options options("14_fine_tuning", "How does a model learn to answer?");
    options.count("--base-steps", run.base_steps, 1, 10000, "steps of training on copying");
    options.count("--sft-steps", run.sft_steps, 1, 10000, "steps of fine-tuning on reversing");
    options.count("--grpo-steps", run.grpo_steps, 1, 10000, "steps of GRPO on reversing");
    options.number("--beta", run.beta, 0, 100, "weight of GRPO's KL penalty");
    options.text("--ask", ask.question, "a question; without --model, to the shipped model");
    models::add_model_path(options, ask.model, "a Hugging Face folder, which answers --ask");
    options.path("--adapter", ask.adapter, "its LoRA adapter, in PEFT's format");
    options.count("--max-new-tokens", ask.max_new_tokens, 1, 1 << 20, "the longest answer");
    options.needs("--model", "--ask");
    options.needs("--adapter", "--model");
    options.needs("--max-new-tokens", "--ask");
    for (const char* name : {"--train", "--test", "--method", "--folder"})
        options.moved(name, "./learn fine_tune MODEL");
    return options.run(argc, argv, [&] {
        if (options.given("--ask")) return ask_demo(ask);
        Generator generator(options.seed());
        masked_log_probs();
        padding();
        one_lora_layer();
        lora_on_a_model(generator);
        lora_parameters(generator);
        dpo_demo();
        grpo_demo();
        training_demo(run, options.seed());
        multiple_choice();
    });
}
