#include "chapters/18_experts/demo/speed.hpp"

#include "chapters/18_experts/mixture_of_experts.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

constexpr std::size_t hidden_size = 512, expert_size = 512, num_experts = 16, num_chosen = 2;

GatedMlp dense(std::size_t intermediate_size, Generator& generator) {
    return make_gated_mlp(hidden_size, intermediate_size, false, SiLU, generator);
}

// How many experts the tokens of a batch need, all together.
std::size_t num_experts_used(const MixtureOfExperts& moe, const Tensor3& hidden_states) {
    const auto [output, saved] = moe_forward(moe, hidden_states);
    std::size_t count = 0;
    for (std::size_t e = 0; e < num_experts; ++e)
        count += saved.dispatch.first_row[e + 1] > saved.dispatch.first_row[e];
    return count;
}

}  // namespace

void measure_speed(Generator& generator) {
    step("Tokens per second of one layer: 2 of 16 experts, and dense MLPs");
    MixtureOfExperts moe{make_linear(hidden_size, num_experts, false, generator), {}, {}};
    for (std::size_t e = 0; e < num_experts; ++e)
        moe.experts.push_back(dense(expert_size, generator));
    moe.num_experts_per_tok = num_chosen;
    const GatedMlp active = dense(num_chosen * expert_size, generator);
    const GatedMlp total = dense(num_experts * expert_size, generator);
    const auto millions = [](std::size_t intermediate_size) {
        return fixed(3e-6 * double(hidden_size * intermediate_size), 1) + " million weights";
    };
    show("dense, as many weights as a token uses", millions(num_chosen * expert_size));
    show("dense, as many weights as all experts", millions(num_experts * expert_size));
    std::vector<TableRow> rows;
    for (const std::size_t num_tokens : {1u, 4u, 16u, 64u, 512u}) {
        show_progress("measuring " + to_text(num_tokens) + " tokens ...");
        const Tensor3 hidden_states = randn({1, num_tokens, hidden_size}, generator);
        const auto speed = [&](const auto& mlp) {
            const double seconds = fastest_seconds(9, [&] { mlp(hidden_states); });
            return double(num_tokens) / seconds;
        };
        const double of_active = speed(active), of_moe = speed(moe), of_total = speed(total);
        rows.push_back({to_text(num_tokens), to_text(num_experts_used(moe, hidden_states)),
                        with_commas(std::size_t(of_active)), with_commas(std::size_t(of_moe)),
                        with_commas(std::size_t(of_total)), fixed(of_moe / of_active, 2)});
    }
    show_progress("");
    show_table({"tokens", "experts used", "dense, active", "experts", "dense, total",
                "experts / active"},
               rows);
}

}  // namespace llm
