// Chapter 09 — What is a whole model? The walk: four tokens through Mini-LLM, from their ids to
// the probabilities of the next one, and what models of this kind weigh. Or any model that you
// give it.
#include <cmath>

#include "chapters/09_full_model/checkpoint.hpp"
#include "common/numbers/statistics.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

using namespace llm;

void parameters(const Model& model) {
    step("What the model consists of");
    const ParameterCount count = count_parameters(model);
    std::vector<TableRow> rows;
    const auto row = [&](const std::string& name, std::size_t parameters) {
        const double share =
            100 * static_cast<double>(parameters) / static_cast<double>(count.total());
        rows.push_back({name, with_commas(parameters), fixed(share, 2)});
    };
    row("embedding", count.embedding);
    row("attention", count.attention);
    row("MLP", count.mlp);
    row("norms", count.norms);
    row(model.lm_head ? "head" : "head (the embedding)", count.head);
    row("all", count.total());
    show_table({to_text(model.layers.size()) + " layers", "parameters", "%"}, rows);
}

void first_block(const Model& model, const Tensor3& hidden_states, const Placement& placement) {
    const PreNormBlock& block = model.layers[0];
    step("Layer 0, opened: norm, attention, add");
    const Tensor3 attention_input = block.attention_norm(hidden_states);
    const Tensor3 attention_output = block.attend(attention_input, placement);
    const Tensor3 after_attention = hidden_states + attention_output;
    show("attention_input", attention_input);
    show("attention_output", attention_output);
    show("after_attention", after_attention);

    step("Layer 0: norm, MLP, add");
    const Tensor3 mlp_input = block.ffn_norm(after_attention);
    const Tensor3 mlp_output = block.mlp(mlp_input);
    show("mlp_input", mlp_input);
    show("mlp_output", mlp_output);
    show("after_layer_0", after_attention + mlp_output);
}

// The stream before the first layer and after each.
std::vector<Tensor3> through_all_layers(const Model& model, const IdMatrix& input_ids) {
    const Placement placement = model.placement(1, input_ids.shape(1));
    std::vector<Tensor3> stream = {model.embed(input_ids)};
    for (const PreNormBlock& layer : model.layers)
        stream.push_back(layer(stream.back(), placement));
    return stream;
}

Line sizes_of(const std::string& label, const std::vector<Tensor3>& stream) {
    Line line{label, {}, {}};
    for (std::size_t layer = 0; layer < stream.size(); ++layer) {
        line.x.push_back(static_cast<double>(layer));
        line.y.push_back(root_mean_square(stream[layer]));
    }
    return line;
}

Vector row_of(const Tensor3& logits, std::size_t t) {
    Vector row(std::array{logits.shape(2)});
    for (std::size_t v = 0; v < row.size(); ++v) row(v) = logits(0, t, v);
    return row;
}

// The probabilities of the token that follows position t.
Vector probabilities(const Tensor3& logits, std::size_t t) {
    const std::size_t vocab_size = logits.shape(2);
    const Matrix row = reshape(row_of(logits, t), {1, vocab_size});
    return reshape(softmax(row), {vocab_size});
}

void likeliest(const Tensor3& logits, const IdMatrix& input_ids) {
    std::vector<TableRow> rows;
    for (std::size_t t = std::max<std::size_t>(logits.shape(1), 4) - 4; t < logits.shape(1);
         ++t) {
        Vector rest = probabilities(logits, t);
        rows.push_back({to_text(t), to_text(input_ids(0, t))});
        for (int place = 0; place < 3; ++place) {
            const auto best = std::max_element(rest.begin(), rest.end());
            rows.back().push_back(to_text(best - rest.begin()));
            rows.back().push_back(fixed(*best, 4));
            *best = -1;
        }
    }
    show_table({"position", "id", "next", "p", "or", "p", "or", "p"}, rows);
}

// The mean of -ln p of the tokens that do follow. In double: p can be 0 in a float.
double loss(const Tensor3& logits, const IdMatrix& input_ids) {
    double sum = 0;
    for (std::size_t t = 0; t + 1 < logits.shape(1); ++t) {
        const Vector row = row_of(logits, t);
        const double highest = *std::max_element(row.begin(), row.end());
        double exponentials = 0;
        for (const Real logit : row) exponentials += std::exp(double(logit) - highest);
        const auto next = static_cast<std::size_t>(input_ids(0, t + 1));
        sum += highest + std::log(exponentials) - double(row(next));
    }
    return sum / static_cast<double>(logits.shape(1) - 1);
}

