#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "chapters/15_fast/fast_model.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "common/files/mapped_file.hpp"
#include "common/output/plot.hpp"
#include "common/system/timer.hpp"

namespace llm::bench {
namespace {

// A function, and the percentage of the run time that was spent in it: its self time, without
// that of the functions that it calls.
struct ProfiledFunction {
    std::string name;
    double percent = 0;
};

// The name without namespaces, template arguments, parameters, and the processor that a variant
// in a library is for: sgemm_kernel_HASWELL, __memset_avx512_unaligned.
std::string short_name(const std::string& name) {
    if (name.find("ThreadPool") != name.npos) return "ThreadPool::serve";
    static const std::regex details(
        "\\(anonymous namespace\\)::|llm::|[<(].*|_[A-Z]+$|_avx.*|^_+");
    return std::regex_replace(name, details, "");
}

// Reads lines such as "  71.78%  [.] llm::dot".
std::vector<ProfiledFunction> read_profile(const std::string& file) {
    std::vector<ProfiledFunction> functions;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t bracket = line.find("] ");
        if (bracket == line.npos) continue;
        functions.push_back({short_name(line.substr(bracket + 2)), std::stod(line)});
    }
    return functions;
}

// Profiles this program with --loop; empty, with a line that says why, if perf fails.
std::vector<ProfiledFunction> profile(const std::string& phase) {
    const std::string folder = model_folder("bench");
    make_folder(folder);
    const std::string data = " '" + folder + "/" + phase + ".perf' ";
    const std::string text = folder + "/" + phase + ".txt";
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string record = "perf record -e cpu-clock:u --delay 3000 -o" + data + "'" +
                               program + "' --loop " + phase + " > /dev/null 2>&1";
    const std::string report =
        "perf report --no-children --stdio -q -F overhead,sym --percent-limit 1 -i" + data +
        "> '" + text + "' 2> /dev/null";
    if (std::system(record.c_str()) != 0 || std::system(report.c_str()) != 0) {
        say("No profile: this command failed: " + record);
        return {};
    }
    return read_profile(text);
}

}  // namespace

void run_for_profiler(const Model& model, const std::string& phase) {
    const FastModel fast = make_fast_model(model, DType::float32);
    const bool is_decode = phase == "decode";
    const std::vector<Id> ids(512, 1);
    RunState state = make_run_state(fast, ids.size());
    for (const double begin = elapsed_seconds(); elapsed_seconds() < begin + 8;) {
        state.seq_len = is_decode ? 256 : 0;
        compute_logits(fast, std::span(ids).first(is_decode ? 1 : ids.size()), state);
    }
}

void benchmark_profile() {
    step("A profile: percent of the run time in each function");
    std::vector<Panel> panels;
    for (const std::string phase : {"prefill", "decode"}) {
        BarChart chart{phase == "prefill" ? "Prefill of 512 tokens" : "Decode steps at 256",
                       "% of run time",
                       {},
                       {{"", {}}},
                       100};
        std::vector<TableRow> table;
        for (const auto& [name, percent] : profile(phase)) {
            chart.names.push_back(name);
            chart.series[0].values.push_back(percent);
            table.push_back({name, fixed(percent, 1)});
        }
        if (table.empty()) return;
        show_table({phase, "self time, %"}, table);
        panels.push_back(chart);
    }
    plot("profile", panels);
}

}  // namespace llm::bench
