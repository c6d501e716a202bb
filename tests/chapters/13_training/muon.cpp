#include <cmath>

#include "chapters/13_training/muon.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

Parameter parameter_of(const std::string& name, Matrix& matrix) {
    return {name, {matrix.shape(0), matrix.shape(1)}, {matrix.data(), matrix.size()}};
}

// A matrix with orthonormal rows: the rows of a random matrix by the Gram–Schmidt process.
Matrix orthonormal_rows(std::size_t num_rows, std::size_t num_columns, Generator& generator) {
    Matrix rows = randn({num_rows, num_columns}, generator);
    for (std::size_t i = 0; i < num_rows; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            Real product = 0;
            for (std::size_t k = 0; k < num_columns; ++k) product += rows(i, k) * rows(j, k);
            for (std::size_t k = 0; k < num_columns; ++k) rows(i, k) -= product * rows(j, k);
        }
        Real square = 0;
        for (std::size_t k = 0; k < num_columns; ++k) square += rows(i, k) * rows(i, k);
        for (std::size_t k = 0; k < num_columns; ++k) rows(i, k) /= std::sqrt(square);
    }
    return rows;
}

}  // namespace

TEST_CASE("Muon equals PyTorch: wide, tall and square matrices, three steps with decay") {
    for (const std::string shape : {"wide", "tall", "square"}) {
        INFO(shape);
        const std::string name = "13_training/muon_" + shape + "_";
        Matrix matrix = fixture<2>(name + "before");
        const Tensor3 gradients = fixture<3>(name + "gradients");
        const Matrix first_gradient = xt::view(gradients, 0);
        CHECK_CLOSE(newton_schulz(first_gradient), fixture<2>(name + "orthogonalized"), 1e-4);

        Muon optimizer;
        const std::vector<Real> rates = {Real(0.02), Real(0.05), Real(0.01)};
        for (std::size_t step = 0; step < rates.size(); ++step) {
            Matrix gradient = xt::view(gradients, step);
            optimizer.step({parameter_of("w", matrix)}, {parameter_of("w", gradient)},
                           rates[step]);
        }
        CHECK_CLOSE(matrix, fixture<2>(name + "after"), 1e-5);
    }
}

TEST_CASE("newton_schulz brings each singular value near 1 and keeps the singular vectors") {
    // U S V' with known parts; the polynomial is applied to each singular value, in double.
    Generator generator(5);
    const std::vector<double> singular_values = {4, 1, 0.3, 0.02};
    const std::size_t rank = singular_values.size();
    const Matrix u = orthonormal_rows(rank, rank, generator);
    const Matrix v = orthonormal_rows(rank, 9, generator);
    double norm = 0;
    for (const double s : singular_values) norm += s * s;
    Matrix matrix = xt::zeros<Real>({rank, std::size_t{9}}), expected = matrix;
    for (std::size_t r = 0; r < rank; ++r) {
        double s = singular_values[r] / std::sqrt(norm);
        for (int i = 0; i < 5; ++i)
            s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
        INFO(singular_values[r]);
        CHECK(s > 0.6);
        CHECK(s < 1.3);
        for (std::size_t i = 0; i < rank; ++i)
            for (std::size_t j = 0; j < 9; ++j) {
                matrix(i, j) += Real(singular_values[r]) * u(i, r) * v(r, j);
                expected(i, j) += Real(s) * u(i, r) * v(r, j);
            }
    }
    CHECK_CLOSE(newton_schulz(matrix), expected, 1e-4);
    // The scale of the matrix does not matter.
    CHECK_CLOSE(newton_schulz(1000 * matrix), expected, 1e-4);
    // A transposed matrix has the transposed result.
    const Matrix transposed = xt::transpose(matrix);
    CHECK_CLOSE(newton_schulz(transposed), Matrix(xt::transpose(expected)), 1e-4);
    const Matrix zeros = xt::zeros<Real>({3, 4});
    CHECK_CLOSE(newton_schulz(zeros), zeros, 0);
}

