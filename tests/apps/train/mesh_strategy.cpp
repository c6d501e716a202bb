#include "chapters/apps/train/mesh_strategy.hpp"

#include <limits>

#include "tests/support/run_on_ranks.hpp"

using namespace llm;
using namespace llm::runs;

namespace {

RunOnRanks::MakeStrategy on_mesh(const MeshSizes& sizes) {
    return
        [sizes](Communicator& ranks) { return std::make_shared<MeshStrategy>(ranks, sizes); };
}

std::vector<std::size_t> train(RunOnRanks& run, const MeshSizes& sizes) {
    return run.train(sizes.num_ranks(), on_mesh(sizes));
}

// Data, pipeline, context, tensor: each axis alone, pairs, and all but one.
constexpr std::array meshes = {MeshSizes{1, 1, 1, 2}, MeshSizes{1, 2, 1, 1},
                               MeshSizes{1, 1, 2, 1}, MeshSizes{3, 2, 1, 1},
                               MeshSizes{2, 1, 2, 1}, MeshSizes{1, 2, 2, 2}};

TEST_CASE("each mesh leaves the log and the checkpoint of one process") {
    RunOnRanks one;
    one.train_in_one_process();
    for (const MeshSizes& sizes : meshes) {
        CAPTURE(sizes.num_ranks());
        RunOnRanks run;
        CHECK(train(run, sizes) == std::vector<std::size_t>(sizes.num_ranks(), 12));
        check_equal_runs(run, one);
    }
}

TEST_CASE("a checkpoint of a mesh continues on another one") {
    RunOnRanks one;
    one.train_in_one_process();
    for (std::size_t i = 0; i < meshes.size(); ++i) {
        CAPTURE(i);
        const MeshSizes &first = meshes[i], &second = meshes[(i + 2) % meshes.size()];
        RunOnRanks run;
        run.stop_at = 6;
        CHECK(train(run, first) == std::vector<std::size_t>(first.num_ranks(), 6));
        run.stop_at = 0;
        CHECK(train(run, second) == std::vector<std::size_t>(second.num_ranks(), 12));
        check_equal_runs(run, one);
    }
}

TEST_CASE("a checkpoint goes from a mesh to ZeRO ranks and one process, and back") {
    RunOnRanks one;
    one.train_in_one_process();
    constexpr MeshSizes sizes{1, 2, 1, 2};
    for (const bool mesh_first : {true, false})
        for (const std::size_t zero : {0, 1, 3}) {
            CAPTURE(mesh_first);
            CAPTURE(zero);
            RunOnRanks run;
            for (const bool is_second : {false, true}) {
                run.stop_at = is_second ? 0 : 6;
                const std::size_t steps = mesh_first != is_second ? train(run, sizes)[0]
                                          : zero == 0             ? run.train_in_one_process()
                                                      : run.train(3, ZeroStage(zero))[0];
                CHECK(steps == (is_second ? 12 : 6));
            }
            check_equal_runs(run, one);
        }
}

TEST_CASE("on a mesh, the ranks whose loss is not finite are named, once") {
    const TrainingTask task = small_task();
    Generator generator(5);
    Model model = make_model_for_training(task.config, generator);
    model.norm.weight(0) = std::numeric_limits<Real>::quiet_NaN();
    const auto take_step = [&] {
        run_ranks(4, [&](Communicator& ranks) {
            MeshStrategy strategy(ranks, {1, 2, 1, 2});
            TrainerState state = make_trainer_state(model, task.args);
            strategy.start(state, task.args);
            strategy.step(state, task.args, task.dataset.train);
        });
    };
    const std::string advice = resume_advice;
    CHECK_THROWS_WITH_AS(take_step(),
                         ("step 1: the loss is not finite on rank 2" + advice).c_str(),
                         std::runtime_error);
}

TEST_CASE("a rank of a mesh says what it is, and how much memory its part needs") {
    TrainingTask task = small_task();
    for (const bool tied : {true, false})
        for (const MeshSizes& sizes : meshes) {
            CAPTURE(tied);
            task.config.tie_word_embeddings = tied;
            Generator generator(5);
            const Model model = make_model_for_training(task.config, generator);
            run_ranks(sizes.num_ranks(), [&](Communicator& ranks) {
                const MeshStrategy strategy(ranks, sizes);
                const Mesh mesh = make_mesh(ranks, sizes);
                MeshPart part = mesh_part(model, mesh);
                if (!strategy.is_main()) return;
                CHECK(strategy.description().ends_with(" each: data " + to_text(sizes.data) +
                                                       ", pipeline " + to_text(sizes.pipeline) +
                                                       ", context " + to_text(sizes.context) +
                                                       ", tensor " + to_text(sizes.tensor)));
                const std::size_t count = num_elements(parameters_of(part, part.stage.part));
                CHECK(strategy.num_bytes(model.config, task.args) == 16 * count);
            });
        }
}

TEST_CASE("the sizes of a mesh: sequences are divided among the ranks that are left") {
    CHECK(mesh_sizes(8, {.tensor = 2, .pipeline = 2}) == MeshSizes{2, 2, 1, 2});
    CHECK_THROWS_WITH_AS(mesh_sizes(8, {.tensor = 3, .pipeline = 2}),
                         "--ranks: 8 ranks are not a multiple of 6 = 3 x 2 x 1 (--tensor, "
                         "--pipeline, --context)",
                         ValueError);
}

TEST_CASE("a mesh by which a run cannot be divided is rejected") {
    TrainingTask task = small_task();  // H 2, Hkv 1, F 24, L 2, T 8, 3 sequences
    task.args.gradient_accumulation_steps = 1;
    task.args.seq_len = 8;
    check_mesh(task, {3, 2, 4, 2});
    const auto message_of = [&](const MeshSizes& sizes) -> std::string {
        try {
            check_mesh(task, sizes);
        } catch (const ValueError& error) {
            return error.what();
        }
        return "";
    };
    CHECK(message_of({1, 1, 1, 3}) ==
          "mesh: tensor=3, but so many ranks cannot share 2 query heads and 1 key/value heads");
    CHECK(message_of({1, 1, 5, 1}) ==
          "mesh: context=5, which is 10 chunks, but a sequence has 8 tokens");
    CHECK(message_of({4, 2, 1, 1}) == "mesh: data=4 (of 8 ranks), but a step has 3 sequences");
    task.args.gradient_accumulation_steps = 2;
    CHECK(message_of({6, 1, 1, 1}).empty());
    CHECK(message_of({7, 1, 1, 1}) == "mesh: data=7 (of 7 ranks), but a step has 6 sequences");
    task.config.attention_dropout = Real(0.1);
    CHECK(message_of({1, 1, 1, 2}) ==
          "--attention-dropout excludes --tensor, --pipeline and --context: the masks would "
          "not be those of one process");
    task.config.attention_dropout = 0;
    task.args.optimizer = OptimizerType::muon;
    CHECK(message_of({1, 1, 1, 2}) ==
          "--optimizer muon excludes --tensor, --pipeline and --context: it needs whole "
          "matrices");
}

}  // namespace
