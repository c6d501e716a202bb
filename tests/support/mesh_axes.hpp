// For tests of a mesh: loss, gradient and norm of one step on it against those of one process.
#pragma once

#include "chapters/28_model_parallel/mesh_step.hpp"
#include "tests/support/model_axes.hpp"

namespace llm::parallel_tests {

// A model, and the batches of one step.
struct MeshCase {
    MeshSizes sizes;
    Config config;
    std::size_t batch_size, num_batches, seq_len;  // B, batches of a step, T
    std::uint32_t seed = 5;
    Real std = Real(0.3);  // of the weights
};

inline std::vector<StepBatch> random_batches(const MeshCase& c, Generator& generator) {
    std::vector<StepBatch> batches;
    for (std::size_t i = 0; i < c.num_batches; ++i) {
        Batch batch = square_batch(c.batch_size, c.seq_len);
        for (IdMatrix* ids : {&batch.input_ids, &batch.targets})
            for (Id& id : *ids)
                id = Id(generator.next_32_bits() % std::uint32_t(c.config.vocab_size));
        batches.push_back({batch, 0});
    }
    return batches;
}

inline void check_mesh(const MeshCase& c, double tolerance, double share_of_largest = 1e-4) {
    Generator generator(c.seed);
    Model model = make_model(c.config, generator);
    init_normal(model, c.std, generator);
    const std::vector<StepBatch> batches = random_batches(c, generator);
    Model expected = zeros_like(model);
    double loss = 0;
    for (const StepBatch& batch : batches)
        loss += add_share(model, batch.batch, 1 / Real(batches.size()), expected);
    const double norm = grad_norm(named_parameters(expected));

    run_ranks(c.sizes.num_ranks(), [&](Communicator& ranks) {
        const Mesh mesh = make_mesh(ranks, c.sizes);
        MeshPart part = mesh_part(model, mesh);
        MeshModel gradient = zeros_like(part.stage.part);
        const double share = loss_and_gradient(
            part, batches_of_rank(batches, c.sizes.data, mesh.at.data), gradient);
        check_loss(ranks, share, loss, tolerance);
        CHECK(std::abs(mesh_grad_norm(part, gradient) - norm) <= tolerance * norm);
        check_equal(gather(part, parameters_of(part, gradient)), expected, tolerance,
                    share_of_largest);

        // Not only owners have the whole step's gradient.
        MeshPart expected_part = mesh_part(expected, mesh);
        check_equal_parameters(parameters_of(part, gradient),
                               parameters_of(expected_part, expected_part.stage.part),
                               tolerance, share_of_largest);
    });
}

// Of 8 ranks; no size of the model or of the step is divided evenly, but the heads.
inline constexpr std::array meshes_of_8 = {MeshSizes{2, 2, 1, 2}, MeshSizes{2, 1, 2, 2},
                                           MeshSizes{1, 2, 2, 2}};
inline void check_meshes_of_8(double tolerance) {
    for (const MeshSizes& sizes : meshes_of_8)
        for (const bool tied : {false, true}) {
            MeshCase c{sizes, uneven_config(tied), 3, 3, 7};
            c.config.num_hidden_layers = 3;
            check_mesh(c, tolerance);
        }
}

// A mesh of up to 8 ranks, a model and a step that can be divided by it.
inline MeshCase random_mesh_case(Generator& generator) {
    const auto from = [&](std::size_t least, std::size_t most) {
        return least + generator.next_32_bits() % (most - least + 1);
    };
    MeshCase c{{}, tiny_config(1), 1, 1, 1};
    MeshSizes& sizes = c.sizes;
    do sizes = {from(1, 4), from(1, 4), from(1, 4), from(1, 4)};
    while (sizes.num_ranks() > 8);
    const std::size_t n = sizes.tensor;

    Config& config = c.config;
    config.num_key_value_heads = from(0, 1) == 0 && n == 4 ? 2 : n * from(1, 2);
    if (from(0, 2) == 0) config.num_key_value_heads = 1;  // copied on all ranks
    do config.num_attention_heads = config.num_key_value_heads * from(1, 4);
    while (config.num_attention_heads % n != 0);
    config.head_dim = 2 * from(2, 4);
    config.hidden_size = from(8, 13);
    config.intermediate_size = from(n, 13);
    config.vocab_size = from(n, 12) + 1;
    config.num_hidden_layers = from(sizes.pipeline, sizes.pipeline + 2);
    config.tie_word_embeddings = from(0, 1) == 0;
    config.qk_norm = from(0, 1) == 0 ? QKNormType::with_weights : QKNormType::none;
    config.attention_bias =
        std::array{AttentionBias::none, AttentionBias::qkv, AttentionBias::qkvo}[from(0, 2)];
    c.seq_len = from(2 * sizes.context, 11);
    c.batch_size = from(1, 3);
    c.num_batches = from((sizes.data + c.batch_size - 1) / c.batch_size, 4);
    c.seed = generator.next_32_bits();
    c.std = Real(0.2);  // with 0.3, the gradients of one of 200 models are ill-conditioned
    return c;
}
// In float, a gradient that is a small difference of large numbers has fewer digits; it is
// compared with a share of the largest one.
inline void check_random_meshes(std::size_t num_cases, double tolerance,
                                double share_of_largest = 1e-4) {
    Generator generator(62);
    for (std::size_t i = 0; i < num_cases; ++i) {
        CAPTURE(i);
        check_mesh(random_mesh_case(generator), tolerance, share_of_largest);
    }
}

}  // namespace llm::parallel_tests
