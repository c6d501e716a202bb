// Runs the exercises of a chapter and reports which are solved and, if not, what was expected
// and what came. Each runs in a process of its own, so that a crash or an endless loop ends
// only that exercise. The exit code is 0 if all are solved. With doctest's options, for example
// --test-case="4.6*", the exercises run in this process, as a debugger needs it.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // a crash ends the process
#include "common/system/blas.hpp"
#include "tests/support/reporter.hpp"

namespace {

#ifdef LLM_SANITIZE
constexpr unsigned time_limit = 120;  // seconds for an exercise; the sanitizers are slow
#else
constexpr unsigned time_limit = 10;
#endif

// "not yet", and the lines that say why.
struct Result {
    std::string state;
    llm::Lines messages;
};

std::vector<std::string> titles;  // of all exercises, if asked for
std::vector<Result> results;      // of the exercises that ran in this process

class ExerciseReporter : public llm::FailureReporter {
 public:
    using FailureReporter::FailureReporter;

    void test_case_end(const doctest::CurrentTestCaseStats&) override {
        titles.push_back(title_);
        const bool written =
            failure_.empty() || failure_.back().find("is not written yet") == std::string::npos;
        if (num_failures_ == 0)
            results.push_back({"solved", {}});
        else if (!written)
            results.push_back({is_prediction() ? "to predict" : "to write", {}});
        else
            results.push_back({"not yet", is_prediction() ? without_answer() : failure_});
    }

    void report_query(const doctest::QueryData& query) override {
        for (unsigned i = 0; i < query.num_data; ++i) titles.push_back(query.data[i]->m_name);
    }

 private:
    // The report of a wrong prediction does not contain the right one, but its shape.
    bool is_prediction() const { return title_.find(" predict") != std::string::npos; }
    llm::Lines without_answer() const {
        llm::Lines lines;
        for (const std::string& line : failure_)
            if (line.starts_with("shape "))
                lines.push_back(line);
            else if (!line.starts_with("expected "))
                lines.push_back(line.substr(0, line.find(", expected ")));
        return lines;
    }
};

REGISTER_REPORTER("exercises", 0, ExerciseReporter);

int run(std::vector<const char*> arguments) {
    doctest::Context context(static_cast<int>(arguments.size()), arguments.data());
    context.setOption("reporters", "exercises");
    return context.run();
}

void print(const std::string& title, const Result& result) {
    std::cout << title << ": " << result.state << '\n';
    llm::print_indented(result.messages);
    std::cout << std::flush;
}

// The exercise's output is not lost in a crash, and an endless loop does not take all memory.
void limit_this_process() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    alarm(time_limit);
#ifndef LLM_SANITIZE
    const rlim_t bytes = rlim_t{4} << 30;
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_DATA, &limit);
#endif
}

// Runs one exercise and writes its result into the pipe.
[[noreturn]] void run_as_child(std::size_t number, int pipe) {
    limit_this_process();
    const std::string at = std::to_string(number), first = "--first=" + at,
                      last = "--last=" + at;
    run({"", first.c_str(), last.c_str()});
    std::string text = results.at(0).state + "\n";
    for (const std::string& message : results[0].messages) text += message + "\n";
    const bool complete = write(pipe, text.data(), text.size()) == ssize_t(text.size());
    std::exit(complete ? EXIT_SUCCESS : EXIT_FAILURE);
}

std::string what_ended(int status) {
    if (WIFEXITED(status))
        return "the program ended with exit code " + std::to_string(WEXITSTATUS(status));
    const int signal = WTERMSIG(status);
    if (signal == SIGALRM)
        return "ran for more than " + std::to_string(time_limit) + " seconds";
    std::string name = signal == SIGFPE ? "division by zero" : strsignal(signal);
    if (!name.empty() && name[0] >= 'A' && name[0] <= 'Z') name[0] += 'a' - 'A';
    return "crashed (" + name + ")";
}

std::string read_all(int pipe) {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = read(pipe, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<std::size_t>(count));
    return text;
}

Result run_in_child(std::size_t number) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe for the exercise");
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("no process for the exercise");
    if (child == 0) {
        close(ends[0]);
        run_as_child(number, ends[1]);
    }
    close(ends[1]);
    llm::Lines lines = llm::split_lines(read_all(ends[0]));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS && !lines.empty())
        return {lines[0], {lines.begin() + 1, lines.end()}};
    Result result{"did not finish: " + what_ended(status), {}};
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV)
        result.messages = {
            "common causes: an index out of range, a null pointer, endless recursion"};
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    llm::select_blas_kernels(argv);
    if (llm::lacks_compiled_extensions()) return 2;
    if (argc > 1) {
        const int status = run({argv, argv + argc});
        for (std::size_t i = 0; i < results.size(); ++i) print(titles[i], results[i]);
        return status;
    }
    run({"", "--list-test-cases"});
    std::size_t num_solved = 0;
    for (std::size_t i = 0; i < titles.size(); ++i) {
        const Result result = run_in_child(i + 1);
        print(titles[i], result);
        num_solved += result.state == "solved" ? 1 : 0;
    }
    std::cout << '\n' << num_solved << " of " << titles.size() << " exercises solved\n";
    return num_solved == titles.size() ? EXIT_SUCCESS : EXIT_FAILURE;
}
