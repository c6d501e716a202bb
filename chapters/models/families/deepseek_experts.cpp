// The keys of mixtures of experts in the files of DeepSeek and its relatives.
#include "chapters/models/families/deepseek.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

ExpertGroups read_groups(const JsonFile& json, const ExpertSizes& experts,
                         const ExpertGroups& defaults, bool limited) {
    const ExpertGroups groups{json.size_or("n_group", defaults.n_group),
                              json.size_or("topk_group", defaults.topk_group)};
    if (!limited) return {};
    if (experts.num_experts % groups.n_group != 0)
        json.reject("n_group",
                    "must divide the number of experts, " + to_text(experts.num_experts));
    if (groups.topk_group > groups.n_group)
        json.reject("topk_group", "must be at most n_group, " + to_text(groups.n_group));
    if (experts.num_experts_per_tok > groups.topk_group * experts.num_experts / groups.n_group)
        json.reject("topk_group", "groups have fewer than num_experts_per_tok experts, " +
                                      to_text(experts.num_experts_per_tok));
    return groups;
}

ExpertSizes read_routed_sizes(const JsonFile& json, const ExpertSizes& defaults) {
    ExpertSizes sizes = read_experts(json, "n_routed_experts", defaults);
    sizes.moe_intermediate_size =
        json.size_or("moe_intermediate_size", defaults.moe_intermediate_size);
    sizes.n_shared_experts = json.size_or("n_shared_experts", defaults.n_shared_experts);
    return sizes;
}

void set_routed_experts(const JsonFile& json, const std::vector<bool>& has_experts,
                        const ExpertSizes& sizes, const Routing& routing,
                        FamilyConfig& config) {
    if (json.size_or("moe_layer_freq", 1) != 1)
        json.reject_value("moe_layer_freq", to_text(json.size("moe_layer_freq")), "1");
    set_experts(config, make_experts(config, sizes, routing),
                [&](std::size_t n) { return has_experts[n]; });
    for (const char* of_training : {"aux_loss_alpha", "seq_aux", "ep_size"})
        json.ignore(of_training);
}

void expect_text(const JsonFile& json, const std::string& key, const std::string& text) {
    if (json.has(key) && json.text(key) != text) json.reject_value(key, json.text(key), text);
}

void write_routing(const Routing& any_routing, JsonMembers& json) {
    const auto add = [&](const auto& routing, const std::string& method) {
        json.insert(json.end(),
                    {{"norm_topk_prob", routing.norm_topk_prob},
                     {"routed_scaling_factor", double(routing.routed_scaling_factor)},
                     {"n_group", routing.groups.n_group},
                     {"topk_group", routing.groups.topk_group},
                     {"topk_method", method}});
    };
    if (const auto* softmax = std::get_if<SoftmaxRouting>(&any_routing))
        add(*softmax, "group_limited_greedy");
    else
        add(std::get<SigmoidRouting>(any_routing), "noaux_tc");
}

}  // namespace

std::vector<bool> read_first_dense_layers(const JsonFile& json, std::size_t dense_layers,
                                          const FamilyConfig& config) {
    const std::size_t first = json.count_or("first_k_dense_replace", dense_layers);
    std::vector<bool> has_experts;
    for (std::size_t n = 0; n < config.layers.size(); ++n) has_experts.push_back(n >= first);
    return has_experts;
}

void read_softmax_experts(const JsonFile& json, const std::vector<bool>& has_experts,
                          FamilyConfig& config) {
    const std::size_t count = json.size("num_experts_per_tok");  // transformers has no default
    const ExpertSizes sizes = read_routed_sizes(json, {64, count, 1407, 2});
    expect_text(json, "scoring_func", "softmax");
    if (json.boolean_or("norm_topk_prob", false))
        json.reject_value("norm_topk_prob", "true", "false");
    const std::string method = json.has("topk_method") ? json.text("topk_method") : "greedy";
    if (method != "greedy" && method != "group_limited_greedy")
        json.reject_value("topk_method", method, "greedy and group_limited_greedy");
    set_routed_experts(json, has_experts, sizes,
                       SoftmaxRouting{false, Real(json.positive_or("routed_scaling_factor", 1)),
                                      read_groups(json, sizes, {}, method != "greedy")},
                       config);
}

void read_sigmoid_experts(const JsonFile& json, const DeepseekDefaults& defaults,
                          const std::vector<bool>& has_experts, FamilyConfig& config) {
    const ExpertSizes sizes = read_routed_sizes(json, defaults.experts);
    expect_text(json, "scoring_func", "sigmoid");
    expect_text(json, "topk_method", "noaux_tc");
    const double factor =
        json.positive_or("routed_scaling_factor", double(defaults.routed_scaling_factor));
    set_routed_experts(json, has_experts, sizes,
                       SigmoidRouting{{},
                                      json.boolean_or("norm_topk_prob", true),
                                      Real(factor),
                                      read_groups(json, sizes, defaults.groups, true)},
                       config);
}

void write_routed_experts(const FamilyConfig& config, JsonMembers& json) {
    json.push_back({"first_k_dense_replace", num_dense_layers(config)});
    const MoeConfig* moe = first_moe(config);
    if (!moe) return;
    json.insert(json.end(), {{"n_routed_experts", moe->sizes.num_experts},
                             {"num_experts_per_tok", moe->sizes.num_experts_per_tok},
                             {"moe_intermediate_size", moe->sizes.moe_intermediate_size},
                             {"n_shared_experts", moe->sizes.n_shared_experts}});
    write_routing(moe->routing, json);
}

}  // namespace llm::models
