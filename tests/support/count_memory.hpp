// Counts the allocations of a test program and their bytes, by replacing operator new. Include
// it in one file of a program.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace llm {

inline std::atomic<std::size_t> num_allocations = 0, allocated_bytes = 0;

}  // namespace llm

#ifndef LLM_SANITIZE  // the sanitizers replace it, too
[[gnu::noinline]] void* operator new(std::size_t size) {
    ++llm::num_allocations;
    llm::allocated_bytes += size;
    if (void* const memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
    ++llm::num_allocations;
    llm::allocated_bytes += size;
    const auto unit = static_cast<std::size_t>(alignment);
    if (void* const memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit))
        return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
#endif
