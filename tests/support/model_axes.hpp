// For tests of tensor, pipeline and context parallelism: the gradient of one step on several
// ranks against that of one process.
#pragma once

#include "chapters/28_model_parallel/context_parallel.hpp"
#include "chapters/28_model_parallel/pipeline.hpp"
#include "tests/support/parallel_helpers.hpp"

namespace llm::parallel_tests {

// A model of H 4 and Hkv 2 whose F, V and T no number of ranks divides.
inline Config uneven_config(bool tied, QKNormType qk_norm, AttentionBias bias) {
    Config config = tiny_config(2);
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 4;
    config.intermediate_size = 13;
    config.vocab_size = 11;
    config.qk_norm = qk_norm;
    config.attention_bias = bias;
    config.tie_word_embeddings = tied;
    return config;
}

inline Model uneven_model(const Config& config) {
    Generator generator(5);
    Model model = make_model(config, generator);
    init_normal(model, Real(0.3), generator);
    return model;
}

// B sequences of T tokens, from a vocabulary of 11.
inline Batch square_batch(std::size_t batch_size, std::size_t seq_len, std::size_t seed = 0) {
    Batch batch{IdMatrix(std::array{batch_size, seq_len}),
                IdMatrix(std::array{batch_size, seq_len})};
    for (std::size_t i = 0; i < batch.input_ids.size(); ++i) {
        batch.input_ids.data()[i] = Id((i + seed) * i % 11);
        batch.targets.data()[i] = Id((i + 3) * (i + seed) % 11);
    }
    return batch;
}

// Adds the gradient of share times the loss, and returns this product.
inline double add_share(const Model& model, const Batch& batch, Real share, Model& gradient) {
    const auto [logits, saved] = model_forward(model, batch.input_ids);
    model_backward(model, saved, share * cross_entropy_backward(logits, batch.targets),
                   gradient);
    return double(share) * cross_entropy(logits, batch.targets);
}

inline void check_loss(Communicator& ranks, double share, double expected, double tolerance) {
    ranks.all_reduce(std::span(&share, 1));
    CHECK(std::abs(share - expected) <= tolerance * expected);
}

// Tied with QK norm and biases of q, k and v; or untied with all biases.
inline Config uneven_config(bool tied) {
    return uneven_config(tied, tied ? QKNormType::with_weights : QKNormType::none,
                         tied ? AttentionBias::qkv : AttentionBias::qkvo);
}

inline void check_tensor_parallel(double tolerance) {
    for (const bool sequence_parallel : {false, true})
        for (const bool tied : {false, true}) {
            const Model model = uneven_model(uneven_config(tied));
            const Batch batch = square_batch(3, 7);
            Model expected = zeros_like(model);
            const double loss = add_share(model, batch, 1, expected);
            for (const std::size_t n : {1, 2, 4})
                run_ranks(n, [&](Communicator& ranks) {
                    CAPTURE(n);
                    CAPTURE(sequence_parallel);
                    const TensorParallelModel part =
                        tensor_parallel_part(model, {&ranks, sequence_parallel, 7});
                    TensorParallelModel gradient = zeros_like(part);
                    const double own =
                        forward_backward(part, batch.input_ids, batch.targets,
                                         causal_attention_inputs(model.config, 3, 7), gradient);
                    sum_partial_gradients(model.config, gradient);
                    CHECK(std::abs(own - loss) <= tolerance * loss);
                    check_equal(gather(gradient, model), expected, tolerance);
                    check_equal(gather(part, model), model, 0);
                });
        }
}

// Four micro-batches, of which the last one is smaller, on up to three stages of up to two
// layers.
inline void check_pipeline(double tolerance) {
    for (const bool tied : {false, true}) {
        Config config = uneven_config(tied);
        config.num_hidden_layers = 3;
        const Model model = uneven_model(config);
        std::vector<MicroBatch> micro_batches;
        Model expected = zeros_like(model);
        double loss = 0;
        for (std::size_t m = 0; m < 4; ++m) {
            const std::size_t rows = m == 3 ? 1 : 2;
            const Batch batch = square_batch(rows, 5, m);
            const Real share = Real(rows) / 7;
            micro_batches.push_back({batch.input_ids, batch.targets,
                                     causal_attention_inputs(config, rows, 5), share});
            loss += add_share(model, batch, share, expected);
        }
        for (const bool is_gpipe : {false, true})
            for (const std::size_t p : {1, 2, 3})
                run_ranks(p, [&](Communicator& ranks) {
                    CAPTURE(p);
                    const PipelineStage<Model> stage = pipeline_stage(model, ranks);
                    Model gradient = zeros_like(stage.part);
                    const double own = run_schedule(
                        stage,
                        is_gpipe ? gpipe_schedule(4)
                                 : one_forward_one_backward_schedule(4, p, ranks.rank()),
                        micro_batches, gradient);
                    sum_tied_gradients(stage, gradient);
                    check_loss(ranks, own, loss, tolerance);
                    check_equal(gradient, pipeline_stage(expected, ranks).part, tolerance);
                });
    }
}

// Two stages, each of two ranks that share its layers.
inline void check_pipeline_of_tensor_ranks(double tolerance) {
    for (const bool tied : {false, true}) {
        const Model model = uneven_model(uneven_config(tied));
        const Batch batch = square_batch(3, 7);
        Model expected = zeros_like(model);
        const double loss = add_share(model, batch, 1, expected);
        run_ranks(4, [&](Communicator& all) {
            const auto tensor = all.split(all.rank() / 2), pipeline = all.split(all.rank() % 2);
            const TensorParallelModel part =
                tensor_parallel_part(model, {tensor.get(), true, 7});
            const auto stage = pipeline_stage(part, *pipeline);
            TensorParallelModel gradient = zeros_like(stage.part);
            const double own = run_schedule(stage, gpipe_schedule(1),
                                            {{batch.input_ids, batch.targets,
                                              causal_attention_inputs(model.config, 3, 7), 1}},
                                            gradient);
            sum_tied_gradients(stage, gradient);
            sum_partial_gradients(model.config, gradient);
            if (stage.is_last()) CHECK(std::abs(own - loss) <= tolerance * loss);
            TensorParallelModel of_stage =
                pipeline_stage(tensor_parallel_part(expected, part.config.group), *pipeline)
                    .part;
            check_equal_parameters(named_parameters(gradient), named_parameters(of_stage),
                                   tolerance);
        });
    }
}

inline void check_context_parallel(double tolerance) {
    const std::size_t T = 13;  // which no number of chunks divides
    for (const bool tied : {false, true}) {
        const Model model = uneven_model(uneven_config(tied));
        const Batch batch = square_batch(2, T);
        Model expected = zeros_like(model);
        const double loss = add_share(model, batch, 1, expected);
        for (const std::size_t n : {1, 2, 3, 4})
            run_ranks(n, [&](Communicator& ranks) {
                CAPTURE(n);
                const ContextParallelModel part = context_parallel(model, ranks);
                ContextParallelModel gradient = zeros_like(part);
                const RingAttention::Inputs inputs = ring_inputs(model.config, ranks, 2, T);
                const std::vector<std::size_t> own = inputs.chunks.positions(ranks.rank());
                const IdMatrix targets = slice_positions(batch.targets, own);
                const auto [logits, saved] =
                    model_forward(part, slice_positions(batch.input_ids, own), inputs);
                const Real share = Real(own.size()) / Real(T);
                model_backward(part, saved, share * cross_entropy_backward(logits, targets),
                               gradient);
                check_loss(ranks, double(share) * cross_entropy(logits, targets), loss,
                           tolerance);
                for (const Parameter& parameter : named_parameters(gradient))
                    ranks.all_reduce(parameter.values);
                Model whole = expected;
                check_equal_parameters(named_parameters(gradient), named_parameters(whole),
                                       tolerance);
            });
    }
}

}  // namespace llm::parallel_tests
