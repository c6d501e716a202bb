#include "chapters/16_quantization/demo/model.hpp"

#include "chapters/01_masking/masking.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/14_fine_tuning/evaluation.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/16_quantization/fake_quantize.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {
namespace {

// Logits of all tokens, in windows of max_position_embeddings. A few tokens at a time are
// computed as in decode steps, which round activations.
Matrix logits_of(const FastModel& model, const std::vector<Id>& ids) {
    const std::size_t window = model.config.max_position_embeddings;
    RunState state = make_run_state(model, window);
    Matrix logits = xt::zeros<Real>({ids.size(), model.config.vocab_size});
    for (std::size_t begin = 0; begin < ids.size(); begin += max_decode_tokens) {
        const std::size_t count = std::min(max_decode_tokens, ids.size() - begin);
        if (begin % window == 0) state.seq_len = 0;
        const ConstMatrixView rows = compute_logits(model, std::span(ids).subspan(begin, count),
                                                    state, LogitsToKeep::all);
        for (std::size_t t = 0; t < count; ++t)
            std::ranges::copy(rows[t], view_of(logits)[begin + t].begin());
    }
    return logits;
}

// The log-probabilities of all tokens: the logarithm of the softmax of a row of logits.
std::vector<double> log_softmax(std::span<const Real> logits) {
    const double log_sum = log_sum_exp(logits);
    std::vector<double> log_probs(logits.begin(), logits.end());
    for (double& value : log_probs) value -= log_sum;
    return log_probs;
}

// The cross-entropy of each next token within its window, in nats (chapter 12).
Vector token_losses(const Matrix& logits, const std::vector<Id>& ids, std::size_t window) {
    std::vector<Real> losses;
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
        if ((t + 1) % window == 0) continue;  // the next token begins a new window
        losses.push_back(static_cast<Real>(
            -log_softmax(view_of(logits)[t])[static_cast<std::size_t>(ids[t + 1])]));
    }
    Vector result(std::array{losses.size()});
    std::copy(losses.begin(), losses.end(), result.begin());
    return result;
}

double mean_loss(const Matrix& logits, const std::vector<Id>& ids, std::size_t window) {
    return mean_of(token_losses(logits, ids, window));
}

// The mean of the differences, token by token, and half of its 95 % interval (chapter 14).
std::string difference_of(const Vector& losses, const Vector& expected) {
    Generator generator(1);
    const auto [mean, interval] = paired_bootstrap(expected, losses, generator);
    return fixed(std::abs(mean) < 5e-5 ? 0 : mean, 4) + " ±" +
           fixed((interval.high - interval.low) / 2, 4);
}

// The mean KL divergence of the probabilities from those of the model that is not quantized:
// the sum of p (ln p - ln q).
double kl_divergence(const Matrix& logits, const Matrix& expected) {
    double sum = 0;
    for (std::size_t t = 0; t < logits.shape(0); ++t) {
        const std::vector<double> log_q = log_softmax(view_of(logits)[t]),
                                  log_p = log_softmax(view_of(expected)[t]);
        for (std::size_t v = 0; v < log_p.size(); ++v)
            sum += std::exp(log_p[v]) * (log_p[v] - log_q[v]);
    }
    return sum / double(logits.shape(0));
}

std::ptrdiff_t argmax(std::span<const Real> row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
}

double percent_same_argmax(const Matrix& logits, const Matrix& expected) {
    std::size_t num_same = 0;
    for (std::size_t t = 0; t < logits.shape(0); ++t)
        num_same += argmax(view_of(logits)[t]) == argmax(view_of(expected)[t]);
    return 100.0 * double(num_same) / double(logits.shape(0));
}

}  // namespace

void outlier_features(const Model& model, const std::vector<Id>& ids) {
    step("Outliers of the inputs");
    const std::size_t count = std::min(ids.size(), model.config.max_position_embeddings);
    const std::vector<Id> window(ids.begin(), ids.begin() + std::ptrdiff_t(count));
    const std::vector<Tensor3> hidden_states =
        model.forward(one_sequence(window), {.output_hidden_states = true}).hidden_states;
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const Tensor3 inputs = model.layers[n].attention_norm(hidden_states[n]);  // (1, T, C)
        Vector largest = xt::zeros<Real>({model.config.hidden_size});             // per feature
        for (std::size_t t = 0; t < count; ++t)
            for (std::size_t c = 0; c < largest.size(); ++c)
                largest(c) = std::max(largest(c), std::abs(inputs(0, t, c)));
        std::sort(largest.begin(), largest.end());
        rows.push_back({to_text(n), fixed(root_mean_square(inputs), 3),
                        fixed(largest(largest.size() / 2), 2),
                        fixed(largest(largest.size() - 1), 2)});
    }
    show_table(
        {"layer", "RMS of the inputs of q, k, v", "largest of a typical feature", "of all"},
        rows);
}