// The whole way with any model. Returns the stream, to be drawn.
std::vector<Tensor3> whole_way(const Model& model, const IdMatrix& input_ids) {
    step("From ids to vectors: each id picks a row of embed_tokens");
    show("input_ids", input_ids);
    show_shape("embed_tokens", model.embed_tokens);
    const std::vector<Tensor3> stream = through_all_layers(model, input_ids);
    show("hidden_states", stream[0]);
    first_block(model, stream[0], model.placement(1, input_ids.shape(1)));

    step("All layers: the size of the stream");
    std::vector<TableRow> rows;
    for (std::size_t layer = 0; layer < stream.size(); ++layer)
        rows.push_back({layer == 0 ? "embedding" : "after layer " + to_text(layer - 1),
                        fixed(root_mean_square(stream[layer]), 4)});
    show_table({"", "size"}, rows);

    step("The final norm, and the head: a logit for every token");
    show("final_hidden_states", model.norm(stream.back()));
    const Tensor3 logits = model.logits(stream.back());
    show("logits", logits);
    likeliest(logits, input_ids);
    return stream;
}

void the_echo(const Model& model, const IdMatrix& input_ids) {
    if (input_ids.shape(1) < 2) return;
    step("An untrained model that is sure of itself");
    show("loss", loss(model(input_ids), input_ids));
    show("loss of a blind guess, ln V", std::log(static_cast<double>(model.config.vocab_size)));
    say("Every position predicts the token it has just read. The stream still consists mostly "
        "of "
        "that token's embedding, and the head, which is the embedding again, fits it best: its "
        "dot product with itself is about C times the variance of 1.");
}

void smaller_weights(Model& model, const IdMatrix& input_ids,
                     const std::vector<Tensor3>& stream, Generator& generator) {
    step("The same model with weights of standard deviation 0.02");
    draw_normal(model, Real(0.02), generator);
    const std::vector<Tensor3> small_stream = through_all_layers(model, input_ids);
    const Tensor3 logits = model.logits(small_stream.back());
    show("small_logits", logits);
    likeliest(logits, input_ids);
    if (input_ids.shape(1) > 1) show("loss", loss(logits, input_ids));
    plot("stream", {LinePlot{"Size of the stream",
                             "layers passed",
                             "root mean square",
                             {sizes_of("PyTorch's start", stream),
                              sizes_of("standard deviation 0.02", small_stream)}}});

    step("In training, Mini-LLM drops numbers of the embedding, too");
    show("dropped_hidden_states", dropout(model.embed(input_ids), Real(0.1), generator));
}

struct Known {
    std::string name;
    ModelConfig config;
    std::size_t published;  // parameters; 0: nobody says
};

ModelConfig sizes(std::size_t hidden_size, std::size_t layers, std::size_t heads,
                  std::size_t kv_heads, std::size_t head_dim, std::size_t width,
                  std::size_t vocabulary, bool tied, bool qk_norm = false) {
    ModelConfig config;
    config.hidden_size = hidden_size;
    config.num_hidden_layers = layers;
    config.num_attention_heads = heads;
    config.num_key_value_heads = kv_heads;
    config.head_dim = head_dim;
    config.intermediate_size = width;
    config.vocab_size = vocabulary;
    config.tie_word_embeddings = tied;
    config.use_qk_norm = qk_norm;
    return config;
}

const std::vector<Known>& known_models() {
    static const std::vector<Known> models = {
        {"Mini-LLM", ModelConfig(), 0},
        {"Llama-3.2-1B", sizes(2048, 16, 32, 8, 64, 8192, 128256, true), 1235814400},
        {"Llama-2-7B", sizes(4096, 32, 32, 32, 128, 11008, 32000, false), 6738415616},
        {"Llama-3-8B", sizes(4096, 32, 32, 8, 128, 14336, 128256, false), 8030261248},
        {"Qwen3-0.6B", sizes(1024, 28, 16, 8, 128, 3072, 151936, true, true), 596049920},
        {"Qwen3-8B", sizes(4096, 36, 32, 8, 128, 12288, 151936, false, true), 8190735360}};
    return models;
}

// GPT-2: learned positions, LayerNorms, biases everywhere, a plain MLP of 4 C, a tied head.
std::size_t gpt2_parameters(std::size_t C, std::size_t layers) {
    const std::size_t attention = 4 * C * C + 4 * C;
    const std::size_t mlp = mlp_parameters(C, 4 * C) + 4 * C + C;
    const std::size_t norm = 2 * C;
    return (50257 + 1024) * C + layers * (attention + mlp + 2 * norm) + norm;
}

void known_parameters() {
    step("Real models: parameters from their configurations alone");
    std::vector<TableRow> rows;
    for (const auto& [name, config, published] : known_models()) {
        const ParameterCount count = count_parameters(config);
        const auto millions = [](std::size_t number) {
            return fixed(static_cast<double>(number) / 1e6, 1);
        };
        rows.push_back({name, millions(count.embedding), millions(count.attention),
                        millions(count.mlp), millions(count.head), with_commas(count.total()),
                        published == 0               ? "-"
                        : published == count.total() ? "the same"
                                                     : with_commas(published)});
    }
    show_table({"millions", "embedding", "attention", "MLP", "head", "all", "published"}, rows);
    show("GPT-2 (published: 124,439,808)", with_commas(gpt2_parameters(768, 12)));
    show("GPT-2 XL (published: 1,557,611,200)", with_commas(gpt2_parameters(1600, 48)));
}

