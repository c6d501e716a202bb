// Chapter 09 — What is a whole model? The program passes five words through the shipped model
// and four token ids through Mini-LLM, with random weights or those of a checkpoint, and shows
// each tensor up to the probabilities of the next token. Then it counts the parameters and
// FLOPs of published models.
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/05_gqa/dropout.hpp"
#include "chapters/09_full_model/demo/published_models.hpp"
#include "chapters/09_full_model/demo/words.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

void show_configuration(const std::string& path, const Config& config) {
    const std::array biases = {"none", "qkv", "qkvo"};
    const std::array qk_norms = {"none", "without weights", "with weights", "over all heads"};
    const std::array rope_scalings = {"llama3", "a factor for each frequency", "none"};
    step("Configuration");
    show("loaded from", path);
    show("hidden_size", config.hidden_size);
    show("num_hidden_layers", config.num_hidden_layers);
    show("num_attention_heads", config.num_attention_heads);
    show("num_key_value_heads", config.num_key_value_heads);
    show("head_dim", config.head_dim);
    show("intermediate_size", config.intermediate_size);
    show("vocab_size", config.vocab_size);
    show("max_position_embeddings", config.max_position_embeddings);
    show("rms_norm_eps", config.rms_norm_eps);
    show("rope_theta", config.rope_theta);
    show("rope_scaling",
         rope_scalings.at(config.rope_scaling ? config.rope_scaling->index() : 2));
    show("tie_word_embeddings", config.tie_word_embeddings);
    show("qk_norm", qk_norms.at(static_cast<std::size_t>(config.qk_norm)));
    show("attention_bias", biases.at(static_cast<std::size_t>(config.attention_bias)));
}

void show_parameters(const Model& model) {
    step("Parameters by part of the model");
    const ParameterCount count = count_parameters(model);
    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, std::uint64_t parameters) {
        const double share =
            100 * static_cast<double>(parameters) / static_cast<double>(count.total());
        rows.push_back({name, with_commas(parameters), fixed(share, 2)});
    };
    row("embedding", count.embedding);
    row("attention", count.attention);
    row("MLP", count.mlp);
    row("norms", count.norms);
    row(model.lm_head ? "head" : "head (tied)", count.head);
    row("total", count.total());
    show_table({to_text(model.layers.size()) + " layers", "parameters", "%"}, rows);
}

void show_first_layer(const Model& model, const Tensor3& hidden_states) {
    const PreNormBlock& layer = model.layers[0];
    const std::size_t seq_len = hidden_states.shape(1);
    const AttentionInputs inputs =
        causal_attention_inputs(model.rotary_table(seq_len), 1, seq_len);

    step("Layer 0: norm, attention, residual connection");
    const Tensor3 attention_input = layer.attention_norm(hidden_states);
    const Tensor3 attention_output = layer.self_attn(attention_input, inputs).hidden_states;
    const Tensor3 after_attention = hidden_states + attention_output;
    show("attention_input", attention_input);
    show("attention_output", attention_output);
    show("after_attention", after_attention);

    step("Layer 0: norm, MLP, residual connection");
    const Tensor3 mlp_input = layer.ffn_norm(after_attention);
    const Tensor3 mlp_output = layer.mlp(mlp_input);
    show("mlp_input", mlp_input);
    show("mlp_output", mlp_output);
    show("after_layer_0", after_attention + mlp_output);
}

// The three most likely next tokens at each of the last four positions.
void show_predictions(const Tensor3& logits, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len, vocab_size] = dims(logits);
    Matrix probabilities = softmax(reshape(logits, {seq_len, vocab_size}));
    std::vector<TableRow> rows;
    for (std::size_t t = std::max<std::size_t>(seq_len, 4) - 4; t < seq_len; ++t) {
        rows.push_back({to_text(t), to_text(input_ids(0, t))});
        Real* const first = &probabilities(t, 0);
        for (int rank = 0; rank < 3; ++rank) {
            Real* const best = std::max_element(first, first + vocab_size);
            rows.back().push_back(to_text(best - first));
            rows.back().push_back(fixed(*best, 4));
            *best = -1;
        }
    }
    show_table({"position", "id", "most likely", "p", "second", "p", "third", "p"}, rows);
}

// Cross-entropy: the mean of -ln p of the actual next tokens. From logits, because p can
// underflow to 0.
double loss(const Tensor3& logits, const IdMatrix& input_ids) {
    double sum = 0;
    for (std::size_t t = 0; t + 1 < logits.shape(1); ++t) {
        const auto next = static_cast<std::size_t>(input_ids(0, t + 1));
        sum += log_sum_exp({&logits(0, t, 0), logits.shape(2)}) - double(logits(0, t, next));
    }
    return sum / static_cast<double>(logits.shape(1) - 1);
}

