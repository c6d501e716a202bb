// Runs tests. A failed test prints its title, the place, what was expected and what came.
#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/support/reporter.hpp"

namespace {

class TestReporter : public llm::FailureReporter {
 public:
    using FailureReporter::FailureReporter;

    void test_case_end(const doctest::CurrentTestCaseStats&) override {
        ++num_tests_;
        if (num_failures_ == 0) return;
        ++num_failed_;
        std::cout << "FAILED: " << title_ << "\n    at " << place_ << '\n';
        llm::print_indented(failure_);
        if (num_failures_ > 1)
            std::cout << "    (failed checks of this test: " << num_failures_ << ")\n";
        std::cout << std::flush;
    }

    void test_run_end(const doctest::TestRunStats&) override {
        if (num_tests_ == 1) return;  // CTest runs each test by itself and counts them
        std::cout << num_tests_ - num_failed_ << " of " << num_tests_ << " tests passed\n";
    }

 private:
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
