// The grammars of recent requests. Clients send the same schema again and again, and a grammar
// of 100 properties takes longer to make than a token.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "chapters/23_structured_output/grammar.hpp"

namespace llm::serve {

// All threads may use it at any time.
class GrammarCache {
 public:
    // The grammar of this text, or the one that the function makes, which may throw: then
    // nothing is kept.
    template <class Make>
    std::shared_ptr<const Grammar> get(const std::string& key, const Make& make) {
        if (auto found = find(key)) return found;
        std::shared_ptr<const Grammar> made = make();
        if (made) keep(key, made);
        return made;
    }

 private:
    static constexpr std::size_t max_size = 16;           // the one unused for longest goes
    static constexpr std::size_t max_key_size = 1 << 16;  // of bytes; others are not kept
    struct Entry {
        std::string key;
        std::shared_ptr<const Grammar> grammar;
    };

    std::shared_ptr<const Grammar> find(const std::string& key) {
        const std::lock_guard lock(mutex_);
        for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
            if (entry->key == key) {
                entries_.splice(entries_.begin(), entries_, entry);
                return entry->grammar;
            }
        return nullptr;
    }
    void keep(const std::string& key, const std::shared_ptr<const Grammar>& grammar) {
        if (key.size() > max_key_size) return;
        const std::lock_guard lock(mutex_);
        entries_.push_front({key, grammar});
        if (entries_.size() > max_size) entries_.pop_back();
    }

    std::mutex mutex_;
    std::list<Entry> entries_;  // the one that was used last first
};

}  // namespace llm::serve
