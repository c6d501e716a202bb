// Runs tests. A failed test prints its title, the place, what was expected and what came. With
// --duration, which CTest adds, each other test prints a line, too.
#define DOCTEST_CONFIG_IMPLEMENT
#include <iomanip>

#include "tests/support/reporter.hpp"

namespace {

class TestReporter : public llm::FailureReporter {
 public:
    explicit TestReporter(const doctest::ContextOptions& options)
        : FailureReporter(options), shows_durations_(options.duration) {}

    void test_case_end(const doctest::CurrentTestCaseStats& test) override {
        ++num_tests_;
        if (num_failures_ > 0) {
            ++num_failed_;
            std::cout << "FAILED: " << title_ << "\n    at " << place_ << '\n';
            llm::print_indented(failure_);
            if (num_failures_ > 1)
                std::cout << "    (failed checks of this test: " << num_failures_ << ")\n";
        } else if (shows_durations_) {
            std::cout << (is_skipped_ ? "skipped" : "passed") << ", " << std::fixed
                      << std::setprecision(2) << test.seconds << " s: " << title_ << '\n';
        }
        std::cout << std::flush;
    }

    void test_run_end(const doctest::TestRunStats&) override {
        std::cout << num_tests_ - num_failed_ << " of " << num_tests_ << " tests passed\n";
    }

 private:
    bool shows_durations_;
    int num_tests_ = 0, num_failed_ = 0;
};

REGISTER_REPORTER("failures", 0, TestReporter);

}  // namespace

int main(int argc, char** argv) {
    if (llm::lacks_compiled_extensions()) return 2;
    doctest::Context context(argc, argv);
    if (!context.shouldExit()) context.setOption("reporters", "failures");  // not for --help
    return context.run();
}
