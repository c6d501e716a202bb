#include "chapters/apps/bench/parallel/mesh.hpp"

#include "chapters/28_model_parallel/demo/step_on_mesh.hpp"
#include "chapters/28_model_parallel/mesh_time.hpp"
#include "chapters/apps/bench/parallel/seconds_of.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// 8 sequences of 128 tokens, one at a time.
MeshPlan measured_step(const MeshSizes& sizes, bool sequence_parallel) {
    Config config = mini_llm_config();
    config.hidden_size = 256;
    config.intermediate_size = 768;
    config.num_hidden_layers = 4;
    config.num_attention_heads = 8;
    config.num_key_value_heads = 4;
    config.vocab_size = 1024;
    return validate_mesh_plan({config, sizes, 8, 1, 128, sequence_parallel});
}

std::vector<StepBatch> batches_of(const MeshPlan& plan) {
    std::vector<StepBatch> batches;
    for (std::size_t i = 0; i < plan.global_batch_size; ++i) {
        Batch batch{IdMatrix(std::array{plan.micro_batch_size, plan.seq_len}),
                    IdMatrix(std::array{plan.micro_batch_size, plan.seq_len})};
        for (std::size_t t = 0; t < plan.seq_len; ++t) {
            batch.input_ids(0, t) = Id((i + 1) * t * 7919 % plan.config.vocab_size);
            batch.targets(0, t) = Id((i + 1) * (t + 1) * 7919 % plan.config.vocab_size);
        }
        batches.push_back({batch, 0});
    }
    return batches;
}

double gradient_seconds(Communicator& ranks, const MeshPlan& plan) {
    Generator generator(77);
    const Model model = make_model(plan.config, generator);
    const Mesh mesh = make_mesh(ranks, plan.sizes);
    return seconds_of(ranks, gradient_on_mesh(plan, mesh, model, batches_of(plan)));
}

// Both ranks send and receive, as in a ring.
std::vector<TimedMessage> time_messages(Communicator& ranks) {
    constexpr std::size_t num_messages = 20;
    std::vector<TimedMessage> messages;
    for (std::size_t count = 16; count <= (1 << 20); count *= 4) {
        const std::vector<Real> sent(count);
        std::vector<Real> received(count);
        const double seconds = seconds_of(ranks, [&] {
            for (std::size_t i = 0; i < num_messages; ++i)
                ranks.send_receive<Real>(sent, 1 - ranks.rank(), received, 1 - ranks.rank());
        });
        messages.push_back({double(count * sizeof(Real)), seconds / double(num_messages)});
    }
    return messages;
}

void show_messages(const std::vector<TimedMessage>& messages, const Network& network) {
    std::vector<TableRow> rows;
    for (const auto& [num_bytes, seconds] : messages)
        rows.push_back({with_commas(std::uint64_t(num_bytes)), fixed(1e6 * seconds, 1),
                        fixed(1e6 * (network.alpha + network.beta * num_bytes), 1)});
    say("A message each way, microseconds:");
    show_table({"bytes", "measured", "alpha + beta bytes"}, rows);
    show("alpha, microseconds", 1e6 * network.alpha);
    show("1 / beta, GB/s", 1e-9 / network.beta);
}

}  // namespace

void compare_step_times(Communicator& ranks) {
    require(ranks.size() == 2, "step times of meshes: {} ranks, not 2", ranks.size());
    const std::vector<TimedMessage> messages = time_messages(ranks);
    const Network network = fit_network(messages);

    // The rate: each rank computes the step alone, both at the same time.
    const MeshPlan alone = measured_step({}, false);
    const std::unique_ptr<Communicator> self = ranks.split(ranks.rank());
    const double rate = training_flops(alone, 0) / gradient_seconds(*self, alone);
    const Cluster machine{rate, 2, network, network};

    std::vector<TableRow> rows;
    const auto add = [&](const std::string& name, const MeshSizes& sizes, bool sequence) {
        const MeshPlan plan = measured_step(sizes, sequence);
        const StepTime time = step_time(plan, machine);
        const double predicted = time.total(), measured = gradient_seconds(ranks, plan);
        rows.push_back({name, fixed(1000 * time.compute, 1), fixed(1000 * time.bubble, 1),
                        fixed(1000 * (predicted - time.compute - time.bubble), 1),
                        fixed(1000 * predicted, 1), fixed(1000 * measured, 1),
                        fixed(predicted / measured, 2)});
    };
    add("data=2", {2, 1, 1, 1}, false);
    add("pipeline=2", {1, 2, 1, 1}, false);
    add("context=2", {1, 1, 2, 1}, false);
    add("tensor=2", {1, 1, 1, 2}, false);
    add("and sequence parallel", {1, 1, 1, 2}, true);
    if (ranks.rank() != 0) return;
    show_messages(messages, network);
    show("GFLOP/s of a rank", rate / 1e9);
    say("The gradient of a step, milliseconds:");
    show_table({"mesh", "compute", "bubble", "messages", "predicted", "measured", "ratio"},
               rows);
}

}  // namespace llm
