// Chapter 21, file 1 of 3: the pages of a KV cache that many sequences share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "chapters/01_masking/config.hpp"
#include "common/numbers/ceil_div.hpp"

namespace llm {

// The keys and values of page_size adjacent tokens of one sequence, in all layers. Source:
// "Efficient Memory Management for Large Language Model Serving with PagedAttention" (Kwon et
// al., 2023), where a page is called a KV block.
using PageId = std::size_t;

// Who uses which page. It holds no keys and values, only their bookkeeping.
//
// A page that is full can be remembered by its tokens and all tokens before them. A later
// sequence that begins with the same tokens uses the same page (the prefix cache). A page
// without users stays remembered until it is needed: of those, the one that was released first
// is taken first (least recently used).
class PagePool {
 public:
    // Throws ValueError if one of the numbers is 0.
    PagePool(std::size_t num_pages, std::size_t page_size);

    std::size_t num_pages() const { return pages_.size(); }
    std::size_t page_size() const { return page_size_; }
    std::size_t num_unused() const { return unused_.size(); }
    std::size_t num_users(PageId page) const { return pages_.at(page).num_users; }
    // Whether the prefix cache can find the page, with or without users.
    bool remembers(PageId page) const { return pages_.at(page).prefix_number != 0; }
    // The pages that so many tokens need.
    std::size_t pages_for(std::size_t num_tokens) const {
        return ceil_div(num_tokens, page_size_);
    }

    // A page with one user, or none if all pages are in use. Its old content is forgotten.
    std::optional<PageId> allocate();

    // One user less for each page. Throws ValueError if a page has no user.
    void release(std::span<const PageId> pages);

    // The pages of the longest remembered prefix of the tokens, each with one more user.
    std::vector<PageId> share_prefix(std::span<const Id> ids);
    // How many tokens those pages hold; changes nothing.
    std::size_t prefix_length(std::span<const Id> ids) const;

    // Remembers the pages of these tokens that are full. If another page with the same tokens
    // is remembered already, that one stays.
    void remember(std::span<const Id> ids, std::span<const PageId> pages);

 private:
    // A prefix that ends with a full page: the prefix before it, and the tokens of the page.
    // Numbers of prefixes are never used again, so two prefixes are never confused. (vLLM
    // compares hashes instead.)
    struct Prefix {
        std::uint64_t previous = 0;  // 0: the empty prefix
        std::vector<Id> ids;         // page_size
        bool operator<(const Prefix& other) const {
            return std::tie(previous, ids) < std::tie(other.previous, other.ids);
        }
    };
    struct Page {
        std::size_t num_users = 0;
        std::int64_t turn = 0;            // its key in unused_, while it has no user
        std::uint64_t prefix_number = 0;  // 0: not remembered
        Prefix prefix{};
    };

    std::vector<PageId> find_prefix(std::span<const Id> ids) const;
    void use(PageId page);
    // The page has no users: it is allocated before, or after, all others that have none.
    void allocate_first(PageId page);
    void allocate_last(PageId page);

    std::size_t page_size_;
    std::vector<Page> pages_;
    std::map<std::int64_t, PageId> unused_;  // the one with the lowest turn is allocated next
    std::map<Prefix, PageId> remembered_;
    std::uint64_t num_prefixes_ = 0;
};

}  // namespace llm
