// A parallel loop on a thread pool, like tbb::parallel_for or OpenMP's "parallel for". On an
// idle machine those are as fast. While another program uses one of two cores, a decode step of
// chapter 15 takes 4 to 6 times as long with OpenMP, and up to 1.3 times as long with oneTBB.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>

namespace llm {

// The threads of the pool, the caller's included: one per core, as
// std::thread::hardware_concurrency reports them, unless it is set.
std::size_t num_threads();
// Sets it, also for OpenBLAS: where several processes share a machine. Throws std::logic_error
// after the first loop, when the threads have started.
void set_num_threads(std::size_t count);

// The body of a loop: refers to a callable of (i) or of (i, thread) without owning it. (A
// std::function may allocate memory when it is made; this is C++26's std::function_ref.)
class LoopBody {
 public:
    template <class Function>
    requires(!std::same_as<Function, LoopBody>) LoopBody(const Function& function)
        : function_(&function), call_(call<Function>) {}

    void operator()(std::size_t i, std::size_t thread) const { call_(function_, i, thread); }

 private:
    template <class Function>
    static void call(const void* pointer, std::size_t i, std::size_t thread) {
        const auto& function = *static_cast<const Function*>(pointer);
        if constexpr (std::invocable<Function, std::size_t, std::size_t>)
            function(i, thread);
        else
            function(i);
    }

    const void* function_;
    void (*call_)(const void*, std::size_t, std::size_t);
};

// Calls body(i) for i = 0 to count - 1 on all threads, in any order, and returns when all calls
// have returned. A body of two parameters also receives the index of the executing thread, 0 to
// num_threads() - 1, for example to select the thread's workspace.
//
// Iterations are scheduled dynamically, one at a time, so that a thread that is interrupted
// executes fewer. If a call throws, the others still run; then the first exception is rethrown.
// A loop inside a body, and one that starts while another thread's loop runs, is executed by
// its calling thread alone. While the threads run, BLAS uses one thread for each product
// (unless count is 1). after_each, if given, is called after each iteration with the number of
// completed ones, by one thread at a time.
void parallel_for(std::size_t count, LoopBody body,
                  const std::function<void(std::size_t num_completed)>& after_each = {});

}  // namespace llm