TEST_CASE("Muon: the root mean square of an update is about 0.2 times the learning rate") {
    Generator generator(6);
    for (const auto& [rows, columns] :
         std::vector<std::pair<std::size_t, std::size_t>>{{64, 64}, {24, 96}, {96, 24}}) {
        Matrix matrix = xt::zeros<Real>({rows, columns});
        Matrix gradient = Real(1e-3) * randn({rows, columns}, generator);
        Muon optimizer;
        optimizer.step({parameter_of("w", matrix)}, {parameter_of("w", gradient)}, Real(0.5));
        double square = 0;
        for (const Real x : matrix) square += double(x) * double(x);
        const double rms = std::sqrt(square / double(matrix.size()));
        CHECK(rms > 0.5 * 0.2 * 0.6);
        CHECK(rms < 0.5 * 0.2 * 1.2);
    }
}

TEST_CASE("Muon updates the matrices of attention and MLP, AdamW all other parameters") {
    Config config = tiny_config(2);
    config.qk_norm = QKNormType::with_weights;
    config.attention_bias = AttentionBias::qkv;
    config.tie_word_embeddings = false;
    Generator generator(1);
    Model model = make_model_for_training(config, generator);
    const std::vector<Parameter> all = named_parameters(model);
    const auto [adamw, muon] = parameter_groups(all, OptimizerType::muon);
    CHECK(muon.size() == 2 * 7);
    CHECK(adamw.size() + muon.size() == all.size());
    for (const Parameter& parameter : muon) {
        INFO(parameter.name);
        CHECK(parameter.name.ends_with("_proj.weight"));
    }
    CHECK(parameter_groups(all, OptimizerType::adamw).muon.empty());
    CHECK(parameter_groups(all, OptimizerType::adamw).adamw.size() == all.size());

    TrainingArguments args = small_arguments(12);
    args.optimizer = OptimizerType::muon;
    TrainerState state = make_trainer_state(model, args);
    CHECK(state.optimizer.exp_avg.size() == adamw.size());
    CHECK(state.muon.momentum_buffer.size() == muon.size());
}

TEST_CASE("a step with Muon is AdamW's step of the other parameters and Muon's of the rest") {
    const std::vector<Id> tokens = square_tokens(200);
    TrainingArguments args = small_arguments(12);
    args.optimizer = OptimizerType::muon;
    Generator generator(4);
    const Model model = make_model_for_training(tiny_config(1), generator);
    std::vector<Model> gradients(1, zeros_like(model));
    TrainerState state = make_trainer_state(model, args);
    const Real rate = train_step(state, args, tokens, gradients).learning_rate;

    Model by_hand = model;  // train_step leaves the clipped gradient in gradients[0]
    const auto [adamw, muon] = parameter_groups(named_parameters(by_hand), OptimizerType::muon);
    const auto [other_gradients, matrix_gradients] =
        parameter_groups(named_parameters(gradients[0]), OptimizerType::muon);
    AdamW optimizer;
    optimizer.step(adamw, other_gradients, rate);
    Muon muon_optimizer;
    muon_optimizer.step(muon, matrix_gradients, rate);
    CHECK_CLOSE(all_values(state.model), all_values(by_hand), 0);

    args.optimizer = OptimizerType::adamw;
    TrainerState other = make_trainer_state(model, args);
    train_step(other, args, tokens, gradients);
    CHECK(difference(all_values(other.model), all_values(state.model), 1e-3) != "");
}

TEST_CASE("Muon names parameters and gradients that do not fit") {
    Matrix two = xt::zeros<Real>({2, 3}), other = xt::zeros<Real>({3, 2});
    Muon optimizer;
    CHECK_THROWS_WITH_AS(
        optimizer.step({parameter_of("w", two)}, {parameter_of("w", other)}, 1),
        "Muon: parameter w of (2, 3), but gradient w of (3, 2)", ValueError);
    CHECK_THROWS_WITH_AS(optimizer.step({parameter_of("w", two)}, {}, 1),
                         "Muon: 1 parameters, but 0 gradients", ValueError);
    const Parameter row{"norm", {6}, {two.data(), two.size()}};
    CHECK_THROWS_WITH_AS(optimizer.step({row}, {row}, 1), "Muon: norm of (6,) is not a matrix",
                         ValueError);
    optimizer.step({parameter_of("w", two)}, {parameter_of("w", two)}, 1);
    CHECK_THROWS_WITH_AS(
        optimizer.step({parameter_of("w", other)}, {parameter_of("w", other)}, 1),
        "Muon: w has another shape than in the steps before", ValueError);
    CHECK_THROWS_AS(optimizer.step({}, {}, 1), ValueError);
}