void bits_and_blocks(const Model& model, const std::vector<Id>& ids) {
    step("How many bits does a weight need?");
    const std::size_t window = model.config.max_position_embeddings, whole_row = 1 << 20;
    Line rows_line{"one scale per row", {}, {}},
        blocks_line{"one scale per 32 weights", {}, {}};
    const FastModel unrounded = make_fast_model(model, DType::float32);
    const double exact = mean_loss(logits_of(unrounded, ids), ids, window);
    std::vector<TableRow> rows;
    for (const int num_bits : {8, 6, 5, 4, 3, 2}) {
        const auto loss = [&](std::size_t block_size, Line& line) {
            const Model rounded = fake_quantize(model, block_size, num_bits);
            const FastModel fast = make_fast_model(rounded, DType::float32);
            const double mean = mean_loss(logits_of(fast, ids), ids, window);
            if (mean > exact) {  // the axis is logarithmic
                line.x.push_back(num_bits);
                line.y.push_back(mean - exact);
            }
            return fixed(mean, 3);
        };
        rows.push_back({to_text(num_bits), loss(whole_row, rows_line), loss(32, blocks_line)});
    }
    show_table({"bits", "loss, one scale per row", "loss, one scale per 32 weights"}, rows);
    plot("loss", {LinePlot{"Loss above that of float32, on held-out text",
                           "bits of the integers",
                           "nats per token",
                           {rows_line, blocks_line},
                           true}});
}

void quantized_models(const Model& model, const std::vector<Id>& ids) {
    step("A whole model, in each type");
    const std::size_t window = model.config.max_position_embeddings;
    const Matrix expected = logits_of(make_fast_model(model, DType::float32), ids);  // (T, V)
    const Vector expected_losses = token_losses(expected, ids, window);
    std::vector<TableRow> rows;
    double largest_change = 0;
    for (const DType dtype : all_dtypes) {
        const FastModel quantized = quantize_model(model, dtype, Activations::float32);
        const Matrix logits = logits_of(quantized, ids);
        const Matrix error = logits - expected;
        const Vector losses = token_losses(logits, ids, window);
        const double loss = mean_of(losses);
        const std::string difference =
            dtype == DType::float32 ? "0" : difference_of(losses, expected_losses);
        rows.push_back(
            {std::string(to_text(dtype)), fixed(double(quantized.weight_bytes()) / 1e6, 2),
             fixed(root_mean_square(error), 4), fixed(percent_same_argmax(logits, expected), 1),
             fixed(loss, 4), difference, fixed(kl_divergence(logits, expected), 4)});

        // The same weights, with inputs that are rounded to 8 bits as well.
        if (block_size(dtype) == 1) continue;
        const Matrix with_int8 = logits_of(quantize_model(model, dtype), ids);
        largest_change =
            std::max(largest_change, std::abs(mean_loss(with_int8, ids, window) - loss));
    }
    show_table({"dtype", "MB", "RMS error", "% same argmax", "loss", "- float32's", "KL"},
               rows);
    show("RMS of the logits", fixed(root_mean_square(expected), 4));
    show("int8 inputs change each loss by less than 0.01", largest_change < 0.01);
}

void greedy_generation(const Model& model, const Tokenizer& tokenizer,
                       const std::vector<Id>& prompt_ids, bool with_times) {
    step("Greedy generation in each type");
    constexpr std::size_t max_new_tokens = 100;
    std::vector<TableRow> rows;
    std::vector<Id> expected;
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::q8_0, DType::q4_0}) {
        const auto generate = [&](const FastModel& quantized) {
            return generate_greedily(quantized, prompt_ids, max_new_tokens,
                                     tokenizer.eos_token_ids);
        };
        const std::vector<Id> ids =
            generate(quantize_model(model, dtype, Activations::float32));
        if (expected.empty()) expected = ids;
        const auto different = std::ranges::mismatch(ids, expected).in1;
        std::string speed = "-";
        if (with_times) {
            const FastModel with_int8 = quantize_model(model, dtype);
            const double seconds = fastest_seconds(3, [&] { generate(with_int8); });
            speed = fixed(double(ids.size() - prompt_ids.size()) / seconds, 0);
        }
        rows.push_back({std::string(to_text(dtype)), speed,
                        to_text(std::size_t(different - ids.begin()) - prompt_ids.size())});
        const auto begin = ids.begin() + std::ptrdiff_t(prompt_ids.size());
        const auto end = std::min(begin + 20, ids.end());
        const std::string text = tokenizer.decode(std::vector<Id>(begin, end));
        show(to_text(dtype), text.substr(0, text.find('\n')));
    }
    show_table({"dtype", "tokens per second", "tokens equal to float32's"}, rows);
}

}  // namespace llm
