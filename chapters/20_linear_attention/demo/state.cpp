#include "chapters/20_linear_attention/demo/state.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/20_linear_attention/chunked.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

// Three subjects with orthogonal keys, and three colors as values.
const std::vector<std::string> subjects = {"sky", "grass", "rose"};
const std::vector<std::string> colors = {"blue", "green", "red"};
const Vector no_decay = {0, 0, 0, 0};

// "The sky is blue. Grass is green. The rose is red. The sky is red."
HeadInputs sentences(const Vector& log_decay) {
    const Matrix keys = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 0, 0}};
    const Matrix values = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 0, 1}};
    return {keys, keys, values, log_decay, {1, 1, 1, 1}};
}

Matrix empty_state(std::size_t key_dim, std::size_t value_dim) {
    return xt::zeros<Real>({key_dim, value_dim});
}

// Rows of length 1.
Matrix random_keys(std::size_t count, std::size_t key_dim, Generator& generator) {
    Matrix keys = randn({count, key_dim}, generator);
    for (std::size_t n = 0; n < count; ++n) {
        const Vector key = xt::view(keys, n, xt::all());
        Real sum = 0;
        for (const Real feature : key) sum += feature * feature;
        xt::view(keys, n, xt::all()) = key / std::sqrt(sum);
    }
    return keys;
}

}  // namespace

void words_in_a_state() {
    step("Three sentences in a state: each key is a row, each value a column");
    HeadInputs inputs = sentences(no_decay);
    Matrix state = empty_state(3, 3);
    for (std::size_t t = 0; t < 3; ++t) {
        update_state(state, inputs, t, UpdateRule::additive);
        show("after_" + subjects[t], state, subjects, colors);
    }
    const Matrix query = {{0, 1, 0}};
    show("read_grass", matmul(query, state), {"grass"}, colors);
}

void overwriting() {
    step("A fourth sentence, \"the sky is red\", with each update");
    const Vector decay = {std::log(Real(0.5)), std::log(Real(0.5)), std::log(Real(0.5)),
                          std::log(Real(0.5))};
    const auto show_state = [](const std::string& name, const HeadInputs& inputs,
                               UpdateRule rule) {
        show(name, recurrent_form(inputs, rule, empty_state(3, 3)).state, subjects, colors);
    };
    show_state("linear", sentences(no_decay), UpdateRule::additive);
    show_state("decay_of_a_half", sentences(decay), UpdateRule::additive);
    show_state("delta_rule", sentences(no_decay), UpdateRule::delta);
    show_state("gated_delta_rule", sentences(decay), UpdateRule::delta);
}

void similar_keys() {
    step("Keys that are not orthogonal: the third one lies between the others");
    const Real half = std::sqrt(Real(0.5));
    const Matrix keys = {{1, 0}, {0, 1}, {half, half}};
    const Matrix values = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    const HeadInputs inputs{keys, keys, values, {0, 0, 0}, {1, 1, 1}};
    for (const UpdateRule rule : {UpdateRule::additive, UpdateRule::delta})
        show(rule == UpdateRule::delta ? "read_delta" : "read_linear",
             matmul(keys, recurrent_form(inputs, rule, empty_state(2, 3)).state), subjects,
             colors);
}

void gradient_step() {
    step("The delta rule is a step of gradient descent on |Sᵀk - v|²/2");
    const HeadInputs inputs{{{0.6, 0.8}}, {{0.6, 0.8}}, {{1, 2}}, {0}, {0.5}};
    const Matrix before = {{1, 0}, {0, 1}};
    show("state_before", before);
    const Vector read = read_state(before, view_of(inputs.keys)[0]);
    show("read_before", read);
    Matrix after = before;
    update_state(after, inputs, 0, UpdateRule::delta);
    show("state_after", after);
    // The gradient is the outer product of the key and the error.
    Matrix gradient = empty_state(2, 2);
    write_state(gradient, view_of(inputs.keys)[0], read - Vector{1, 2});
    show("before_minus_half_the_gradient", before - gradient * Real(0.5));
    show("read_after", read_state(after, view_of(inputs.keys)[0]));
}

void three_forms(Generator& generator) {
    step("Three forms of one computation: recurrent, parallel, chunked");
    constexpr std::size_t T = 6, Dk = 4, Dv = 3;
    const HeadInputs inputs{randn({T, Dk}, generator), random_keys(T, Dk, generator),
                            randn({T, Dv}, generator), uniform({T}, Real(-0.5), 0, generator),
                            uniform({T}, 0, 1, generator)};
    const Matrix zero = empty_state(Dk, Dv);
    const Chunk chunk = make_chunk(inputs, 0, T);
    show("decay_between", chunk.decay_between);
    show("weights",  // + 0: no negative zeros
         matmul_transposed(chunk.queries, chunk.keys) * chunk.decay_between + Real(0));
    const HeadOutput recurrent = recurrent_form(inputs, UpdateRule::delta, zero);
    show("output", recurrent.output);
    show("parallel_is_equal",
         largest_difference(parallel_form(inputs, UpdateRule::delta, zero).output,
                            recurrent.output) < 1e-5);
    show("chunks_of_4_are_equal",
         largest_difference(chunked_form(inputs, UpdateRule::delta, zero, 4).output,
                            recurrent.output) < 1e-5);
}

