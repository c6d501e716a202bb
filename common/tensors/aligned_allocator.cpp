#include "common/tensors/aligned_allocator.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace llm {
namespace {

#ifdef __GLIBC__
// Keep the memory of freed tensors, up to 256 MB, for the next ones. Otherwise it is returned
// to the system, and new pages are filled with zeros: a sixth of the time of a training step.
[[maybe_unused]] const bool keeps_freed_memory =
    mallopt(M_MMAP_THRESHOLD, 32 << 20) && mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif

constexpr std::size_t cache_line = 64, huge_page = std::size_t{2} << 20;

std::align_val_t alignment_of(std::size_t num_bytes) {
    return std::align_val_t{num_bytes < 2 * huge_page ? cache_line : huge_page};
}

}  // namespace

void* allocate_aligned(std::size_t num_bytes) {
    const std::align_val_t alignment = alignment_of(num_bytes);
    void* const memory = ::operator new(num_bytes, alignment);
#ifdef MADV_HUGEPAGE  // a request that the system may ignore
    if (alignment == std::align_val_t{huge_page})
        madvise(memory, num_bytes / huge_page * huge_page, MADV_HUGEPAGE);
#endif
    return memory;
}

void deallocate_aligned(void* memory, std::size_t num_bytes) {
    ::operator delete(memory, alignment_of(num_bytes));
}

std::shared_ptr<std::byte> allocate_bytes(std::size_t num_bytes) {
    return {static_cast<std::byte*>(allocate_aligned(num_bytes)),
            [num_bytes](std::byte* memory) { deallocate_aligned(memory, num_bytes); }};
}

}  // namespace llm
