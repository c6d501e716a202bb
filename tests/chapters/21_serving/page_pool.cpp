#include "chapters/21_serving/page_pool.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

std::vector<PageId> allocate(PagePool& pool, std::size_t count) {
    std::vector<PageId> pages;
    for (std::size_t i = 0; i < count; ++i) pages.push_back(pool.allocate().value());
    return pages;
}

const std::vector<Id> eleven = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

}  // namespace

TEST_CASE("pages are allocated once, and again after they are released") {
    PagePool pool(3, 4);
    std::vector<PageId> pages = allocate(pool, 3);
    CHECK(pool.num_unused() == 0);
    CHECK_FALSE(pool.allocate());
    std::ranges::sort(pages);
    CHECK(pages == std::vector<PageId>{0, 1, 2});
    pool.release(std::vector<PageId>{1});
    CHECK(pool.num_unused() == 1);
    CHECK(pool.allocate() == PageId{1});
    CHECK_FALSE(pool.allocate());
}

TEST_CASE("pages_for rounds up to whole pages") {
    const PagePool pool(3, 4);
    CHECK(pool.pages_for(0) == 0);
    CHECK(pool.pages_for(1) == 1);
    CHECK(pool.pages_for(4) == 1);
    CHECK(pool.pages_for(5) == 2);
}

TEST_CASE("a sequence that begins with the same full pages shares them") {
    PagePool pool(8, 4);
    const std::vector<PageId> pages = allocate(pool, 3);
    pool.remember(eleven, pages);
    CHECK(pool.prefix_length(eleven) == 8);  // the third page is not full
    CHECK(pool.share_prefix(eleven) == std::vector<PageId>{pages[0], pages[1]});
    CHECK(pool.num_users(pages[0]) == 2);
    CHECK(pool.num_users(pages[1]) == 2);
    CHECK(pool.num_users(pages[2]) == 1);

    // A page is found only after the same pages before it.
    CHECK(pool.prefix_length(std::vector<Id>{1, 2, 3, 4, 9, 9, 9, 9}) == 4);
    CHECK(pool.prefix_length(std::vector<Id>{5, 6, 7, 8}) == 0);
    CHECK(pool.prefix_length(std::vector<Id>{1, 2, 3}) == 0);
    CHECK(pool.prefix_length(std::vector<Id>{9, 9, 9, 9, 5, 6, 7, 8}) == 0);
}

TEST_CASE("a page stays in use until its last user releases it") {
    PagePool pool(2, 4);
    const std::vector<PageId> pages = allocate(pool, 2);
    pool.remember(std::span(eleven).first(8), pages);
    const std::vector<PageId> shared = pool.share_prefix(std::span(eleven).first(8));
    pool.release(pages);
    CHECK(pool.num_unused() == 0);
    CHECK_FALSE(pool.allocate());
    pool.release(shared);
    CHECK(pool.num_unused() == 2);
    CHECK_THROWS_WITH_AS(pool.release(std::vector<PageId>{1}), "page pool: page 1 has no user",
                         ValueError);
}

TEST_CASE("released pages stay remembered until they are needed, the oldest goes first") {
    PagePool pool(4, 2);
    const std::vector<Id> first = {1, 2, 3, 4}, second = {5, 6};
    const std::vector<PageId> of_first = allocate(pool, 2), of_second = allocate(pool, 1);
    pool.remember(first, of_first);
    pool.remember(second, of_second);
    pool.release(of_first);
    pool.release(of_second);

    // The page that was never remembered, then the end of the first sequence, then its start.
    CHECK(pool.num_unused() == 4);
    CHECK(pool.allocate() == PageId{3});
    CHECK(pool.prefix_length(first) == 4);
    CHECK(pool.allocate() == of_first[1]);
    CHECK(pool.prefix_length(first) == 2);
    CHECK(pool.allocate() == of_first[0]);
    CHECK(pool.prefix_length(first) == 0);
    CHECK(pool.prefix_length(second) == 2);

    // A remembered page that is used again is not allocated.
    CHECK(pool.share_prefix(second) == of_second);
    CHECK_FALSE(pool.allocate());
}

TEST_CASE("a page that was taken again is remembered with its new tokens") {
    PagePool pool(1, 2);
    std::vector<PageId> page = allocate(pool, 1);
    pool.remember(std::vector<Id>{1, 2}, page);
    pool.release(page);
    page = allocate(pool, 1);
    CHECK(pool.prefix_length(std::vector<Id>{1, 2}) == 0);
    pool.remember(std::vector<Id>{3, 4}, page);
    CHECK(pool.prefix_length(std::vector<Id>{3, 4}) == 2);
}

TEST_CASE("a shared page becomes the one that was used last") {
    PagePool pool(2, 1);
    const std::vector<PageId> a = allocate(pool, 1), b = allocate(pool, 1);
    pool.remember(std::vector<Id>{1}, a);
    pool.remember(std::vector<Id>{2}, b);
    pool.release(a);
    pool.release(b);
    pool.release(pool.share_prefix(std::vector<Id>{1}));
    CHECK(pool.allocate() == b[0]);
}

TEST_CASE("a forgotten prefix does not give its old successors back") {
    PagePool pool(3, 1);
    const std::vector<PageId> pages = allocate(pool, 2);
    pool.remember(std::vector<Id>{1, 2}, pages);
    const std::vector<PageId> kept{pages[1]};
    pool.release(std::vector<PageId>{pages[0]});
    CHECK(pool.allocate() == PageId{2});
    CHECK(pool.allocate() == pages[0]);
    CHECK(pool.prefix_length(std::vector<Id>{1, 2}) == 0);

    // The same token in another page is another prefix.
    pool.remember(std::vector<Id>{1}, std::vector<PageId>{2});
    CHECK(pool.prefix_length(std::vector<Id>{1, 2}) == 1);
}

TEST_CASE("two sequences with equal tokens: the page that was remembered first is shared") {
    PagePool pool(4, 2);
    const std::vector<Id> ids = {1, 2, 3, 4};
    const std::vector<PageId> first = allocate(pool, 2), second = allocate(pool, 2);
    pool.remember(std::span(ids).first(2), first);
    pool.remember(ids, second);
    CHECK(pool.share_prefix(ids) == std::vector<PageId>{first[0], second[1]});
}

TEST_CASE("a pool without pages, or pages without tokens, are rejected") {
    CHECK_THROWS_WITH_AS(PagePool(0, 16), "page pool: 0 pages of 16 tokens", ValueError);
    CHECK_THROWS_WITH_AS(PagePool(8, 0), "page pool: 8 pages of 0 tokens", ValueError);
}
