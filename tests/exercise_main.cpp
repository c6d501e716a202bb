// Runs the exercises of a chapter and says in words which are solved, which not, and what was
// expected. Exit code 0 when all are solved.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "common/exercise.hpp"

namespace {

struct Exercise {
    std::string title;
    bool solved = true, started = true;
    std::vector<std::string> complaints;  // what was expected, of the first failure
};

std::vector<Exercise> exercises;

class InWords : public doctest::IReporter {
 public:
    explicit InWords(const doctest::ContextOptions&) {}

    void test_case_start(const doctest::TestCaseData& test) override {
        exercises.push_back({test.m_name, true, true, {}});
    }

    void log_assert(const doctest::AssertData& assertion) override {
        if (!assertion.m_failed || !exercises.back().solved) return;
        exercises.back().solved = false;
        note_expectations();
        if (assertion.m_threw) {
            note_exception(assertion.m_exception.c_str());
        } else if (assertion.m_decomp.size() > 0 &&
                   assertion.m_decomp != doctest::String("false")) {
            note(std::string("got ") + assertion.m_decomp.c_str() + ", expected " +
                 assertion.m_expr);
        }
    }

    void test_case_exception(const doctest::TestCaseException& exception) override {
        if (!exercises.back().solved) return;
        exercises.back().solved = false;
        note_exception(exception.error_string.c_str());
    }

    void test_run_end(const doctest::TestRunStats&) override {
        std::size_t solved = 0;
        for (const Exercise& exercise : exercises) solved += exercise.solved;
        std::cout << solved << " of " << exercises.size() << " exercises solved\n\n";
        for (const Exercise& exercise : exercises) {
            const char* state = exercise.solved    ? "solved"
                                : exercise.started ? "not yet"
                                                   : "to write";
            std::cout << (exercise.solved ? "  [x] " : "  [ ] ") << exercise.title << ": "
                      << state << '\n';
            for (const std::string& complaint : exercise.complaints)
                std::cout << "        " << complaint << '\n';
        }
    }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
    static void note(const std::string& complaint) {
        exercises.back().complaints.push_back(complaint);
    }

    // The INFO sentences around the failed check.
    static void note_expectations() {
        for (int i = 0; i < get_num_active_contexts(); ++i) {
            std::ostringstream text;
            get_active_contexts()[i]->stringify(&text);
            note(text.str());
        }
    }

    static void note_exception(const std::string& message) {
        exercises.back().started = message.find("is not written yet") == message.npos;
        if (exercises.back().started) note("it threw: " + message);
    }
};

REGISTER_REPORTER("in_words", 0, InWords);

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    context.setOption("reporters", "in_words");
    return context.run();
}
