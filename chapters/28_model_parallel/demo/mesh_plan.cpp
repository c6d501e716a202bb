#include "chapters/28_model_parallel/demo/mesh_plan.hpp"

#include <algorithm>
#include <map>

#include "chapters/24_parallel/demo/published_configs.hpp"
#include "chapters/28_model_parallel/demo/clusters.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

constexpr std::size_t largest_axis = 65536;
constexpr std::string_view axis_names[] = {"data", "pipeline", "context", "tensor"};

// A size such as "tensor=2" of --mesh.
void read_size(const std::string& text, std::map<std::string, std::size_t>& sizes) {
    const std::size_t equals = text.find('=');
    require(equals != text.npos, "--mesh: '{}' is not AXIS=SIZE, such as tensor=2", text);
    const std::string axis = text.substr(0, equals), digits = text.substr(equals + 1);
    require(
        std::find(std::begin(axis_names), std::end(axis_names), axis) != std::end(axis_names),
        "--mesh: '{}' is not an axis: data, pipeline, context or tensor", axis);
    const bool is_number = !digits.empty() && digits.size() <= 6 &&
                           digits.find_first_not_of("0123456789") == digits.npos;
    const std::size_t size = is_number ? std::stoul(digits) : 0;
    require(size > 0 && size <= largest_axis,
            "--mesh: the size of {} is an integer from 1 to {}, not '{}'", axis, largest_axis,
            digits);
    require(sizes.emplace(axis, size).second, "--mesh: {} is given twice", axis);
}

MeshSizes read_sizes(const std::vector<std::string>& texts) {
    std::map<std::string, std::size_t> sizes;
    for (const std::string& text : texts) read_size(text, sizes);
    const auto size = [&](const std::string& axis) {
        return sizes.contains(axis) ? sizes.at(axis) : 1;
    };
    return {size("data"), size("pipeline"), size("context"), size("tensor")};
}

Config config_named(const std::string& name) {
    for (const PublishedConfig& published : published_configs())
        if (published.option == name) return published.config;
    return validate_model(mini_llm_config());
}

// "0, 2, 4, 6", or "0, 2, ..., 14 (8)".
std::string numbers(const std::vector<std::size_t>& ranks) {
    const auto text = [&](std::size_t i) { return to_text(ranks[i]); };
    if (ranks.size() > 4)
        return text(0) + ", " + text(1) + ", ..., " + text(ranks.size() - 1) + " (" +
               to_text(ranks.size()) + ")";
    std::string list = text(0);
    for (std::size_t i = 1; i < ranks.size(); ++i) list += ", " + text(i);
    return list;
}

std::string megabytes(std::uint64_t bytes) { return fixed(double(bytes) / 1e6, 1); }
std::string gigabytes_of(std::uint64_t bytes) { return fixed(double(bytes) / 1e9, 2); }

void show_traffic(const MeshPlan& plan) {
    say("What rank 0 sends in a step:");
    std::vector<TableRow> rows;
    std::uint64_t sum = 0;
    for (const Traffic& traffic : traffic_of_rank(plan, 0)) {
        rows.push_back({std::string(axis_names[std::size_t(traffic.axis)]),
                        numbers(ranks_of_axis(plan.sizes, 0, traffic.axis)),
                        to_text(traffic.receiver), traffic.what, megabytes(traffic.num_bytes)});
        sum += traffic.num_bytes;
    }
    rows.push_back({"all", "", "", "", megabytes(sum)});
    show_table({"axis", "group of rank 0", "to", "what", "MB"}, rows);
}

void show_memory(const MeshPlan& plan) {
    say("Memory without activations, GB:");
    std::vector<TableRow> rows;
    std::vector<std::size_t> ends = ranks_of_axis(plan.sizes, 0, MeshAxis::pipeline);
    if (ends.size() > 2) ends = {ends.front(), ends.back()};
    for (const std::size_t rank : ends) {
        const TrainingMemory memory = memory_of_part(plan, rank, bytes_in_mixed_precision);
        rows.push_back({to_text(rank), with_commas(memory.parameters / 2),
                        gigabytes_of(memory.parameters), gigabytes_of(memory.gradients),
                        gigabytes_of(memory.optimizer_states), gigabytes_of(memory.kept())});
    }
    show_table({"rank", "its parameters", "parameters", "gradients", "optimizer", "all"}, rows);
}

void show_estimates(const MeshPlan& plan) {
    say("Estimated seconds of a step on H100 GPUs, 8 a machine, at 40 % of their peak, with "
        "nothing sent while they compute:");
    std::vector<TableRow> rows;
    for (const auto& [name, cluster] :
         {std::pair<std::string, Cluster>{"InfiniBand 400 Gb/s", infiniband_cluster},
          {"Ethernet 10 Gb/s", ethernet_cluster}}) {
        const StepTime time = step_time(plan, cluster);
        TableRow row = {name};
        for (const double seconds : {time.compute, time.bubble, time.data, time.pipeline,
                                     time.context, time.tensor, time.total()})
            row.push_back(fixed(seconds, 2));
        rows.push_back(row);
    }
    show_table({"between machines", "compute", "bubble", "data", "pipeline", "context",
                "tensor", "all"},
               rows);
}

}  // namespace

void add_mesh_options(Options& options, MeshArguments& arguments) {
    std::vector<std::string> names = {"mini_llm"};
    for (const PublishedConfig& published : published_configs())
        names.push_back(published.option);
    options.list("--mesh", arguments.sizes,
                 "only the plan of a mesh, such as data=4,tensor=2,pipeline=2");
    options.choice("--config", arguments.config, names, "the model of --mesh");
    options.count("--global-batch-size", arguments.global_batch_size, 1, 1'000'000,
                  "sequences of a step, of all data ranks of --mesh");
    options.count("--micro-batch-size", arguments.micro_batch_size, 1, 1'000'000,
                  "sequences that a rank of --mesh computes at once");
    options.count("--seq-len", arguments.seq_len, 1, 1'000'000,
                  "tokens of a sequence of --mesh");
    options.flag("--sequence-parallel", arguments.sequence_parallel,
                 "tensor ranks of --mesh keep a part of the tokens between layers");
    for (const char* name : {"--config", "--global-batch-size", "--micro-batch-size",
                             "--seq-len", "--sequence-parallel"})
        options.needs(name, "--mesh");
}

void print_mesh_plan(const MeshArguments& arguments) {
    const MeshPlan plan = validate_mesh_plan(
        {config_named(arguments.config), read_sizes(arguments.sizes),
         arguments.global_batch_size, arguments.micro_batch_size, arguments.seq_len,
         arguments.sequence_parallel, bytes_per_bfloat16});
    const auto& [data, pipeline, context, tensor] = plan.sizes;
    show("ranks", with_commas(plan.sizes.num_ranks()) + " = " + to_text(data) + " data x " +
                      to_text(pipeline) + " pipeline x " + to_text(context) + " context x " +
                      to_text(tensor) + " tensor");
    show("parameters", with_commas(count_parameters(plan.config).total()));
    show("tokens of a step", with_commas(std::uint64_t{plan.global_batch_size} * plan.seq_len));
    show("micro-batches of a data rank", micro_batch_sizes(plan, 0).size());
    show_traffic(plan);
    show_memory(plan);
    show_estimates(plan);
}

}  // namespace llm
