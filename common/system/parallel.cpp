#include "common/system/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "common/system/blas.hpp"

// Defined by OpenBLAS, not by other BLAS libraries.
extern "C" void openblas_set_num_threads(int count) __attribute__((weak));
extern "C" int openblas_get_num_threads() __attribute__((weak));

namespace llm {
namespace {

// Limits BLAS to one thread during its lifetime. Otherwise the threads of BLAS would compete
// with those of the pool.
struct SingleThreadedBlas {
    int previous = openblas_get_num_threads ? openblas_get_num_threads() : 0;

    SingleThreadedBlas() {
        if (previous > 1) openblas_set_num_threads(1);
    }
    ~SingleThreadedBlas() {
        if (previous > 1) openblas_set_num_threads(previous);
    }
};

// Tells the processor that the thread is polling: other threads of its core go first. It takes
// some tens of cycles. (Arm's yield takes one; isb waits for the pipeline, as in Rust's
// spin_loop.)
void pause() {
#ifdef __x86_64__
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

// Waits until the variable has another value. It polls for some microseconds, since the next
// loop often starts within that time, and then blocks; waking a blocked thread takes longer.
template <class T>
void wait_while_equal(const std::atomic<T>& variable, T value) {
    for (int polls = 0; polls < 1000; ++polls) {
        if (variable.load(std::memory_order_acquire) != value) return;
        pause();
    }
    variable.wait(value, std::memory_order_acquire);
}

// One call of parallel_for.
class Loop {
 public:
    Loop(std::size_t count, LoopBody body, const std::function<void(std::size_t)>& after_each)
        : count_(count), body_(body), after_each_(after_each) {}

    // Executes iterations until none is left. All threads of the loop call it.
    void execute(std::size_t thread) {
        for (std::size_t i; (i = next_++) < count_;) try {
                body_(i, thread);
                if (!after_each_) continue;
                const std::lock_guard lock(mutex_);
                after_each_(++num_completed_);
            } catch (...) {
                const std::lock_guard lock(mutex_);
                if (!exception_) exception_ = std::current_exception();
            }
    }
    void rethrow() const {
        if (exception_) std::rethrow_exception(exception_);
    }

 private:
    const std::size_t count_;
    const LoopBody body_;
    const std::function<void(std::size_t)>& after_each_;
    std::atomic<std::size_t> next_ = 0;
    std::size_t num_completed_ = 0;
    std::mutex mutex_;
    std::exception_ptr exception_;
};

thread_local std::size_t this_thread_index = 0;

std::atomic<bool> pool_has_started = false;

std::size_t& thread_count() {
    static std::size_t count = std::max(1u, std::thread::hardware_concurrency());
    return count;
}

// One worker thread per core except the caller's; they are started once and run until the
// program ends.
//
// The threads synchronize through one atomic variable, state_, which holds three values:
//     bits 0 to 15   num_joined: workers that are executing the current loop
//     bit 16         open: set while workers may join the loop
//     bits 17 to 63  the index of the loop, starting at 1
// 1. The caller stores a pointer to its loop, then increments the index and sets "open".
// 2. A worker that reads a new index and "open" joins: it adds 1 to num_joined, by a
//    compare-exchange, which fails if the loop has been closed in the meantime.
// 3. Caller and workers execute iterations until none is left. A worker then subtracts 1.
// 4. The caller clears "open" and waits until num_joined is 0. It never waits for a worker that
//    has not joined, because its core is busy with another program: a barrier, such as the one
//    at the end of an OpenMP loop, would.
class ThreadPool {
 public:
    ThreadPool() {
        pool_has_started = true;
        if (num_threads() > 1) require_thread_safe_blas();
        for (std::size_t thread = 1; thread < num_threads(); ++thread) try {
                workers_.emplace_back([this, thread] { serve(thread); });
            } catch (const std::system_error&) {  // the system allows no more threads
                break;
            }
    }
    ~ThreadPool() {
        open(nullptr);  // no loop: workers return
        for (std::thread& worker : workers_) worker.join();
    }

    void run(Loop& loop) {
        if (in_use_.test_and_set()) {  // a nested loop, or one of another thread
            loop.execute(this_thread_index);
            return;
        }
        open(&loop);
        loop.execute(0);
        state_ &= ~open_bit;
        for (std::uint64_t state; (state = state_) & num_joined;)
            wait_while_equal(state_, state);
        in_use_.clear();
    }

 private:
    static constexpr std::uint64_t num_joined = 0xFFFF, open_bit = 0x10000, one_loop = 0x20000;

    void open(Loop* loop) {
        loop_ = loop;
        state_ = (state_ + one_loop) | open_bit;
        state_.notify_all();
    }

    // The main loop of a worker thread.
    void serve(std::size_t thread) {
        this_thread_index = thread;
        for (std::uint64_t last_loop = 0;;) {
            std::uint64_t state = state_;
            const std::uint64_t number = state / one_loop;
            if (!(state & open_bit) || number == last_loop) {
                wait_while_equal(state_, state);
                continue;
            }
            if (!state_.compare_exchange_strong(state, state + 1)) continue;
            if (!loop_) return;
            loop_->execute(thread);
            last_loop = number;
            --state_;
            state_.notify_all();
        }
    }

    std::atomic_flag in_use_;
    Loop* loop_ = nullptr;
    std::atomic<std::uint64_t> state_ = 0;
    std::vector<std::thread> workers_;
};

}  // namespace

std::size_t num_threads() { return thread_count(); }

void set_num_threads(std::size_t count) {
    if (pool_has_started) throw std::logic_error("set_num_threads: the threads have started");
    thread_count() = std::max<std::size_t>(1, count);
    if (openblas_set_num_threads) openblas_set_num_threads(static_cast<int>(thread_count()));
}

void parallel_for(std::size_t count, LoopBody body,
                  const std::function<void(std::size_t)>& after_each) {
    Loop loop(count, body, after_each);
    if (count <= 1) {
        loop.execute(this_thread_index);
    } else {
        static ThreadPool pool;
        const SingleThreadedBlas single_threaded;
        pool.run(loop);
    }
    loop.rethrow();
}

}  // namespace llm
