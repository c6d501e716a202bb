// Runs tests. A failed test prints its title, the place, what was expected and what came. If
// the environment variable TEST_RESULTS names a folder, which ./learn test does, a file there
// gets lines that say what became of each test.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/system/blas.hpp"
#include "tests/support/reporter.hpp"

namespace {

std::ofstream results;  // not open: no such file. What a test prints does not get into it.

class TestReporter : public llm::FailureReporter {
 public:
    using FailureReporter::FailureReporter;

    void report_query(const doctest::QueryData& query) override {
        results << query.run_stats->numTestCasesPassingFilters << " tests" << std::endl;
    }

    void test_case_start(const doctest::TestCaseData& test) override {
        FailureReporter::test_case_start(test);
        results << "started: " << title_ << std::endl;
    }

    void test_case_end(const doctest::CurrentTestCaseStats& test) override {
        ++num_tests_;
        std::cout.clear();  // a test may have printed a null pointer
        const char* outcome = num_failures_ > 0 ? "failed" : is_skipped_ ? "skipped" : "passed";
        results << outcome << ": " << title_ << ", " << test.seconds << " s" << std::endl;
        if (num_failures_ == 0) return;
        ++num_failed_;
        std::cout << "\nFAILED: " << title_ << "\n    at " << place_ << '\n';
        llm::print_indented(failure_);
        if (num_failures_ > 1)
            std::cout << "    (failed checks of this test: " << num_failures_ << ")\n";
        std::cout << std::flush;
    }

    void test_run_end(const doctest::TestRunStats&) override {
        std::cout << num_tests_ - num_failed_ << " of " << num_tests_ << " tests passed\n";
    }

 private:
    int num_tests_ = 0, num_failed_ = 0;
};

REGISTER_REPORTER("failures", 0, TestReporter);

int run(const std::vector<const char*>& arguments) {
    doctest::Context context(static_cast<int>(arguments.size()), arguments.data());
    if (!context.shouldExit()) context.setOption("reporters", "failures");  // not for --help
    return context.run();
}

}  // namespace

int main(int argc, char** argv) {
    llm::select_blas_kernels(argv);
    if (llm::lacks_compiled_extensions()) return 2;
    if (const char* folder = std::getenv("TEST_RESULTS"); folder && *folder) {
        results.open(folder / std::filesystem::path(argv[0]).filename());
        run({argv[0], "--count", "--reporters=failures"});
    }
    return run({argv, argv + argc});
}
