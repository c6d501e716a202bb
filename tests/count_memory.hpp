// Counts how often a test program asks for memory, and for how many bytes. For one file of it.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace llm {

inline std::atomic<std::size_t> times_asked = 0, bytes_asked = 0;

}  // namespace llm

#ifndef LLM_SANITIZE  // the sanitizers have their own
[[gnu::noinline]] void* operator new(std::size_t size) {
    ++llm::times_asked;
    llm::bytes_asked += size;
    if (void* const memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
#endif