void writes_of_a_chunk() {
    step("What three tokens write, from linear equations");
    const HeadInputs inputs{{{1, 0}, {1, 0}, {1, 0}},
                            {{1, 0}, {0.6, 0.8}, {0, 1}},
                            {{2, 0}, {0, 1}, {4, 0}},
                            {0, 0, 0},
                            {1, 1, 0.5}};
    const Chunk chunk = make_chunk(inputs, 0, 3);
    const std::vector<std::string> tokens = {"1", "2", "3"};
    show("A", key_overlaps(chunk), tokens, tokens);
    const auto [w, u] = wy_representation(chunk);
    show("W", w, tokens, {"k0", "k1"});
    show("U", u, tokens, {"v0", "v1"});
    const Matrix state = {{1, 0}, {0, 1}};
    show("written", u - matmul(w, state), tokens, {"v0", "v1"});
}

namespace {

constexpr std::size_t D = 16;  // features of keys and values
const std::vector<std::string> memories = {"linear", "delta rule", "softmax"};

// Pairs of a random key and one of D values. Rewritten: each key a second time, with another
// value, in the same order.
HeadInputs random_pairs(std::size_t count, bool rewritten, Generator& generator) {
    Matrix keys = random_keys(count, D, generator);
    if (rewritten) keys = xt::concatenate(xt::xtuple(keys, keys), 0);
    const std::size_t num_tokens = keys.shape(0);
    Matrix values = xt::zeros<Real>({num_tokens, D});
    for (std::size_t n = 0; n < num_tokens; ++n) values(n, generator.next_32_bits() % D) = 1;
    return {keys, keys, values, xt::zeros<Real>({num_tokens}), xt::ones<Real>({num_tokens})};
}

// How many of the last values each memory returns for their keys: the largest element of what
// is read must be that of the value. Two equally large ones count half.
std::array<double, 3> count_right(const HeadInputs& pairs, std::size_t count) {
    const std::size_t num_tokens = pairs.keys.shape(0);
    const std::size_t first = num_tokens - count;
    const Matrix keys = xt::view(pairs.keys, xt::range(first, num_tokens), xt::all()),
                 values = xt::view(pairs.values, xt::range(first, num_tokens), xt::all());
    const auto read = [&](UpdateRule rule) {
        return matmul(keys, recurrent_form(pairs, rule, empty_state(D, D)).state);
    };
    const Matrix weights =  // sharp: e^32 between a key itself and an orthogonal one
        softmax(matmul_transposed(keys, pairs.keys) * Real(32));
    const std::array<Matrix, 3> answers = {read(UpdateRule::additive), read(UpdateRule::delta),
                                           matmul(weights, pairs.values)};
    std::array<double, 3> right = {};
    for (std::size_t i = 0; i < answers.size(); ++i)
        for (std::size_t n = 0; n < count; ++n) {
            // Equally large elements share the answer, so that rounding does not decide.
            const auto row = view_of(answers[i])[n];
            const Real bound = *std::max_element(row.begin(), row.end()) - Real(1e-4);
            double num_largest = 0, value = 0;
            for (std::size_t d = 0; d < D; ++d) {
                if (row[d] < bound) continue;
                ++num_largest;
                value += double(values(n, d));
            }
            right[i] += value / num_largest;
        }
    return right;
}

// The table and the panel of one kind of pairs.
LinePlot show_capacity(const std::string& title, bool rewritten, Generator& generator) {
    constexpr std::size_t num_trials = 40;
    TableRow headings = {"% right, pairs"};
    std::vector<TableRow> rows;
    LinePlot panel{title, "pairs of key and value", "% read right", {}};
    for (const std::string& memory : memories) {
        rows.push_back({memory});
        panel.lines.push_back({memory, {}, {}});
    }
    for (const std::size_t count : {2, 4, 8, 12, 16, 24, 32, 64}) {
        headings.push_back(to_text(count));
        std::array<double, 3> right = {};
        for (std::size_t trial = 0; trial < num_trials; ++trial) {
            const auto of_trial = count_right(random_pairs(count, rewritten, generator), count);
            for (std::size_t i = 0; i < right.size(); ++i) right[i] += of_trial[i];
        }
        for (std::size_t i = 0; i < right.size(); ++i) {
            const double percent = 100 * right[i] / double(num_trials * count);
            rows[i].push_back(fixed(percent, 0));
            panel.lines[i].x.push_back(double(count));
            panel.lines[i].y.push_back(percent);
        }
    }
    show_table(headings, rows);
    panel.log_x = true;
    panel.high = 100;
    return panel;
}

}  // namespace

void capacity(Generator& generator) {
    step("How many pairs of key and value does a state of 16 × 16 hold?");
    const LinePlot once = show_capacity("Each key once", false, generator);
    say("The same, if each key is written a second time, with another value:");
    const LinePlot twice = show_capacity("Each key twice: the later value", true, generator);
    plot("capacity", {once, twice});
}

}  // namespace llm
