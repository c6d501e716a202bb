#include "common/system/run_program.hpp"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/output/plot.hpp"
#include "common/system/option_values.hpp"
#include "common/system/processor.hpp"

namespace llm {

void Folders::prepare(const std::string& option, const std::filesystem::path& folder) {
    if (!creates) return;
    std::vector<std::filesystem::path> missing;  // the innermost first
    for (auto path = folder; !path.empty() && !exists(path); path = path.parent_path())
        missing.push_back(path);
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    created_.insert(created_.end(), missing.begin(), missing.end());
    if (!is_directory(folder, ignored) || access(folder.c_str(), W_OK) != 0)
        throw UsageError(fmt::format("{} needs a folder it can write to, not '{}'", option,
                                     folder.string()));
}

void Folders::remove_created() const {
    std::error_code ignored;
    for (const auto& folder : created_) std::filesystem::remove(folder, ignored);
}

namespace {

// Makes an allocation that exceeds the machine's memory fail immediately with bad_alloc;
// otherwise the system would kill the program later without a message. (Not with sanitizers,
// which need a large address space.)
void limit_memory() {
#if !defined(LLM_SANITIZE) && defined(_SC_PHYS_PAGES)
    const auto memory = static_cast<rlim_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
    rlimit limit{};
    if (getrlimit(RLIMIT_DATA, &limit) != 0) return;
    limit.rlim_cur = std::min(limit.rlim_max, memory);
    setrlimit(RLIMIT_DATA, &limit);
#endif
}

// With --only, lists the steps if none has this number, and throws UsageError if it is not 0.
// In a terminal, says why --quiet printed nothing.
void report_steps(const PrintOptions& printing) {
    const std::vector<std::string>& titles = step_titles();
    if (printing.only && (*printing.only == 0 || *printing.only > titles.size())) {
        for (std::size_t i = 0; i < titles.size(); ++i)
            std::cout << fmt::format("{:3} {}\n", i + 1, titles[i]);
        if (*printing.only == 0) return;
        throw UsageError(fmt::format("--only takes a step from 1 to {}, not {}", titles.size(),
                                     *printing.only));
    }
    if (printing.quiet && printed_nothing() && output_is_terminal())
        std::cerr << "This run generates no text, so there is nothing to print with --quiet.\n";
}

}  // namespace

void run_and_report(const std::function<void()>& program, const PrintOptions& printing) {
    limit_memory();
    require_compiled_extensions();
    try {
        program();
    } catch (const OnlyStepDone&) {
    }
    draw_plots();
    report_steps(printing);
}

}  // namespace llm
