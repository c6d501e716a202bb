#include "chapters/apps/walk/walk.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/04_rope/rope.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/11_generation/inspection.hpp"
#include "chapters/11_generation/sampling.hpp"
#include "chapters/11_generation/words.hpp"
#include "chapters/apps/walk/features.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/show.hpp"
#include "common/tensors/argsort.hpp"

namespace llm::walk {
namespace {

// A line of the lesson, verbatim, or two, and where it stands.
void show_line(const std::string& file, const std::string& function, const std::string& code,
               const std::string& following = "") {
    say("chapters/" + file + ", " + function + ":");
    say("> " + code);
    if (!following.empty()) say("> " + following);
}

Matrix rows_of(const std::vector<Vector>& vectors) {
    Matrix matrix(std::array{vectors.size(), vectors.front().size()});
    for (std::size_t n = 0; n < vectors.size(); ++n)
        std::copy(vectors[n].begin(), vectors[n].end(), &matrix(n, 0));
    return matrix;
}

// The first features of each vector, and the RMS of all its features.
void show_features(const std::string& name, const std::vector<Vector>& vectors,
                   const std::vector<std::string>& names) {
    show(name, rows_of(vectors), names, {"feature 0", "feature 1", "feature 2", "feature 3"});
    std::string sizes;
    for (std::size_t n = 0; n < vectors.size(); ++n)
        sizes += (n == 0 ? "" : ", ") + names[n] + " " + fixed(root_mean_square(vectors[n]), 2);
    say("RMS of all " + to_text(vectors.front().size()) + " features: " + sizes);
}

Vector last_of(const Tensor3& states) {  // (1, T, C) -> (C)
    return xt::view(states, 0, states.shape(1) - 1);
}

void show_tokens(const Pass& pass) {
    step("Tokens (chapter 10)");
    say("A model computes with numbers. The text is cut into tokens, pieces that are in the "
        "model's vocabulary, and each piece is replaced by its number, its id.");
    std::vector<TableRow> rows;
    for (std::size_t t = 0; t < pass.words.size(); ++t)
        rows.push_back({to_text(t), pass.words[t], to_text(pass.ids(0, t))});
    show_table({"position", "token", "id"}, rows);
    show_line("10_tokenizer/tokenizer.cpp", "apply_merges",
              "ids[position] = best->second.merged;");
}

void show_embeddings(const Walk& walk, const Pass& pass) {
    step("Embedding (chapter 09)");
    say("Each id selects one row of a matrix: " + to_text(walk.model.embed_tokens.shape(1)) +
        " numbers for each token. They are the beginning of the residual stream, to which "
        "every part below adds. The first four, and the root mean square (RMS) of all:");
    std::vector<Vector> vectors;
    for (std::size_t t = 0; t < pass.words.size(); ++t)
        vectors.push_back(xt::view(pass.embeddings, 0, t));
    show_features("embeddings", vectors, pass.words);
    show_line("09_full_model/model.cpp", "embedding", "xt::view(embeddings, b, t) =",
              "xt::view(weight, static_cast<std::size_t>(input_ids(b, t)));");
}

void show_norm(const Walk& walk, const Pass& pass) {
    const std::string layer = "layer " + to_text(walk.layer);
    step("Norm of " + layer + " (chapter 07)");
    say("From here on: " + layer + ", and the last token, \"" + pass.words.back() +
        "\". The layers before have added to its numbers. The norm divides them by their "
        "RMS and multiplies each by a weight, so that the inputs of every "
        "layer have about the same size.");
    const Vector stream = last_of(pass.streams[walk.layer]);
    const Real rms = static_cast<Real>(root_mean_square(stream));
    show_features("norm", {stream, Vector(stream / rms), last_of(pass.attention_input)},
                  {"stream", "/ RMS", "· weight"});
    show_line("05_gqa/rms_normalize.cpp", "rms_normalize",
              "normalized(n, d) = rows(n, d) / rms;");
}

void show_queries(const Walk& walk, const Pass& pass) {
    const std::size_t num_heads = pass.projected.queries.shape(1);
    const std::size_t kv_head = walk.head * pass.projected.keys.shape(1) / num_heads;
    const std::size_t last = pass.words.size() - 1;
    step("Attention: queries, keys and values (chapters 02 and 03)");
    say("Three matrices make three vectors of each token: what it looks for (query), how it is "
        "found (key), and what it hands over (value). The query is cut into " +
        to_text(num_heads) + " heads, keys and values into " +
        to_text(pass.projected.keys.shape(1)) + ". Head " + to_text(walk.head) +
        " of the queries, with head " + to_text(kv_head) + " of the others:");
    const auto of = [&](const Tensor4& states, std::size_t h) {
        return Vector(xt::view(states, 0, h, last));
    };
    show_features("projected",
                  {of(pass.projected.queries, walk.head), of(pass.projected.keys, kv_head),
                   of(pass.projected.values, kv_head)},
                  {"query", "key", "value"});
    show_line("02_projections/linear.cpp", "Linear::operator()",
              "Matrix products = matmul_transposed(inputs, weight);");
    show_line("03_head_splitting/head_splitting.cpp", "split_heads",
              "return swap_axes_1_and_2(by_token);");
}

void show_positions(const Walk& walk, const Pass& pass) {
    const std::size_t last = pass.words.size() - 1;
    step("Attention: positions (chapter 04)");
    const std::size_t half = pass.rotated.queries.shape(3) / 2;
    say("So far nothing knows the order of the words. RoPE rotates pairs of numbers (x, y) of "
        "a "
        "query or key, pair p of the features p and p + " +
        to_text(half) + ", by an angle that is proportional to its position, here " +
        to_text(last) +
        ". A score then depends on how far apart two tokens are. The first four pairs of the "
        "query, before and after:");
    const Vector frequencies =
        inverse_frequencies(walk.model.config.head_dim, walk.model.config.rope_theta);
    std::vector<Vector> rows(5, Vector(std::array{half}));
    for (std::size_t i = 0; i < half; ++i) {
        rows[0](i) = pass.projected.queries(0, walk.head, last, i);
        rows[1](i) = pass.projected.queries(0, walk.head, last, i + half);
        rows[2](i) = static_cast<Real>(last) * frequencies(i);
        rows[3](i) = pass.rotated.queries(0, walk.head, last, i);
        rows[4](i) = pass.rotated.queries(0, walk.head, last, i + half);
    }
    show("rotation", rows_of(rows), {"x", "y", "angle", "x cos - y sin", "x sin + y cos"},
         {"pair 0", "pair 1", "pair 2", "pair 3"});
    show_line("04_rope/rope.cpp", "apply_rotary_embedding",
              "rotated(b, h, t, first) = x * cos - y * sin;",
              "rotated(b, h, t, second) = x * sin + y * cos;");
}

void show_scores(const Walk& walk, const Pass& pass) {
    const std::size_t num_heads = pass.rotated.queries.shape(1);
    const std::size_t kv_head = walk.head * pass.rotated.keys.shape(1) / num_heads;
    const Matrix scores = attention_scores(head_of(pass.rotated.queries, 0, walk.head),
                                           head_of(pass.rotated.keys, 0, kv_head));
    const Matrix mask = head_of(pass.inputs.attention_mask, 0, 0);
    step("Attention: scores and mask (chapters 05 and 01)");
    say("A score says how well a query and a key fit: their dot product, divided by the root "
        "of their length. The mask adds -inf to the scores of later words, because a model "
        "that writes does not know them. Each row is the query of a word:");
    show("masked_scores", Matrix(scores + mask), pass.words, pass.words);
    show_line("05_gqa/attention.cpp", "attention_scores",
              "return products / std::sqrt(static_cast<Real>(head_dim));");
    show_line("05_gqa/attention.cpp", "attention",
              "const Matrix masked_scores = scores + mask;");
}

void show_weights(const Pass& pass) {
    step("Attention: weights (chapters 01 and 05)");
    say("The softmax turns the scores of a row into weights that sum to 1. The output of a "
        "head is the sum of all values, each times its weight: the last row says from which "
        "words \"" +
        pass.words.back() + "\" fetches what it needs.");
    show("weights", pass.head.weights, pass.words, pass.words);
    show_line("05_gqa/attention.cpp", "attention", "Matrix context = matmul(weights, values);");
}

void show_first_sum(const Walk& walk, const Pass& pass) {
    step("The first addition (chapter 08)");
    say("The outputs of all heads are joined, multiplied by one more matrix, and added to the "
        "stream. Nothing is replaced: what was there stays. (In this model, the "
        "residual_multiplier of the code is 1.)");
    show_features("after_attention",
                  {last_of(pass.streams[walk.layer]), last_of(pass.attention_output),
                   last_of(pass.between[walk.layer])},
                  {"stream", "+ attention", "sum"});
    show_line("08_pre_vs_post_norm/block.hpp", "PreNormBlockWith",
              "hidden_states + residual_multiplier * attention_output;");
}

void show_mlp(const Walk& walk, const Pass& pass) {
    const Vector probabilities =
        logit_lens(walk.model, pass.streams.back(), pass.words.size() - 1);
    const Id best = argmax_token(probabilities);
    const std::string next = word_of(walk.tokenizer, best);
    step("Norm and MLP (chapters 07 and 06)");
    say("Attention moves information between words; the MLP works on each word alone. After "
        "another norm, two matrices make " +
        to_text(walk.model.config.intermediate_size) +
        " gates and as many numbers, which the gates let through or hold back; each product "
        "is multiplied by a column of a third matrix and added to the stream. The largest "
        "products of each layer, the tokens that they make more likely, and the probability of "
        "\"" +
        next + "\" (" + fixed(double(probabilities(std::size_t(best))), 3) + ") without each:");
    std::vector<MlpFeature> features;
    for (std::size_t n = 0; n < walk.model.layers.size(); ++n)
        for (MlpFeature& feature : largest_features(walk, pass, n, n == walk.layer ? 3 : 1))
            features.push_back(std::move(feature));
    std::vector<TableRow> rows;
    for (const MlpFeature& feature : features) {
        std::string raised;
        const Tensor3 added = reshape(feature.added, {1, 1, feature.added.size()});
        for (const std::size_t id : argsort_descending(logit_lens(walk.model, added, 0), 4))
            raised += (raised.empty() ? "" : " ") + word_of(walk.tokenizer, Id(id));
        rows.push_back(
            {to_text(feature.layer), to_text(feature.index),
             fixed(double(silu(feature.gate)), 2), fixed(double(feature.up), 2),
             fixed(double(feature.product), 2),
             fixed(double(probabilities_without(walk, pass, feature)(std::size_t(best))), 3),
             raised});
    }
    show_table({"layer", "feature", "silu(gate)", "up", "product", "p without", "raises"},
               rows);
    show_line("06_swiglu/mlp.cpp", "GatedMlp::operator()",
              "const Tensor3 product = activate(activation, gate) * up;");
}

void show_layers(const Walk& walk, const Pass& pass) {
    step("The second addition, and all layers (chapters 08 and 09)");
    say("The output of the MLP is added, too: the layer is done. All layers have the same "
        "parts with numbers of their own. What each adds to \"" +
        pass.words.back() +
        "\", as RMS, and which next word the stream would give if the model ended there:");
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n <= walk.model.layers.size(); ++n) {
        const Vector after = last_of(pass.streams[n]);
        const Vector probabilities =
            logit_lens(walk.model, pass.streams[n], pass.words.size() - 1);
        const Id best = argmax_token(probabilities);
        const auto rms = [](const Vector& vector) {
            return fixed(root_mean_square(vector), 2);
        };
        rows.push_back({"embedding", "-", "-", rms(after), word_of(walk.tokenizer, best),
                        fixed(double(probabilities(std::size_t(best))), 2)});
        if (n == 0) continue;
        rows.back()[0] = "layer " + to_text(n - 1);
        const Vector between = last_of(pass.between[n - 1]);
        rows.back()[1] = rms(Vector(between - last_of(pass.streams[n - 1])));
        rows.back()[2] = rms(Vector(after - between));
    }
    show_table({"after", "+ attention", "+ MLP", "stream", "next", "p"}, rows);
    show_line("08_pre_vs_post_norm/block.hpp", "PreNormBlockWith",
              "after_attention + residual_multiplier * mlp_output");
}

void show_next(const Walk& walk, const Pass& pass) {
    const Vector logits = last_of(walk.model.logits(pass.streams.back()));
    const Vector probabilities = softmax(logits);
    step("Final norm and logits (chapters 07 and 09)");
    say("After a last norm, the stream is compared with each row of the embedding: a dot "
        "product, the logit of that token. The softmax makes probabilities of all " +
        to_text(logits.size()) + " logits:");
    show("next_logits", logits);
    say("The five most likely next tokens:");
    std::vector<TableRow> rows;
    for (const std::size_t id : argsort_descending(logits, 5))
        rows.push_back({word_of(walk.tokenizer, Id(id)), to_text(id),
                        fixed(double(logits(id)), 2), fixed(double(probabilities(id)), 3)});
    show_table({"next", "id", "logit", "p"}, rows);
    show_line("09_full_model/model.cpp", "lm_head",
              "Matrix flat_logits = matmul_transposed(rows, weight);");
}

void show_origin(const Walk& walk) {
    step("Where the numbers come from (chapters 12 and 13)");
    say("The numbers of the matrices were learned, not written. There are " +
        with_commas(count_parameters(walk.model).total()) +
        " of them. At first all are random, and so are the words that the model writes. Then "
        "it reads a text, and predicts each word from those before it. The error is measured: "
        "how small was the probability of the word that really came? For every number, the "
        "backward pass computes whether the error falls if the number grows or if it shrinks, "
        "and each is moved a little in that direction. After some thousand such steps the "
        "model writes as above. Larger models do the same, with more numbers and more text.");
}

}  // namespace

void show_walk(const Walk& walk) {
    require(walk.layer < walk.model.layers.size() &&
                walk.head < walk.model.config.num_attention_heads,
            "walk: there is no head {} in layer {}", walk.head, walk.layer);
    const Pass pass = run(walk);
    show_tokens(pass);
    show_embeddings(walk, pass);
    show_norm(walk, pass);
    show_queries(walk, pass);
    show_positions(walk, pass);
    show_scores(walk, pass);
    show_weights(pass);
    show_first_sum(walk, pass);
    show_mlp(walk, pass);
    show_layers(walk, pass);
    show_next(walk, pass);
    show_origin(walk);
}

}  // namespace llm::walk
