// Memory for tensors: it begins at a multiple of 64 bytes, the size of a cache line and of the
// longest vector registers. Loading a register from two cache lines takes twice as long.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <vector>

namespace llm {

// Blocks of several megabytes are aligned for huge pages, and the system is asked for them:
// with pages of 2 MB instead of 4 KB, translating addresses takes less time. Throws
// std::bad_alloc.
void* allocate_aligned(std::size_t num_bytes);
void deallocate_aligned(void* memory, std::size_t num_bytes);

// The same with shared ownership. The memory is not initialized.
std::shared_ptr<std::byte> allocate_bytes(std::size_t num_bytes);

template <class T>
struct AlignedAllocator {
    using value_type = T;

    AlignedAllocator() = default;
    template <class U>
    AlignedAllocator(const AlignedAllocator<U>&) {}

    T* allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            throw std::bad_array_new_length();
        return static_cast<T*>(allocate_aligned(count * sizeof(T)));
    }
    void deallocate(T* memory, std::size_t count) {
        deallocate_aligned(memory, count * sizeof(T));
    }
    bool operator==(const AlignedAllocator&) const = default;
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace llm
