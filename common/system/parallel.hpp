// Work on all cores.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>

namespace llm {

std::size_t num_cores();  // threads that the machine runs at a time

// Refers to a function of a number, or of a number and a core, for the time of one call. (A
// std::function would ask for memory, every time.)
class Work {
 public:
    template <class Function>
    requires(!std::same_as<Function, Work>) Work(const Function& function)
        : function_(&function), call_(call<Function>) {}

    void operator()(std::size_t i, std::size_t core) const { call_(function_, i, core); }

 private:
    template <class Function>
    static void call(const void* function, std::size_t i, std::size_t core) {
        const auto& work = *static_cast<const Function*>(function);
        if constexpr (std::invocable<Function, std::size_t, std::size_t>)
            work(i, core);
        else
            work(i);
    }

    const void* function_;
    void (*call_)(const void*, std::size_t, std::size_t);
};

// Calls work(0) to work(count - 1), several at a time, and returns when all are done; what one
// of them throws is thrown here. Work that asks for it is told which core it runs on, from 0 to
// num_cores() - 1. Meanwhile matrix products take one core each, unless count is 1. Called from
// within work it does one thing after the other. after_each is told how many are done, by one
// thread at a time.
void in_parallel(std::size_t count, Work work,
                 const std::function<void(std::size_t done)>& after_each = {});

}  // namespace llm
