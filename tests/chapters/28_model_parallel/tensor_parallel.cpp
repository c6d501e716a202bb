#include <set>

#include "chapters/24_parallel/ring.hpp"
#include "tests/support/check.hpp"
#include "tests/support/model_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

TEST_CASE("tensor parallelism: the gradient on 1 to 4 ranks equals that of one process") {
    check_tensor_parallel(1e-5);
}

TEST_CASE("tensor parallelism: heads that ranks cannot share are an error") {
    const Model model = uneven_model(uneven_config(true));
    run_ranks(3, [&](Communicator& ranks) {
        CHECK_THROWS_WITH_AS(
            tensor_parallel_part(model, {&ranks}),
            "tensor parallelism: 3 ranks cannot share 4 query heads and 2 key/value heads",
            ValueError);
    });
    const Model over_all_heads =
        uneven_model(uneven_config(true, QKNormType::over_all_heads, AttentionBias::none));
    run_ranks(2, [&](Communicator& ranks) {
        CHECK_THROWS_WITH_AS(
            tensor_parallel_part(over_all_heads, {&ranks}),
            "tensor parallelism: a QK norm over all heads needs a mean over ranks", ValueError);
    });
}

TEST_CASE("tensor parallelism: an id or a target outside of the vocabulary is an error") {
    const Model model = uneven_model(uneven_config(true));
    for (const bool is_target : {false, true}) {
        Batch batch = square_batch(3, 7);
        (is_target ? batch.targets : batch.input_ids)(2, 1) = 11;
        run_ranks(2, [&](Communicator& ranks) {
            const TensorParallelModel part = tensor_parallel_part(model, {&ranks});
            TensorParallelModel gradient = zeros_like(part);
            CHECK_THROWS_WITH_AS(
                forward_backward(part, batch.input_ids, batch.targets,
                                 causal_attention_inputs(model.config, 3, 7), gradient),
                doctest::Contains("11"), ValueError);
        });
    }
}

TEST_CASE("slice_of: the first row of each copied head, and how many ranks have it") {
    const Config config = uneven_config(true);  // H 4, Hkv 2, D 4
    run_ranks(4, [&](Communicator& ranks) {
        const TensorParallelGroup group{&ranks};
        const Slice k = slice_of(config, "model.layers.0.self_attn.k_proj.weight", group);
        CHECK(k.part.begin == (ranks.rank() < 2 ? 0 : 4));
        CHECK(k.part.size == 4);
        CHECK(k.num_copies == 2);
        CHECK(k.is_first == (ranks.rank() % 2 == 0));
        CHECK(slice_of(config, "model.layers.0.self_attn.q_norm.weight", group)
                  .partial_gradients);
        CHECK_FALSE(slice_of(config, "model.norm.weight", group).partial_gradients);
        CHECK(slice_of(config, "model.norm.weight", {&ranks, true, 7}).partial_gradients);
    });
}

TEST_CASE("ring rows: a part has whole rows, also if the ranks do not divide them") {
    run_ranks(3, [](Communicator& ranks) {
        std::vector<Real> values(4 * 5);  // rows 0 and 1, row 2, row 3
        const auto [begin, size] = part_of(4, 3, ranks.rank());
        for (std::size_t i = begin * 5; i < (begin + size) * 5; ++i) values[i] = Real(i);
        ring_all_gather_rows(ranks, values, 5);
        for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Real(i));
        ring_reduce_scatter_rows(ranks, values, 5);
        for (std::size_t i = begin * 5; i < (begin + size) * 5; ++i)
            CHECK(values[i] == Real(3 * i));
    });
}

TEST_CASE("slice_of: query heads alone, or key and value heads alone, that ranks can share") {
    struct Sharing {
        std::size_t num_ranks, num_heads, num_key_value_heads;
    };
    for (const auto& [n, H, Hkv] : {Sharing{2, 6, 3}, Sharing{4, 6, 2}}) {
        Config config = uneven_config(true);
        config.num_attention_heads = H;
        config.num_key_value_heads = Hkv;
        const std::string message =
            "tensor parallelism: " + std::to_string(n) + " ranks cannot share " +
            std::to_string(H) + " query heads and " + std::to_string(Hkv) + " key/value heads";
        run_ranks(n, [&](Communicator& ranks) {
            CHECK_THROWS_WITH_AS(slice_of(config, "q_proj.weight", {&ranks}), message.c_str(),
                                 ValueError);
        });
    }
}

}  // namespace
