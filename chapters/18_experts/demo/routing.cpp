#include "chapters/18_experts/demo/routing.hpp"

#include "chapters/01_masking/masking.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/parameter_count.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
using namespace models;

namespace {

const std::vector<std::string> words = {"And", "the", "LORD", "said"};
const Matrix router_logits = {
    {2, 1, 0, 0.5f}, {1, 0, 3, 1.5f}, {0, 2, 1.5f, 3}, {2.5f, 0, 1, 2}};  // (N, E)

std::vector<std::string> expert_names(std::size_t num_experts) {
    std::vector<std::string> names;
    for (std::size_t e = 0; e < num_experts; ++e) names.push_back("expert " + to_text(e));
    return names;
}

std::string list_of(std::span<const Id> experts) {
    std::string text;
    for (const Id expert : experts) text += (text.empty() ? "" : " ") + to_text(expert);
    return text;
}
std::string list_of(const Vector& numbers) {
    std::string text;
    for (const Real number : numbers)
        text += (text.empty() ? "" : " ") + fixed(double(number), 3);
    return text;
}

// A configuration from its sizes alone, with a mixture of experts in every layer.
FamilyConfig sizes_of(const Family& family, std::size_t hidden_size,
                      std::size_t num_hidden_layers, std::size_t num_attention_heads,
                      std::size_t num_key_value_heads, std::size_t head_dim,
                      std::size_t vocab_size, const ExpertSizes& experts) {
    Config sizes;
    sizes.hidden_size = hidden_size;
    sizes.num_hidden_layers = num_hidden_layers;
    sizes.num_attention_heads = num_attention_heads;
    sizes.num_key_value_heads = num_key_value_heads;
    sizes.head_dim = head_dim;
    sizes.vocab_size = vocab_size;
    sizes.tie_word_embeddings = false;
    FamilyConfig result = config_with(family, sizes);
    const MoeConfig moe = make_experts(result, experts, SoftmaxRouting{});
    for (LayerConfig& layer : result.layers) layer.mlp = moe;
    return result;
}

}  // namespace

void route_by_hand() {
    step("A router chooses two of four experts for each token");
    show("router_logits", router_logits, words, expert_names(4));
    show("probabilities", softmax(router_logits), words, expert_names(4));
    const RoutedTokens routed = route(router_logits, 2, SoftmaxRouting{});
    std::vector<TableRow> rows;
    for (std::size_t n = 0; n < words.size(); ++n)
        rows.push_back({words[n], to_text(routed.experts(n, 0)),
                        fixed(double(routed.weights(n, 0)), 3), to_text(routed.experts(n, 1)),
                        fixed(double(routed.weights(n, 1)), 3)});
    show_table({"token", "1st expert", "weight", "2nd expert", "weight"}, rows);
    plot("router",
         {Heatmap{"Probabilities", "expert", "token", softmax(router_logits), {}, words}});
}

void published_routers() {
    step("The routing weights of the same logits in published models");
    const Matrix logits = {{2, 1, 0, 0.5f}};  // (1, E)
    const SigmoidRouting with_bias{{0, 0, 1, 0}, true, Real(2.5)};
    const std::vector<std::tuple<std::string, std::size_t, Routing>> routers = {
        {"Mixtral, Qwen3-MoE", 2, SoftmaxRouting{}},
        {"gpt-oss", 2, TopKSoftmaxRouting{}},
        {"DeepSeek-V2-Lite", 2, SoftmaxRouting{false}},
        {"DeepSeek-V3, no bias", 2, SigmoidRouting{xt::zeros<Real>({4}), true, Real(2.5)}},
        {"DeepSeek-V3, bias 1 of expert 2", 2, with_bias},
        {"Llama 4 (multiplies the input)", 1, InputSigmoidRouting{}}};
    std::vector<TableRow> rows;
    for (const auto& [name, count, routing] : routers) {
        const RoutedTokens routed = route(logits, count, routing);
        const Vector routing_weights = xt::view(routed.weights, 0, xt::all());  // (K)
        rows.push_back({name, list_of({routed.experts.data(), routed.experts.size()}),
                        list_of(routing_weights),
                        fixed(double(xt::sum(routing_weights)()), 3)});
    }
    show_table({"router", "experts", "weights", "sum"}, rows);

    step("Wrong: the softmax taken twice");
    const Matrix chosen = {{softmax(logits)(0, 0), softmax(logits)(0, 1)}};  // (1, K)
    show("chosen_probabilities", chosen);
    show("divided_by_their_sum", Matrix(chosen / (chosen(0, 0) + chosen(0, 1))));
    show("softmax_again", softmax(chosen));
}

