#include "chapters/18_experts/demo/balance.hpp"

#include "chapters/18_experts/moe_training.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

// Router logits of N tokens that all prefer expert 0 by this much.
Matrix one_sided_logits(std::size_t num_tokens, std::size_t num_experts, Real preference) {
    Generator generator(3);
    Matrix logits = randn({num_tokens, num_experts}, generator);
    xt::view(logits, xt::all(), 0) += preference;
    return logits;
}

Config small_config(std::size_t vocab_size) {
    Config config = mini_llm_config();
    config.hidden_size = 32;
    config.intermediate_size = 64;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 2;
    config.head_dim = 16;
    config.vocab_size = vocab_size;
    config.max_position_embeddings = 64;
    return validate_model(config);
}

// How a short run keeps its load balanced.
struct Remedy {
    std::string name;
    Routing routing;
    BalanceArguments balance;
};

MoeRun short_run(const std::vector<Id>& tokens, std::size_t vocab_size,
                 const ExpertSizes& sizes, const Remedy& remedy, std::uint32_t seed) {
    constexpr std::size_t num_steps = 60;
    TrainingArguments args;
    args.batch_size = 8;
    args.seq_len = 32;
    args.lr_schedule = {Real(0.01), Real(0.001), num_steps / 10, num_steps};
    Generator generator(seed);
    MoeDecoder decoder =
        make_moe_decoder(small_config(vocab_size), sizes, remedy.routing, generator);
    return train_moe(decoder, args, remedy.balance, tokens, generator);
}

// The load of each expert in the last layer, as means over five steps.
Heatmap load_of_last_layer(const std::string& title, const MoeRun& run,
                           std::size_t num_experts) {
    constexpr std::size_t width = 5;
    Matrix load = xt::zeros<Real>({run.load.size() / width, num_experts});
    std::vector<std::string> names;
    for (std::size_t row = 0; row < load.shape(0); ++row) {
        names.push_back(to_text(row * width));
        for (std::size_t step = row * width; step < (row + 1) * width; ++step)
            for (std::size_t e = 0; e < num_experts; ++e)
                load(row, e) += run.load[step].back()(e) / Real(width);
    }
    return {title, "expert", "step", load, {}, names, 0, 0.5};
}

}  // namespace

void losses_by_hand() {
    step("The load-balancing loss, and the z-loss");
    std::vector<TableRow> rows;
    for (const Real preference : {Real(0), Real(1), Real(2), Real(4)}) {
        const Matrix logits = one_sided_logits(1000, 4, preference);  // (N, E)
        const RoutedTokens routed = route(logits, 1, SoftmaxRouting{});
        const RouterLoss balancing = load_balancing_loss(logits, routed.experts);
        rows.push_back({brief(double(preference)),
                        fixed(double(expert_load(routed.experts, 4)(0)), 3),
                        fixed(balancing.loss, 3), fixed(router_z_loss(logits).loss, 2),
                        fixed(double(xt::sum(balancing.logits_gradient, {0})(0)), 4)});
    }
    show_table({"preference", "load of expert 0", "balancing loss", "z-loss",
                "gradient of its logits"},
               rows);
}

void dropped_tokens() {
    step("Dropped tokens: 64 tokens, 4 experts, 1 expert per token");
    std::vector<TableRow> rows;
    for (const Real preference : {Real(0), Real(1), Real(2)})
        for (const double factor : {1.0, 1.25, 2.0}) {
            const Matrix logits = one_sided_logits(64, 4, preference);  // (N, E)
            const Dispatch dispatch =
                dispatch_tokens(route(logits, 1, SoftmaxRouting{}).experts, 4);
            const std::size_t capacity = expert_capacity(64, 4, factor);
            const Dispatch kept = drop_over_capacity(dispatch, capacity);
            rows.push_back({brief(double(preference)), to_text(dispatch.first_row[1]),
                            fixed(factor, 2), to_text(capacity),
                            to_text(64 - kept.tokens.size())});
        }
    show_table({"preference", "chose expert 0", "capacity factor", "capacity", "dropped"},
               rows);
}

void collapse(const std::vector<Id>& tokens, std::size_t vocab_size, const ExpertSizes& sizes,
              Real aux_loss_coefficient, std::uint32_t seed) {
    step("Routing collapse: 60 training steps with and without load balancing");
    const std::size_t num_experts = sizes.num_experts;
    const std::vector<Remedy> remedies = {
        {"none", SoftmaxRouting{}, {}},
        {"auxiliary loss", SoftmaxRouting{}, {{aux_loss_coefficient, 0}, 0}},
        {"bias update", SigmoidRouting{xt::zeros<Real>({num_experts})}, {{}, Real(0.02)}}};
    const InterruptHandler interrupt_handler;
    std::vector<MoeRun> runs(remedies.size());
    parallel_for(runs.size(), [&](std::size_t i) {
        runs[i] = short_run(tokens, vocab_size, sizes, remedies[i], seed);
    });
    std::vector<TableRow> rows;
    std::vector<Panel> panels;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        TableRow row = {remedies[i].name};
        for (const std::size_t step : {0, 5, 10, 20, 40, 59})
            row.push_back(fixed(max_violation(runs[i].load[step].back()), 2));
        rows.push_back(row);
        panels.push_back(load_of_last_layer(remedies[i].name, runs[i], num_experts));
    }
    show_table({"MaxVio after step", "0", "5", "10", "20", "40", "59"}, rows);
    plot("collapse", panels);
}

}  // namespace llm
