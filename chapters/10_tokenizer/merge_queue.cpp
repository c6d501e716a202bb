#include <queue>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {
namespace {

// A token in a doubly linked list. The neighbors are indices; -1: there is none.
struct Symbol {
    Id id;  // -1: merged into the token before it
    std::ptrdiff_t previous, next;
};

// A pair of adjacent tokens that has a merge.
struct Candidate {
    double rank;
    std::ptrdiff_t left;  // the index of the left token
    TokenPair pair;
    Id merged;

    // A priority queue returns the largest: here, the lowest rank, and the leftmost of equals.
    bool operator<(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : left > other.left;
    }
};

class SymbolList {
 public:
    SymbolList(const std::vector<Id>& ids, const Merges& merges) : merges_(merges) {
        const auto size = static_cast<std::ptrdiff_t>(ids.size());
        for (std::ptrdiff_t i = 0; i < size; ++i)
            symbols_.push_back(
                {ids[static_cast<std::size_t>(i)], i - 1, i + 1 < size ? i + 1 : -1});
        for (std::ptrdiff_t i = 0; i < size; ++i) add_pair(i);
    }

    std::vector<Id> merge_all() {
        while (!queue_.empty()) {
            const Candidate best = queue_.top();
            queue_.pop();
            merge(best);
        }
        std::vector<Id> ids;
        for (const Symbol& symbol : symbols_)
            if (symbol.id >= 0) ids.push_back(symbol.id);
        return ids;
    }

 private:
    const Merges& merges_;
    std::vector<Symbol> symbols_;
    std::priority_queue<Candidate> queue_;

    Symbol& at(std::ptrdiff_t i) { return symbols_[static_cast<std::size_t>(i)]; }

    // Adds the pair of a token and its successor to the queue, if it has a merge.
    void add_pair(std::ptrdiff_t left) {
        if (left < 0 || at(left).next < 0) return;
        const TokenPair pair{at(left).id, at(at(left).next).id};
        if (const auto merge = merges_.find(pair); merge != merges_.end())
            queue_.push({merge->second.rank, left, pair, merge->second.merged});
    }

    void merge(const Candidate& best) {
        // Skip a pair of which one token has been merged since it was added to the queue.
        Symbol& left = at(best.left);
        if (left.id != best.pair.first || left.next < 0) return;
        Symbol& right = at(left.next);
        if (right.id != best.pair.second) return;

        // Merge it, and remove the right token from the list.
        left.id = best.merged;
        left.next = right.next;
        right.id = -1;
        if (left.next >= 0) at(left.next).previous = best.left;

        // Add the new pairs that the merged token forms with its neighbors.
        add_pair(left.previous);
        add_pair(best.left);
    }
};

}  // namespace

std::vector<Id> apply_merges_with_queue(const std::vector<Id>& ids, const Merges& merges) {
    return SymbolList(ids, merges).merge_all();
}

}  // namespace llm