void dispatch_by_hand(Generator& generator) {
    step("Tokens sorted by expert");
    const RoutedTokens routed = route(router_logits, 2, SoftmaxRouting{});
    const Dispatch dispatch = dispatch_tokens(routed.experts, 4);
    std::vector<TableRow> rows;
    for (std::size_t e = 0; e < 4; ++e) {
        std::string tokens;
        for (std::size_t row = dispatch.first_row[e]; row < dispatch.first_row[e + 1]; ++row)
            tokens += (tokens.empty() ? "" : " ") + words[dispatch.tokens[row]];
        rows.push_back(
            {to_text(e), tokens,
             to_text(dispatch.first_row[e]) + " to " + to_text(dispatch.first_row[e + 1])});
    }
    show_table({"expert", "its tokens", "rows"}, rows);

    // The same outputs as with one token at a time, but with one product for each expert.
    MixtureOfExperts moe{make_linear(8, 4, false, generator), {}, std::nullopt, 2};
    for (int e = 0; e < 4; ++e)
        moe.experts.push_back(make_gated_mlp(8, 16, false, SiLU, generator));
    const Tensor3 states = randn({1, 50, 8}, generator);  // (B, T, C)
    const Tensor3 output = moe(states);                   // (B, T, C)
    Tensor3 one_by_one(states.shape());
    for (std::size_t t = 0; t < 50; ++t) {
        const Tensor3 token = xt::view(states, xt::all(), xt::range(t, t + 1));  // (1, 1, C)
        xt::view(one_by_one, xt::all(), xt::range(t, t + 1)) = moe(token);
    }
    show("moe_output", output);
    show("as_one_token_at_a_time", largest_difference(output, one_by_one) < 1e-5);
}

void published_sizes() {
    step("Total and active parameters, in billions");
    const std::vector<std::pair<std::string, FamilyConfig>> models = {
        {"Mixtral 8x7B",
         sizes_of(mixtral_family(), 4096, 32, 32, 8, 128, 32000, {8, 2, 14336, 0})},
        {"Qwen3-30B-A3B",
         sizes_of(qwen3_moe_family(), 2048, 48, 32, 4, 128, 151936, {128, 8, 768, 0})},
        {"gpt-oss-20b",
         sizes_of(gpt_oss_family(), 2880, 24, 64, 8, 64, 201088, {32, 4, 2880, 0})},
        {"gpt-oss-120b",
         sizes_of(gpt_oss_family(), 2880, 36, 64, 8, 64, 201088, {128, 4, 2880, 0})},
        {"Llama 4 Scout",
         sizes_of(llama4_family(), 5120, 48, 40, 8, 128, 202048, {16, 1, 8192, 1})}};
    std::vector<TableRow> rows;
    std::vector<std::string> names;
    Series total{"total", {}}, active{"active", {}};
    for (const auto& [name, config] : models) {
        const ParametersByPart count = count_parameters(config);
        names.push_back(name);
        total.values.push_back(double(count.total()) / 1e9);
        active.values.push_back(double(count.active()) / 1e9);
        rows.push_back({name,
                        to_text(first_moe(config)->sizes.num_experts_per_tok) + " of " +
                            to_text(first_moe(config)->sizes.num_experts),
                        fixed(double(count.experts) / 1e9, 2), fixed(total.values.back(), 2),
                        fixed(active.values.back(), 2),
                        fixed(100 * active.values.back() / total.values.back(), 1)});
    }
    show_table({"model", "experts", "in experts", "total", "active", "% active"}, rows);
    plot("sizes", {BarChart{"Parameters", "billions", names, {total, active}}});
}

}  // namespace llm
