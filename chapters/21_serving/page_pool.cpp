#include "chapters/21_serving/page_pool.hpp"

#include "common/tensors/shape.hpp"

namespace llm {

PagePool::PagePool(std::size_t num_pages, std::size_t page_size)
    : page_size_(page_size), pages_(num_pages) {
    require(num_pages > 0 && page_size > 0, "page pool: {} pages of {} tokens", num_pages,
            page_size);
    for (PageId page = 0; page < num_pages; ++page) allocate_last(page);
}

// The scheduler calls it for a sequence that needs a page: allocate_pages in scheduler.cpp.
std::optional<PageId> PagePool::allocate() {
    if (unused_.empty()) return std::nullopt;
    const PageId page = unused_.begin()->second;
    use(page);

    // Forget what was in it.
    if (pages_[page].prefix_number != 0) {
        remembered_.erase(pages_[page].prefix);
        pages_[page].prefix_number = 0;
    }
    return page;
}

void PagePool::release(std::span<const PageId> pages) {
    // The last page of a sequence first: a remembered page is of no use without those before
    // it.
    for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
        require(pages_.at(*page).num_users > 0, "page pool: page {} has no user", *page);
        if (--pages_[*page].num_users > 0) continue;

        // Pages without a remembered prefix are allocated before all others.
        if (remembers(*page))
            allocate_last(*page);
        else
            allocate_first(*page);
    }
}

std::vector<PageId> PagePool::share_prefix(std::span<const Id> ids) {
    const std::vector<PageId> pages = find_prefix(ids);
    for (const PageId page : pages) use(page);
    return pages;
}

std::size_t PagePool::prefix_length(std::span<const Id> ids) const {
    return find_prefix(ids).size() * page_size_;
}

void PagePool::remember(std::span<const Id> ids, std::span<const PageId> pages) {
    std::uint64_t previous = 0;
    for (std::size_t i = 0; i < pages.size() && (i + 1) * page_size_ <= ids.size(); ++i) {
        Page& page = pages_.at(pages[i]);
        if (page.prefix_number != 0) {
            previous = page.prefix_number;
            continue;
        }
        const std::span<const Id> in_page = ids.subspan(i * page_size_, page_size_);
        Prefix prefix{previous, {in_page.begin(), in_page.end()}};
        const auto [found, is_new] = remembered_.try_emplace(prefix, pages[i]);
        if (is_new) {
            page.prefix = std::move(prefix);
            page.prefix_number = ++num_prefixes_;
        }
        previous = pages_[found->second].prefix_number;
    }
}

std::vector<PageId> PagePool::find_prefix(std::span<const Id> ids) const {
    std::vector<PageId> pages;
    std::uint64_t previous = 0;
    while ((pages.size() + 1) * page_size_ <= ids.size()) {
        const std::span<const Id> in_page = ids.subspan(pages.size() * page_size_, page_size_);
        const auto found = remembered_.find({previous, {in_page.begin(), in_page.end()}});
        if (found == remembered_.end()) break;
        pages.push_back(found->second);
        previous = pages_[found->second].prefix_number;
    }
    return pages;
}

void PagePool::use(PageId page) {
    if (pages_[page].num_users++ == 0) unused_.erase(pages_[page].turn);
}

void PagePool::allocate_first(PageId page) {
    pages_[page].turn = unused_.empty() ? 0 : unused_.begin()->first - 1;
    unused_.emplace(pages_[page].turn, page);
}

void PagePool::allocate_last(PageId page) {
    pages_[page].turn = unused_.empty() ? 0 : unused_.rbegin()->first + 1;
    unused_.emplace(pages_[page].turn, page);
}

}  // namespace llm
