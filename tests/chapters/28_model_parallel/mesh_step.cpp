#include "chapters/28_model_parallel/mesh_step.hpp"

#include "tests/support/check.hpp"
#include "tests/support/mesh_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE("three meshes of 8 ranks: loss, gradient and norm of one process") {
    check_meshes_of_8(1e-5);
}

TEST_CASE("200 random meshes of up to 8 ranks: loss, gradient and norm of one process") {
    check_random_meshes(200, 1e-5, 1);
}

TEST_CASE("a mesh: each parameter has one owner, or its slices have one each") {
    const Model model = uneven_model(uneven_config(true));  // tied, with Hkv 2
    std::mutex mutex;
    std::map<std::string, std::size_t> num_elements;
    run_ranks(16, [&](Communicator& ranks) {
        const Mesh mesh = make_mesh(ranks, {1, 2, 2, 4});
        MeshPart part = mesh_part(model, mesh);
        const std::vector<Parameter> parameters = parameters_of(part, part.stage.part);
        check_equal(gather(part, parameters), model, 0);
        const std::lock_guard lock(mutex);
        for (const auto& [name, shape, values] : parameters)
            if (is_owner(part, name)) num_elements[name] += values.size();
    });
    for (const ConstParameter& parameter : named_parameters(model))
        CHECK_MESSAGE(num_elements[parameter.name] == parameter.values.size(), parameter.name);
}

TEST_CASE("steps on a mesh: losses, norms and parameters of one process, which clips") {
    Task task = make_task(true, 2, 3);
    task.args.end_of_text_id.reset();
    task.args.max_grad_norm = 0.5;
    const Result expected = one_process(task, 4);
    REQUIRE(expected.metrics.grad_norm > 0.5);
    for (const MeshSizes& sizes : meshes_of_8)
        run_ranks(8, [&](Communicator& ranks) {
            const Mesh mesh = make_mesh(ranks, sizes);
            MeshPart part = mesh_part(task.model, mesh);
            MeshModel gradient = zeros_like(part.stage.part);
            TrainerState state{task.model, {}, {}, 0, {}};
            state.optimizer.weight_decay = task.args.weight_decay;
            StepMetrics metrics{};
            for (int step = 0; step < 4; ++step)
                metrics = mesh_step(part, state, task.args, task.tokens, gradient);
            CHECK(metrics.loss == doctest::Approx(expected.metrics.loss).epsilon(1e-5));
            CHECK(metrics.grad_norm ==
                  doctest::Approx(expected.metrics.grad_norm).epsilon(1e-4));
            check_equal(gather(part, parameters_of(part, part.stage.part)), expected.model,
                        1e-3);
        });
}

TEST_CASE("a step on a mesh: what would not be the step of one process is an error") {
    const Task task = make_task(true, 2, 2);
    run_ranks(2, [&](Communicator& ranks) {
        const Mesh mesh = make_mesh(ranks, {1, 1, 1, 2});
        const auto step = [&](TrainingArguments args, Real dropout) {
            Model model = task.model;
            model.config.attention_dropout = dropout;
            MeshPart part = mesh_part(model, mesh);
            MeshModel gradient = zeros_like(part.stage.part);
            TrainerState state{model, {}, {}, 0, {}};
            mesh_step(part, state, args, task.tokens, gradient);
        };
        const char* message =
            "a mesh: its steps have no Muon, no dropout and no masks of documents";
        TrainingArguments args = task.args;  // with documents
        CHECK_THROWS_WITH_AS(step(args, 0), message, ValueError);
        args.end_of_text_id.reset();
        step(args, 0);
        CHECK_THROWS_WITH_AS(step(args, Real(0.1)), message, ValueError);
        args.optimizer = OptimizerType::muon;
        CHECK_THROWS_WITH_AS(step(args, 0), message, ValueError);
    });
}

}  // namespace
