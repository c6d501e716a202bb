#include "chapters/21_serving/demo/paging.hpp"

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/15_fast/run_state.hpp"
#include "chapters/21_serving/scheduler.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

std::string list_of(std::span<const PageId> pages) {
    std::string text;
    for (const PageId page : pages) text += (text.empty() ? "" : " ") + to_text(page);
    return text;
}

// The slots of a memory by rows, each with the number of its sequence from 1 on; 0: reserved,
// but not used.
void fill_slots(Matrix& slots, std::size_t first, std::size_t count, Real number) {
    for (std::size_t slot = first; slot < first + count; ++slot) slots.data()[slot] = number;
}

}  // namespace

void one_step_for_many() {
    step("One decode step of Mini-LLM in q8_0, for one sequence and for many");
    const std::uint64_t parameters = count_parameters(mini_llm_config()).total();
    const double bytes = double(parameters) * 34 / 32;  // 32 weights in 34 bytes
    std::vector<TableRow> rows;
    for (const std::uint64_t count : {1, 2, 4, 8, 16, 64})
        rows.push_back({to_text(count), fixed(bytes / 1e6, 0),
                        with_commas(2 * parameters * count / 1'000'000),
                        fixed(2 * double(parameters * count) / bytes, 1)});
    show_table({"sequences", "MB of weights", "MFLOPs", "FLOPs per byte"}, rows);
}

namespace {

Heatmap map_of(const std::string& title, const Matrix& slots) {
    Heatmap map{title, "slot of a row", "row of 64 slots", slots};
    map.low = 0, map.high = 6;
    return map;
}

}  // namespace

void reserved_memory(std::size_t page_size) {
    step("Six sequences in 384 slots: reserved for the longest, or in pages");
    constexpr std::size_t longest = 64;
    const std::vector<std::size_t> lengths = {9, 23, 41, 5, 60, 12};
    Matrix reserved = xt::zeros<Real>({6, 64}), paged = xt::zeros<Real>({6, 64});
    PagePool pool(reserved.size() / page_size, page_size);
    fill_slots(paged, 0, paged.size(), -infinity);
    std::vector<TableRow> rows;
    std::size_t num_used = 0, num_in_pages = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        fill_slots(reserved, i * longest, lengths[i], Real(i + 1));
        const std::size_t num_pages = pool.pages_for(lengths[i]);
        for (std::size_t n = 0; n < num_pages; ++n) {
            const std::size_t slot = pool.allocate().value() * page_size;
            const std::size_t count = std::min(page_size, lengths[i] - n * page_size);
            fill_slots(paged, slot, page_size, 0);
            fill_slots(paged, slot, count, Real(i + 1));
        }
        num_used += lengths[i];
        num_in_pages += num_pages * page_size;
        rows.push_back({to_text(i + 1), to_text(lengths[i]), to_text(longest),
                        to_text(num_pages * page_size)});
    }
    const std::size_t num_reserved = lengths.size() * longest;
    rows.push_back({"all", to_text(num_used), to_text(num_reserved), to_text(num_in_pages)});
    rows.push_back({"used, %", "", fixed(100 * double(num_used) / double(num_reserved), 0),
                    fixed(100 * double(num_used) / double(num_in_pages), 0)});
    show_table({"sequence", "tokens", "64 for each", "pages of " + to_text(page_size)}, rows);
    plot("memory", {map_of("64 slots for each of 6 sequences", reserved),
                    map_of("Pages of " + to_text(page_size) + " slots", paged)});
}

void pages_of_sequences() {
    step("Page tables: three sequences grow by turns, in pages of 4 tokens");
    PagePool pool(8, 4);
    std::vector<std::vector<PageId>> tables(3);
    const std::vector<std::size_t> lengths = {6, 3, 9};
    std::vector<TableRow> rows(3);
    for (std::size_t t = 0; t < 9; ++t)
        for (std::size_t i = 0; i < 3; ++i)
            if (t < lengths[i] && t % 4 == 0) tables[i].push_back(pool.allocate().value());
    for (std::size_t i = 0; i < 3; ++i)
        rows[i] = {to_text(i), to_text(lengths[i]), list_of(tables[i])};
    show_table({"sequence", "tokens", "pages"}, rows);

    const SlotMapping slots{tables[2], 4};
    IdVector slot_of_position = xt::zeros<Id>({9});
    for (std::size_t p = 0; p < 9; ++p) slot_of_position(p) = Id(slots.slot(p));
    show("slots_of_sequence_2", slot_of_position);
    show("unused_pages", pool.num_unused());
}

void common_beginning() {
    step("Three prompts with the same first 10 tokens, in pages of 4");
    Scheduler scheduler = make_scheduler({4, 64}, 16, 4);
    std::vector<TableRow> rows;
    for (Id last = 0; last < 3; ++last) {
        std::vector<Id> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
        for (Id t = 0; t < 3; ++t) ids.push_back(100 * (last + 1) + t);
        submit(scheduler, ids, 4);
        const std::vector<PlannedTokens> plan = plan_step(scheduler).tokens;
        const ScheduledSequence& sequence = scheduler.running.back();
        rows.push_back({to_text(sequence.number), to_text(ids.size()),
                        to_text(sequence.num_cached), to_text(plan.back().count),
                        list_of(sequence.pages)});
        record_step(scheduler, plan, std::vector<NewToken>(plan.size(), {1}));
    }
    show_table({"request", "tokens", "found", "computed", "pages"}, rows);
    std::string users;
    for (PageId page = 0; page < 8; ++page)
        users += (page > 0 ? " " : "") + to_text(scheduler.pool.num_users(page));
    show("users_of_pages_0_to_7", users);
}

}  // namespace llm
