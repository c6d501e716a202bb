#include "chapters/24_parallel/demo/small_run.hpp"
#include "chapters/28_model_parallel/demo/model_axes.hpp"
#include "chapters/28_model_parallel/vocabulary_parallel.hpp"
#include "common/output/show.hpp"
#include "common/parallel/thread_ranks.hpp"

namespace llm {
namespace {

// Loss and whole gradient of one step.
struct LossAndGradient {
    double loss = 0;
    Model gradient{};
};
LossAndGradient of_one_process(const SmallRun& run) {
    LossAndGradient result{0, zeros_like(run.model)};
    const auto [input_ids, targets] = run.batch();
    result.loss = forward_backward(run.model, input_ids, targets, result.gradient);
    return result;
}

// The same on n ranks; partial gradients may be left as they are, which is wrong.
LossAndGradient on_tensor_ranks(const SmallRun& run, std::size_t n, bool sequence_parallel,
                                bool sum_partial = true) {
    LossAndGradient result;
    run_ranks(n, [&](Communicator& ranks) {
        const auto [input_ids, targets] = run.batch();
        const auto [batch_size, seq_len] = dims(input_ids);
        const TensorParallelModel part =
            tensor_parallel_part(run.model, {&ranks, sequence_parallel, seq_len});
        TensorParallelModel gradient = zeros_like(part);
        const double loss = forward_backward(
            part, input_ids, targets,
            causal_attention_inputs(run.model.config, batch_size, seq_len), gradient);
        if (sum_partial) sum_partial_gradients(run.model.config, gradient);
        Model whole = gather(gradient, run.model);
        if (ranks.rank() == 0) result = {loss, std::move(whole)};
    });
    return result;
}

// The loss where each rank takes the softmax over its own tokens of the vocabulary.
double softmax_over_a_part(const SmallRun& run, std::size_t n) {
    const Batch batch = run.batch();
    const IdMatrix& targets = batch.targets;
    const Tensor3 logits = run.model(batch.input_ids);  // (B, T, V)
    double loss = 0;
    run_ranks(n, [&](Communicator& ranks) {
        const auto [begin, size] = part_of(logits.shape(2), n, ranks.rank());
        double own = 0;
        for (std::size_t b = 0; b < logits.shape(0); ++b)
            for (std::size_t t = 0; t < logits.shape(1); ++t) {
                const auto target = static_cast<std::size_t>(targets(b, t));
                if (target < begin || target >= begin + size) continue;
                const Matrix row =
                    xt::view(logits, b, xt::range(t, t + 1), xt::range(begin, begin + size));
                own += cross_entropy(row, IdVector{static_cast<Id>(target - begin)});
            }
        ranks.all_reduce(std::span(&own, 1));
        if (ranks.rank() == 0) loss = own / double(targets.size());
    });
    return loss;
}

Vector relu(const Vector& x) { return xt::maximum(x, Real(0)); }

std::string norm_of(Model gradient) { return fixed(grad_norm(named_parameters(gradient)), 6); }

}  // namespace

void two_features_by_hand() {
    step("An MLP of two features on two ranks, cut right and wrong");
    const Matrix up = {{3, -1}, {-1, 1}}, down = {{1, 2}, {4, -1}};  // (F, C), (C, F)
    const Vector x = {1, 2};                                         // (C)
    const Vector output = xt::linalg::dot(down, relu(xt::linalg::dot(up, x)));
    show("output", output);

    // Rank r has feature r: row r of up, column r of down.
    Matrix by_rows = xt::zeros<Real>({2, 2});  // (n, C)
    // Rank r has column r of up, so the nonlinearity acts on a part of each sum.
    Matrix by_columns = xt::zeros<Real>({2, 2});  // (n, F)
    for (std::size_t r = 0; r < 2; ++r) {
        const Vector row = xt::view(up, r, xt::all()), column = xt::view(up, xt::all(), r);
        const Real feature = std::max(Real(0), row(0) * x(0) + row(1) * x(1));
        const Vector partial_output = xt::view(down, xt::all(), r) * feature;
        const Vector partial_features = relu(column * x(r));
        for (std::size_t i = 0; i < 2; ++i) {
            by_rows(r, i) = partial_output(i);
            by_columns(r, i) = partial_features(i);
        }
    }
    show("partial_outputs", by_rows);
    show("features", Vector(relu(xt::linalg::dot(up, x))));
    show("features_of_columns", by_columns);
}

void slices_of_a_rank(std::uint32_t seed) {
    step("Tensor parallelism: what rank 1 of 4 has of a layer");
    SmallRun run = small_run(seed);
    std::vector<TableRow> rows;
    run_ranks(4, [&](Communicator& ranks) {
        TensorParallelModel part = tensor_parallel_part(run.model, {&ranks});
        if (ranks.rank() != 1) return;
        std::map<std::string, Parameter> whole;
        for (const Parameter& parameter : named_parameters(run.model))
            whole.emplace(parameter.name, parameter);
        for (const auto& [name, shape, values] : named_parameters(part)) {
            if (name.find("layers.1") != name.npos) continue;
            const Slice slice = slice_of(run.model.config, name, part.config.group);
            const auto [begin, size] = slice.part;
            const std::string range = " " + to_text(begin) + " to " + to_text(begin + size - 1);
            rows.push_back({name.substr(name.find('.') + 1), to_text(whole.at(name).shape),
                            slice.sharding == Sharding::rows      ? "rows" + range
                            : slice.sharding == Sharding::columns ? "columns" + range
                                                                  : "all",
                            to_text(slice.num_copies)});
        }
    });
    show_table({"parameter", "shape", "rank 1 has", "copies"}, rows);
}

void one_step_of_tensor_parallelism(std::uint32_t seed) {
    step("Loss and gradient with tensor parallelism");
    const SmallRun run = small_run(seed);
    const LossAndGradient whole = of_one_process(run);
    std::vector<TableRow> rows = {
        {"one process", fixed(whole.loss, 6), norm_of(whole.gradient), "0"}};
    for (const bool sequence_parallel : {false, true})
        for (const std::size_t n : {2, 4}) {
            const auto [loss, gradient] = on_tensor_ranks(run, n, sequence_parallel);
            rows.push_back(
                {to_text(n) + " ranks" + (sequence_parallel ? ", sequence parallel" : ""),
                 fixed(loss, 6), norm_of(gradient),
                 small_difference(largest_difference(gradient, whole.gradient))});
        }
    show_table({"", "loss", "gradient norm", "gradient differs by"}, rows);
}

void wrong_tensor_parallelism(std::uint32_t seed) {
    step("Wrong: parts taken for the whole, on 4 ranks");
    const SmallRun run = small_run(seed);
    const LossAndGradient whole = of_one_process(run);
    const auto row = [&](const std::string& name, double loss, const Model& gradient) {
        return TableRow{name, fixed(loss, 4), norm_of(gradient)};
    };
    const LossAndGradient heads = on_tensor_ranks(run, 4, false, false);
    const LossAndGradient norms = on_tensor_ranks(run, 4, true, false);
    show_table(
        {"", "loss", "gradient norm"},
        {row("right", whole.loss, whole.gradient),
         row("gradients of copied heads not added", heads.loss, heads.gradient),
         row("and, sequence parallel, those of norms", norms.loss, norms.gradient),
         {"softmax over the rank's own tokens", fixed(softmax_over_a_part(run, 4), 4), "-"}});
}

}  // namespace llm
