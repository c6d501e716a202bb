#include "common/parallel/mpirun.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <regex>
#include <stdexcept>

#include "common/output/terminal.hpp"

#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <csignal>

namespace llm {
namespace {

volatile pid_t mpirun_process = 0;
volatile std::sig_atomic_t num_interrupts = 0;

// mpirun passes SIGUSR1 on. A rank that is hit by a second one ends.
void pass_on(int) {
    num_interrupts = num_interrupts + 1;
    kill(mpirun_process, SIGUSR1);
    if (num_interrupts > 1) kill(mpirun_process, SIGTERM);
}

void pass_signals_on(pid_t process) {
    mpirun_process = process;
    struct sigaction action {};
    action.sa_handler = pass_on;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

// In the new process: a process group of its own, which Ctrl-C does not reach.
[[noreturn]] void execute(const std::vector<std::string>& command,
                          const std::array<int, 2>& error_pipe) {
    setpgid(0, 0);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);  // that of a terminal would stop it
    dup2(error_pipe[1], STDERR_FILENO);
    for (const int end : error_pipe) close(end);
    if (isatty(STDOUT_FILENO))
        setenv(terminal_of_ranks, std::to_string(terminal_width()).c_str(), 1);
    std::vector<char*> arguments;
    for (const std::string& word : command)
        arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
}

// What mpirun and the ranks write to the standard error. mpirun's own messages stand between
// lines of dashes, or begin with [HOST:PROCESS].
class ErrorOutput {
 public:
    explicit ErrorOutput(const std::string& name) : prefix_(name + ": ") {}

    void add(const std::string& text) {
        // It has no end of line.
        static const std::regex forwarding("mpirun\\S*: Forwarding signal \\d+ to job");
        const std::string line = std::regex_replace(text, forwarding, "");
        if (line.empty() && !text.empty()) return;
        static const std::regex ended(
            "process rank (\\d+) with PID \\d+ on node \\S+ exited on (signal \\d+ .*)\\.");
        std::smatch match;
        if (std::regex_search(line, match, ended))
            signal_ = "rank " + match[1].str() + " was ended by " + match[2].str();
        const bool is_rule = line.starts_with("----------");
        if (is_rule) is_message_ = !is_message_;
        if (is_rule || is_message_ || line.starts_with("["))
            messages_ += line + "\n";
        else if (!line.starts_with(prefix_))
            std::cerr << line << std::endl;
        else if (!error_)
            error_ = line.substr(prefix_.size());
    }
    // Why the ranks failed.
    std::string reason(int code, const std::string& advice_after_signal) const {
        if (error_) return *error_;
        if (num_interrupts > 0) std::exit(130);
        if (signal_) return *signal_ + advice_after_signal;
        std::cerr << messages_;
        return "mpirun has failed with exit code " + std::to_string(code);
    }

 private:
    std::string prefix_, messages_;
    std::optional<std::string> error_, signal_;
    bool is_message_ = false;
};

void read_lines(int descriptor, ErrorOutput& output) {
    std::FILE* stream = fdopen(descriptor, "r");
    char* line = nullptr;
    std::size_t capacity = 0;
    for (ssize_t length; (length = getline(&line, &capacity, stream)) >= 0;) {
        std::string text(line, static_cast<std::size_t>(length));
        while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
        output.add(text);
    }
    std::free(line);
    std::fclose(stream);
}

std::streambuf* error_buffer = nullptr;

}  // namespace

bool started_as_rank() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"})
        if (std::getenv(name)) return true;
    return false;
}

std::size_t started_ranks() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (const char* size = std::getenv(name)) return std::strtoul(size, nullptr, 10);
    return 0;
}

std::vector<std::string> mpirun_command(std::size_t num_ranks, int argc, char** argv) {
    const auto is_found = [](const std::string& name) {
        return std::system(("command -v " + name + " >/dev/null").c_str()) == 0;
    };
    const bool is_open_mpi = is_found("mpirun.openmpi") || is_found("ompi_info");
    std::vector<std::string> command = {
        is_found("mpirun.openmpi") ? "mpirun.openmpi" : "mpirun", "-n",
        std::to_string(num_ranks)};
    // Open MPI counts the cores of its own cpuset, and not their hardware threads.
    if (is_open_mpi)
        for (const char* word :
             {"--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"})
            command.push_back(word);
    if (is_open_mpi && geteuid() == 0) command.push_back("--allow-run-as-root");
    command.insert(command.end(), argv, argv + argc);
    return command;
}

void run_mpirun(const std::vector<std::string>& command, const std::string& name,
                const std::string& advice_after_signal) {
    std::array<int, 2> pipe_ends{};
    if (pipe(pipe_ends.data()) != 0) throw std::runtime_error("no pipe is left");
    std::cout << std::flush;
    const pid_t process = fork();
    if (process < 0) throw std::runtime_error("no process is left");
    if (process == 0) execute(command, pipe_ends);
    pass_signals_on(process);
    close(pipe_ends[1]);

    ErrorOutput errors(name);
    read_lines(pipe_ends[0], errors);
    int status = 0;
    waitpid(process, &status, 0);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        throw std::runtime_error("cannot start " + command[0]);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code != 0) throw std::runtime_error(errors.reason(code, advice_after_signal));
}

void print_nothing() {
    std::cout.rdbuf(nullptr);
    error_buffer = std::cerr.rdbuf(nullptr);
}

void print_errors() {
    if (error_buffer) std::cerr.rdbuf(error_buffer);
}

void wait_a_second() { sleep(1); }

}  // namespace llm
