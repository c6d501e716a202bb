#include <atomic>
#include <chrono>
#include <iostream>
#include <mutex>
#include <set>
#include <thread>

#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "common/output/terminal.hpp"
#include "common/system/options.hpp"
#include "common/system/parallel.hpp"
#include "common/system/processor.hpp"
#include "tests/support/check.hpp"
#include "tests/support/count_memory.hpp"

using namespace llm;

// OpenBLAS has them; other BLAS libraries do not.
extern "C" void openblas_set_num_threads(int count) __attribute__((weak));
extern "C" int openblas_get_num_threads() __attribute__((weak));

TEST_CASE("parallel_for executes each iteration once, and after_each counts them") {
    for (const std::size_t count : {0u, 1u, 2u, 1000u}) {
        std::vector<std::atomic<int>> times(count);
        std::vector<std::size_t> told, expected;
        for (std::size_t i = 1; i <= count; ++i) expected.push_back(i);
        parallel_for(
            count, [&](std::size_t i) { ++times.at(i); },
            [&](std::size_t done) { told.push_back(done); });
        for (const std::atomic<int>& t : times) CHECK(t == 1);
        CHECK(told == expected);
    }
    CHECK(num_threads() >= 1);
}

// How many of two iterations did not run at the same time as the other.
int not_concurrent() {
    std::atomic<int> begun = 0, alone = 0;
    parallel_for(2, [&](std::size_t) {  // each waits until the other one has started, too
        ++begun;
        for (int tries = 0; begun < 2 && tries < 5000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (begun < 2) ++alone;
    });
    return alone;
}

TEST_CASE("parallel_for executes two iterations at the same time") {
    if (num_threads() < 2) return;
    CHECK(not_concurrent() == 0);
}

TEST_CASE("parallel_for never calls after_each from two threads at the same time") {
    std::atomic<bool> calling = false;
    std::atomic<int> at_once = 0;
    parallel_for(
        20, [](std::size_t) {},
        [&](std::size_t) {
            if (calling.exchange(true)) ++at_once;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            calling = false;
        });
    CHECK(at_once == 0);
}

TEST_CASE(
    "parallel_for throws an exception of its body again after all iterations have ended") {
    for (const std::size_t count : {1u, 50u}) {
        std::atomic<int> begun = 0, ended = 0;
        const auto body = [&](std::size_t i) {
            ++begun;
            if (i == count / 2) throw TextError("number " + std::to_string(i));
            ++ended;
        };
        CHECK_THROWS_WITH_AS(parallel_for(count, body),
                             ("number " + std::to_string(count / 2)).c_str(), TextError);
        CHECK(begun == ended + 1);
        CHECK(begun == static_cast<int>(count));
    }
    const auto throwing = [](std::size_t) { throw TextError("from after_each"); };
    CHECK_THROWS_AS(parallel_for(
                        10, [](std::size_t) {}, throwing),
                    TextError);
}

TEST_CASE("parallel_for passes thread indices: all in range, and different at the same time") {
    std::vector<std::atomic<bool>> busy(num_threads());
    std::atomic<int> wrong = 0;
    std::vector<std::atomic<int>> times(300);
    for (const std::size_t count : {0u, 1u, 2u, 300u})
        parallel_for(count, [&](std::size_t i, std::size_t thread) {
            if (thread >= num_threads() || busy[thread].exchange(true)) {
                ++wrong;
                return;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(20));
            ++times[i];
            busy[thread] = false;
        });
    CHECK(wrong == 0);
    CHECK(times[0] == 3);
    CHECK(times[1] == 2);
    for (std::size_t i = 2; i < times.size(); ++i) CHECK(times[i] == 1);
}

TEST_CASE(
    "parallel_for passes different thread indices to two iterations that wait for each other") {
    if (num_threads() < 2) return;
    std::atomic<int> begun = 0;
    std::array<std::size_t, 2> threads{};
    parallel_for(2, [&](std::size_t i, std::size_t thread) {
        threads[i] = thread;
        ++begun;
        for (int tries = 0; begun < 2 && tries < 5000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    CHECK(threads[0] != threads[1]);
}

TEST_CASE("parallel_for returns after its last iteration has ended") {
    std::atomic<int> begun = 0, ended = 0;
    parallel_for(2, [&](std::size_t, std::size_t thread) {
        ++begun;
        for (int tries = 0; begun < 2 && num_threads() > 1 && tries < 5000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (thread != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ++ended;
    });
    CHECK(ended == 2);
}

TEST_CASE("a nested parallel_for runs in order on the thread that calls it") {
    std::atomic<int> elsewhere = 0, begun = 0;
    std::vector<std::vector<std::size_t>> orders(20), told(20);
    std::vector<std::size_t> expected(30), expected_told(30);
    for (std::size_t i = 0; i < 30; ++i) {
        expected[i] = i;
        expected_told[i] = i + 1;
    }
    parallel_for(20, [&](std::size_t outer, std::size_t this_thread) {
        const std::thread::id here = std::this_thread::get_id();
        ++begun;  // with two cores, wait until two iterations run
        for (int tries = 0; begun < 2 && num_threads() > 1 && tries < 5000; ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        parallel_for(
            30,
            [&](std::size_t inner, std::size_t thread) {
                elsewhere += std::this_thread::get_id() != here || thread != this_thread;
                parallel_for(2, [&](std::size_t) {  // and once more
                    elsewhere += std::this_thread::get_id() != here;
                });
                orders[outer].push_back(inner);
            },
            [&](std::size_t done) { told[outer].push_back(done); });
    });
    CHECK(elsewhere == 0);
    for (const auto& order : orders) CHECK(order == expected);
    for (const auto& counted : told) CHECK(counted == expected_told);
}

TEST_CASE("a nested parallel_for throws to its caller, and the outer loop continues") {
    std::atomic<int> caught = 0, ended = 0;
    parallel_for(10, [&](std::size_t) {
        try {
            parallel_for(3, [](std::size_t i) {
                if (i == 1) throw TextError("inside");
            });
        } catch (const TextError&) {
            ++caught;
        }
    });
    CHECK(caught == 10);
    const auto nested = [](std::size_t) {
        parallel_for(3, [](std::size_t) { throw TextError("not caught inside"); });
    };
    CHECK_THROWS_WITH_AS(parallel_for(10, nested), "not caught inside", TextError);
    parallel_for(10, [&](std::size_t) { ++ended; });
    CHECK(ended == 10);
}

TEST_CASE("parallel_for: thousands of calls use the same threads and allocate no memory") {
    std::mutex mutex;
    std::set<std::thread::id> pool;
    std::vector<std::size_t> sums(2 * num_threads() + 1);
    const auto body = [&](std::size_t i) { sums[i] += i; };
    parallel_for(sums.size(), body);
    const std::size_t before = num_allocations;
    for (int call = 0; call < 4000; ++call) parallel_for(sums.size(), body);
    const std::size_t allocated = num_allocations - before;
    CHECK(allocated == 0);
    for (std::size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == 4001 * i);

    for (int call = 0; call < 200; ++call)
        parallel_for(8, [&](std::size_t) {
            const std::lock_guard lock(mutex);
            pool.insert(std::this_thread::get_id());
        });
    CHECK(pool.size() <= num_threads());
}

TEST_CASE("parallel_for wakes up threads that have gone to sleep") {
    if (num_threads() < 2) return;
    for (int times = 0; times < 3; ++times) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        CHECK(not_concurrent() == 0);
    }
}

TEST_CASE("parallel_for limits BLAS to one thread while it runs") {
    if (!openblas_get_num_threads) return;
    const int found = openblas_get_num_threads(), before = 2;
    openblas_set_num_threads(before);
    std::atomic<int> wrong = 0;
    parallel_for(8, [&](std::size_t) { wrong += openblas_get_num_threads() != 1; });
    CHECK(wrong == 0);
    CHECK(openblas_get_num_threads() == before);
    parallel_for(1, [&](std::size_t) { wrong += openblas_get_num_threads() != before; });
    CHECK(wrong == 0);
    CHECK_THROWS_AS(parallel_for(4, [](std::size_t) { throw TextError("no"); }), TextError);
    CHECK(openblas_get_num_threads() == before);
    openblas_set_num_threads(found);
}

namespace {

// What a program of three steps prints with this option, its exit code, and how far it runs.
struct Run {
    std::string output, errors;
    int exit_code = 0;
    std::string steps;
};

Run run_three_steps(std::vector<std::string> arguments) {
    Run result;
    arguments.insert(arguments.begin(), "program");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    std::ostringstream output, errors;
    std::streambuf* const old_output = std::cout.rdbuf(output.rdbuf());
    std::streambuf* const old_errors = std::cerr.rdbuf(errors.rdbuf());
    Options options("test", "A question?");
    result.exit_code = options.run(static_cast<int>(argv.size()), argv.data(), [&] {
        for (const std::string title : {"A", "B", "C"}) {
            step(title);
            result.steps += title;
            write_text("text " + title);
            end_text();
        }
    });
    std::cout.rdbuf(old_output);
    std::cerr.rdbuf(old_errors);
    set_print_options({});
    result.output = output.str();
    result.errors = errors.str();
    return result;
}

}  // namespace

TEST_CASE("Options: a choice of a data type also takes llama.cpp's name of it") {
    const auto chosen = [](std::string name) {
        std::string value = "q8_0", program = "program", option = "--dtype";
        Options options("test", "A question?");
        options.choice("--dtype", value, {"float32", "float16", "q8_0"}, "the type");
        std::vector<char*> argv = {program.data(), option.data(), name.data()};
        std::ostringstream errors;
        std::streambuf* const old_errors = std::cerr.rdbuf(errors.rdbuf());
        const int exit_code = options.run(3, argv.data(), [] {});
        std::cerr.rdbuf(old_errors);
        set_print_options({});
        return exit_code == 0 ? value : errors.str();
    };
    CHECK(chosen("float32") == "float32");
    CHECK(chosen("f32") == "float32");
    CHECK(chosen("f16") == "float16");
    CHECK(chosen("q8_0") == "q8_0");
    CHECK(chosen("bf16") == "test: --dtype takes float32, float16 or q8_0, not 'bf16'\n");
}

TEST_CASE("Options: --only runs until the end of its step, and --quiet leaves out headings") {
    const Run second = run_three_steps({"--only", "2"});
    CHECK(second.output == "\n── 2. B ──\ntext B\n");
    CHECK(second.steps == "AB");
    CHECK(second.exit_code == 0);
    CHECK(run_three_steps({"--only", "3"}).output == "\n── 3. C ──\ntext C\n");
    CHECK(run_three_steps({"--only", "3", "--quiet"}).output == "text C\n");
    CHECK(run_three_steps({"--quiet"}).output == "text A\ntext B\ntext C\n");
}

TEST_CASE("Options: --only lists the steps, for a number that no step has with an error") {
    const Run beyond = run_three_steps({"--only", "4"});
    CHECK(beyond.output == "  1 A\n  2 B\n  3 C\n");
    CHECK(beyond.errors == "test: --only takes a step from 1 to 3, not 4\n");
    CHECK(beyond.exit_code == 2);
    const Run list = run_three_steps({"--only", "0"});
    CHECK(list.output == beyond.output);
    CHECK(list.errors.empty());
    CHECK(list.exit_code == 0);
    const Run word = run_three_steps({"--only", "two"});
    CHECK(word.errors == "test: --only takes an integer from 0 to 999, not 'two'\n");
    CHECK(word.steps.empty());
    CHECK(word.exit_code == 2);
}

TEST_CASE("set_num_threads: too late after the first loop") {
    parallel_for(2, [](std::size_t) {});
    CHECK_THROWS_WITH_AS(set_num_threads(1), "set_num_threads: the threads have started",
                         std::logic_error);
}

TEST_CASE("a program names the extension of the processor that it was compiled for and lacks") {
    const auto message =
        "this program was compiled for a processor with AVX-512, which this one "
        "lacks; compile it here, in a new build folder";
    const Extension present{"AVX2", true, true}, missing{"AVX-512", true, false},
        unused{"SVE", false, false};
    CHECK_NOTHROW(require_extensions(std::array{present, unused}));
    CHECK_THROWS_WITH(require_extensions(std::array{present, unused, missing}), message);
    CHECK_NOTHROW(require_compiled_extensions());
}