// Shows the forward pass; returns the logits and all hidden states.
ModelOutput show_forward_pass(const Model& model, const IdMatrix& input_ids) {
    const ModelOutput output = model.forward(input_ids, {.output_hidden_states = true});
    const std::vector<Tensor3>& hidden_states = output.hidden_states;
    step("Embedding: each id selects a row of embed_tokens");
    show("input_ids", input_ids);
    show_shape("embed_tokens", model.embed_tokens);
    show("hidden_states", hidden_states[0]);
    show_first_layer(model, hidden_states[0]);

    step("All layers: RMS of the residual stream");
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < hidden_states.size(); ++n)
        rows.push_back({n == 0 ? "embedding" : "after layer " + to_text(n - 1),
                        fixed(root_mean_square(hidden_states[n]), 4)});
    show_table({"", "RMS"}, rows);

    step("Final norm and head: one logit for each token of the vocabulary");
    show("final_hidden_states", model.norm(hidden_states.back()));
    show("logits", output.logits);
    show_predictions(output.logits, input_ids);
    return output;
}

void show_initial_loss(const Model& model, const Tensor3& logits, const IdMatrix& input_ids) {
    if (input_ids.shape(1) < 2) return;
    step("The loss of an untrained model with embeddings of standard deviation 1");
    show("loss", loss(logits, input_ids));
    show("loss of a uniform prediction, ln V",
         std::log(static_cast<double>(model.config.vocab_size)));
    say("Every position predicts its own input token. The residual stream still consists "
        "mostly of the embedding of that token, and the tied head is the same matrix: the dot "
        "product of an embedding with itself is about C, with other embeddings it is much "
        "smaller.");
}

Line rms_line(const std::string& label, const std::vector<Tensor3>& hidden_states) {
    Line line{label, {}, {}};
    for (std::size_t n = 0; n < hidden_states.size(); ++n) {
        line.x.push_back(static_cast<double>(n));
        line.y.push_back(root_mean_square(hidden_states[n]));
    }
    return line;
}

void show_smaller_weights(Model& model, const IdMatrix& input_ids,
                          const std::vector<Tensor3>& default_hidden_states,
                          Generator& generator) {
    step("The same model, initialized with a standard deviation of 0.02");
    init_normal(model, Real(0.02), generator);
    const ModelOutput output = model.forward(input_ids, {.output_hidden_states = true});
    show("small_logits", output.logits);
    show_predictions(output.logits, input_ids);
    if (input_ids.shape(1) > 1) show("loss", loss(output.logits, input_ids));
    plot("stream", {LinePlot{"RMS of the residual stream",
                             "layers applied",
                             "RMS",
                             {rms_line("PyTorch's defaults", default_hidden_states),
                              rms_line("standard deviation 0.02", output.hidden_states)}}});

    step("Dropout: in training, Mini-LLM applies it to the embeddings, too");
    show("dropped_hidden_states", dropout(model.embed(input_ids), Real(0.1), generator));
}

Model make_mini_llm(Generator& generator) {
    step("Mini-LLM: initializing its weights");
    return make_model(mini_llm_config(), generator, RopeLayout::interleaved);
}

int main(int argc, char** argv) {
    std::string model_path, export_folder;
    std::vector<Id> tokens = {1, 334, 3855, 288};
    Options options("09_full_model", "What is a whole model?");
    models::add_model_path(options, model_path,
                           "a checkpoint: Hugging Face folder, GGUF or llama2.c file");
    options.ids("--tokens", tokens, "the input ids");
    options.folder("--export", export_folder, "folder to write the model to, for Hugging Face");

    return options.run(argc, argv, [&] {
        IdMatrix input_ids = xt::zeros<Id>({std::size_t{1}, tokens.size()});
        std::copy(tokens.begin(), tokens.end(), input_ids.begin());
        Generator generator(options.seed());
        const bool random_weights = model_path.empty();
        if (random_weights) {
            check_input(mini_llm_config(), input_ids);
            show_words_through_model();
        }
        Model model =
            random_weights ? make_mini_llm(generator) : models::load_model(model_path);
        check_input(model.config, input_ids);

        if (!random_weights) show_configuration(model_path, model.config);
        show_parameters(model);
        const ModelOutput output = show_forward_pass(model, input_ids);
        if (!export_folder.empty()) {
            models::export_model(model, export_folder);
            show("exported to", export_folder);
        }
        if (!random_weights) return;
        show_initial_loss(model, output.logits, input_ids);
        show_smaller_weights(model, input_ids, output.hidden_states, generator);
        show_published_parameters();
        show_costs();
        show_design_choices();
    });
}