void what_they_cost() {
    step("What they cost: tying, work per token, cache");
    std::vector<TableRow> rows;
    std::vector<Line> lines;
    for (const auto& [name, config, published] : known_models()) {
        const ModelConfig full = complete(config);
        const std::size_t matrix = full.vocab_size * full.hidden_size;
        const std::size_t untied =
            count_parameters(full).total() + (full.tie_word_embeddings ? matrix : 0);
        const std::size_t cache = kv_cache_bytes_per_token(
            full.num_hidden_layers, full.num_key_value_heads, full.head_dim, 2);
        const auto billions = [&](std::size_t position) {
            return static_cast<double>(operations_per_token(full, position)) / 1e9;
        };
        rows.push_back({name, full.tie_word_embeddings ? "yes" : "no",
                        fixed(100 * double(matrix) / double(untied), 1), fixed(billions(0), 2),
                        fixed(billions(32767), 2), fixed(double(cache) / 1024, 0)});
        lines.push_back({name, {}, {}});
        for (std::size_t position = 0; position <= 32768; position += 4096) {
            lines.back().x.push_back(static_cast<double>(position));
            lines.back().y.push_back(billions(position));
        }
    }
    show_table({"", "tied", "saves or would save %", "Gop at 0", "at 32767", "KiB of cache"},
               rows);
    plot("operations",
         {LinePlot{"Work for one token", "position", "billions of operations", lines, true}});
}

void design_choices() {
    struct Design {
        std::string name;
        double hidden_size, layers, heads, head_dim, width, matrices;
        std::size_t vocabulary;
        std::string languages, dropout, weight_decay;
    };
    const std::vector<Design> designs = {
        {"GPT-3 175B", 12288, 96, 96, 128, 49152, 2, 50257, "English", "?", "0.1"},
        {"T5-11B", 1024, 24, 128, 128, 65536, 2, 32128, "English", "0.1", "0"},
        {"PaLM 540B", 18432, 118, 48, 256, 73728, 3, 256000, "many", "0", "lr^2"},
        {"BLOOM 176B", 14336, 70, 112, 128, 57344, 2, 250880, "many", "0", "0.1"},
        {"mT5-XXL", 4096, 24, 64, 64, 10240, 3, 250112, "many", "0", "0"},
        {"Llama-2-7B", 4096, 32, 32, 128, 11008, 3, 32000, "English", "?", "0.1"},
        {"Llama-3-8B", 4096, 32, 32, 128, 14336, 3, 128256, "many", "?", "?"},
        {"Qwen3-8B", 4096, 36, 32, 128, 12288, 3, 151936, "many", "?", "?"}};
    step("Design choices");
    std::vector<TableRow> rows;
    for (const Design& d : designs)
        rows.push_back({d.name, fixed(d.matrices, 0), fixed(d.width / d.hidden_size, 2),
                        fixed(d.heads * d.head_dim / d.hidden_size, 2),
                        fixed(d.hidden_size / d.layers, 0), with_commas(d.vocabulary),
                        d.languages, d.dropout, d.weight_decay});
    show_table({"", "matrices", "F / C", "H D / C", "C / L", "V", "text", "dropout", "decay"},
               rows);
}

void configuration(const std::string& path, const ModelConfig& config) {
    step("The model");
    show("from", path);
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
    show("rope_scaling", config.rope_scaling ? "llama3" : "none");
    show("tie_word_embeddings", config.tie_word_embeddings);
    show("use_qk_norm", config.use_qk_norm);
    show("attention_bias", config.attention_bias);
}

int main(int argc, char** argv) {
    std::string model_path, export_folder;
    std::vector<Id> tokens = {1, 334, 3855, 288};
    Options options("09_full_model", "What is a whole model?");
    options.path("--model", model_path, "a folder of Hugging Face, or a file of llama2.c");
    options.ids("--tokens", tokens, "the input");
    options.folder("--export", export_folder, "folder for the model as Hugging Face has it");

    return options.run(argc, argv, [&] {
        IdMatrix input_ids = xt::zeros<Id>({std::size_t{1}, tokens.size()});
        std::copy(tokens.begin(), tokens.end(), input_ids.begin());
        Generator generator(options.seed());
        ModelConfig config;
        config.interleaved_rope = true;
        if (model_path.empty()) {
            check_input(config, input_ids);  // before 50 million numbers are drawn
            step("Mini-LLM: drawing its weights");
        }
        Model model =
            model_path.empty() ? make_model(config, generator) : load_model(model_path);
        check_input(model.config, input_ids);

        if (!model_path.empty()) configuration(model_path, model.config);
        parameters(model);
        const std::vector<Tensor3> stream = whole_way(model, input_ids);
        if (!export_folder.empty()) {
            export_model(model, export_folder);
            show("exported to", export_folder);
        }
        if (!model_path.empty()) return;
        the_echo(model, input_ids);
        smaller_weights(model, input_ids, stream, generator);
        known_parameters();
        what_they_cost();
        design_choices();
    });
}
