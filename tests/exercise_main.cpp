// Runs the exercises of a chapter and reports which are solved, which are not, and what was
// expected. Each line is printed immediately, so that an exercise that crashes or does not end
// is the last one in the report. The exit code is 0 if all are solved.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

class ExerciseReporter : public doctest::IReporter {
 public:
    explicit ExerciseReporter(const doctest::ContextOptions&) {}

    void test_case_start(const doctest::TestCaseData& test) override {
        std::cout << test.m_name << ": " << std::flush;
        started_ = true;
        failed_ = false;
        messages_.clear();
        ++total_;
    }

    void test_case_end(const doctest::CurrentTestCaseStats&) override {
        std::cout << (!failed_ ? "solved" : started_ ? "not yet" : "to write") << '\n';
        for (const std::string& message : messages_) std::cout << "    " << message << '\n';
        if (!failed_) ++solved_;
    }

    void test_run_end(const doctest::TestRunStats&) override {
        std::cout << '\n' << solved_ << " of " << total_ << " exercises solved\n" << std::flush;
    }

    // Reports only the first failure of an exercise, with the INFO messages around it.
    void log_assert(const doctest::AssertData& assertion) override {
        if (!assertion.m_failed || failed_) return;
        failed_ = true;
        add_context();
        const std::string values = assertion.m_decomp.c_str();
        if (assertion.m_threw) {
            add_exception(assertion.m_exception.c_str());
        } else if (!values.empty() && values != "false") {
            messages_.push_back(std::string("expected: ") + assertion.m_expr);
            messages_.push_back("got:      " + values);
        }
    }

    // A failed CHECK_CLOSE.
    void log_message(const doctest::MessageData& message) override {
        if (message.m_severity == doctest::assertType::is_warn || failed_) return;
        failed_ = true;
        add_context();
        add_message(message.m_string.c_str());
    }

    void test_case_exception(const doctest::TestCaseException& exception) override {
        if (failed_) return;
        failed_ = true;
        add_exception(exception.error_string.c_str());
    }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
    void add_context() {
        for (int i = 0; i < get_num_active_contexts(); ++i) {
            std::ostringstream stream;
            get_active_contexts()[i]->stringify(&stream);
            add_message(stream.str());
        }
    }

    void add_message(std::string text) {
        if (const auto at = text.find(": worst element"); at != text.npos)
            text.replace(at, 2, "\n    ");
        messages_.push_back(text);
    }

    void add_exception(const std::string& exception) {
        started_ = exception.find("is not written yet") == exception.npos;
        if (started_) messages_.push_back("it threw: " + exception);
    }

    int total_ = 0, solved_ = 0;
    bool started_ = true, failed_ = false;
    std::vector<std::string> messages_;
};

REGISTER_REPORTER("exercises", 0, ExerciseReporter);

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    context.setOption("reporters", "exercises");
    return context.run();
}
