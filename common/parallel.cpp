#include "common/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
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
        if (openblas_set_num_threads) openblas_set_num_threads(1);
    }
    ~SingleThreadedProducts() {
        if (openblas_set_num_threads) openblas_set_num_threads(before);
    }
};

}  // namespace

std::size_t num_cores() { return std::max(1u, std::thread::hardware_concurrency()); }

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work,
                 const std::function<void(std::size_t)>& after_each) {
    if (count == 1) {
        work(0);
        if (after_each) after_each(1);
        return;
    }
    const SingleThreadedProducts products;
    std::atomic<std::size_t> next = 0;
    std::mutex mutex;
    std::size_t done = 0;
    std::exception_ptr failure;
    const auto take_work = [&] {
        for (std::size_t i; (i = next++) < count;) try {
                work(i);
                const std::lock_guard lock(mutex);
                if (after_each) after_each(++done);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!failure) failure = std::current_exception();
            }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < std::min(count, num_cores()); ++i)
        threads.emplace_back(take_work);
    take_work();
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace llm
