#include "chapters/apps/bench/parallel/ring_attention.hpp"

#include "chapters/28_model_parallel/context_parallel.hpp"
#include "chapters/apps/bench/parallel/seconds_of.hpp"
#include "chapters/apps/train/training_task.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

constexpr std::size_t seq_len = 4096;

template <class Layer, class Inputs>
double attention_seconds(Communicator& ranks, const Layer& layer, const Inputs& inputs,
                         const Tensor3& input) {
    Layer gradient = layer;
    const auto step = [&] {
        const auto [output, saved] = attention_forward(layer, input, inputs, nullptr);
        attention_backward(layer, inputs, saved, output, gradient);
    };
    return seconds_of(ranks, step, 3);
}

}  // namespace

void time_long_attention(Communicator& ranks) {
    Config config = runs::text_task().config;
    config.max_position_embeddings = seq_len;
    config = validate_model(config);
    Generator generator(77);
    const AttentionLayer layer = make_attention_layer(config, generator);
    const std::size_t own = ZigzagChunks{seq_len, ranks.size()}.positions(ranks.rank()).size();
    const Tensor3 input = randn({1, own, config.hidden_size}, generator);

    // Keys and values: this rank's and, in the ring, those that pass. Scores: of all heads,
    // because the backward pass needs them; in the ring, of one head and a pair of chunks.
    const std::uint64_t own_keys =
        2 * sizeof(Real) * own * config.num_key_value_heads * config.head_dim;
    std::uint64_t keys = own_keys;
    std::uint64_t scores =
        sizeof(Real) * config.num_attention_heads * std::uint64_t{seq_len} * seq_len;
    double seconds = 0;
    if (ranks.size() == 1) {
        seconds =
            attention_seconds(ranks, layer, causal_attention_inputs(config, 1, seq_len), input);
    } else {
        const std::uint64_t chunk = seq_len / (2 * ranks.size());
        scores = sizeof(Real) * chunk * chunk;
        keys = 2 * own_keys;
        seconds = attention_seconds(ranks, RingAttention{layer, &ranks},
                                    ring_inputs(config, ranks, 1, seq_len), input);
    }
    if (ranks.rank() != 0) return;
    say("Attention with 4,096 tokens, forward and backward pass:");
    show_table({"ranks", "ms", "MB of scores", "MB of keys and values"},
               {{to_text(ranks.size()), fixed(1000 * seconds, 0),
                 fixed(double(scores) / 1e6, 1), fixed(double(keys) / 1e6, 1)}});
}

}  // namespace llm
