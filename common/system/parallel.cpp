#include "common/system/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

// OpenBLAS has them; other BLAS libraries do not.
extern "C" void openblas_set_num_threads(int count) __attribute__((weak));
extern "C" int openblas_get_num_threads() __attribute__((weak));

namespace llm {
namespace {

// One thread for matrix products while it lives.
struct SingleThreadedProducts {
    int before = openblas_get_num_threads ? openblas_get_num_threads() : 0;

    SingleThreadedProducts() {
        if (before > 1) openblas_set_num_threads(1);
    }
    ~SingleThreadedProducts() {
        if (before > 1) openblas_set_num_threads(before);
    }
};

// Looks a while, then sleeps: the next work often comes within microseconds, and waking a
// thread takes longer than that.
template <class T>
void wait_while(const std::atomic<T>& number, T value) {
    for (int looks = 0; looks < 20000; ++looks)
        if (number.load(std::memory_order_acquire) != value) return;
    number.wait(value, std::memory_order_acquire);
}

// What is to be done once, by all threads together.
class Job {
 public:
    Job(std::size_t count, Work work, const std::function<void(std::size_t)>& after_each)
        : count_(count), work_(work), after_each_(after_each) {}

    // Takes one number after the other until none is left.
    void help(std::size_t core) {
        for (std::size_t i; (i = next_++) < count_;) try {
                work_(i, core);
                if (!after_each_) continue;
                const std::lock_guard lock(mutex_);
                after_each_(++done_);
            } catch (...) {
                const std::lock_guard lock(mutex_);
                if (!failure_) failure_ = std::current_exception();
            }
    }
    void rethrow() const {
        if (failure_) std::rethrow_exception(failure_);
    }

 private:
    const std::size_t count_;
    const Work work_;
    const std::function<void(std::size_t)>& after_each_;
    std::atomic<std::size_t> next_ = 0;
    std::size_t done_ = 0;
    std::mutex mutex_;
    std::exception_ptr failure_;
};

thread_local std::size_t this_core = 0;

// A thread for every core but the caller's, kept until the program ends. A thread that comes
// late, because its core has other things to do, finds the door closed: nobody waits for it.
class Team {
 public:
    Team() {
        for (std::size_t core = 1; core < num_cores(); ++core) try {
                threads_.emplace_back([this, core] { serve(core); });
            } catch (const std::system_error&) {  // fewer will do
                break;
            }
    }
    ~Team() {
        open_for(nullptr);
        for (std::thread& thread : threads_) thread.join();
    }

    void run(Job& job) {
        if (taken_.test_and_set()) {  // by the work that calls us, or by another thread: alone
            job.help(this_core);
            return;
        }
        open_for(&job);
        job.help(0);
        door_ &= ~open;
        for (std::uint64_t door; (door = door_) & inside;) wait_while(door_, door);
        taken_.clear();
    }

 private:
    // The door: how many threads are inside, is it open, and the number of the job.
    static constexpr std::uint64_t inside = 0xFFFF, open = 0x10000, one_job = 0x20000;

    void open_for(Job* job) {
        job_ = job;
        door_ = (door_ + one_job) | open;
        door_.notify_all();
    }

    void serve(std::size_t core) {
        this_core = core;
        for (std::uint64_t helped = 0;;) {
            std::uint64_t door = door_;
            const std::uint64_t number = door / one_job;
            if (!(door & open) || number == helped) {
                wait_while(door_, door);
                continue;
            }
            if (!door_.compare_exchange_strong(door, door + 1)) continue;
            if (!job_) return;
            job_->help(core);
            helped = number;
            --door_;
            door_.notify_all();
        }
    }

    std::atomic_flag taken_;
    Job* job_ = nullptr;
    std::atomic<std::uint64_t> door_ = 0;
    std::vector<std::thread> threads_;
};

}  // namespace

std::size_t num_cores() {
    static const std::size_t count = std::max(1u, std::thread::hardware_concurrency());
    return count;
}

void in_parallel(std::size_t count, Work work,
                 const std::function<void(std::size_t)>& after_each) {
    Job job(count, work, after_each);
    if (count <= 1) {
        job.help(this_core);
    } else {
        static Team team;
        const SingleThreadedProducts products;
        team.run(job);
    }
    job.rethrow();
}

}  // namespace llm
