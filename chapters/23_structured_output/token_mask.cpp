#include "chapters/23_structured_output/token_mask.hpp"

#include <algorithm>

namespace llm {

LazyAutomaton::LazyAutomaton(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)) {
    index_of(start_state(*grammar_));
}

const GrammarState& LazyAutomaton::state(StateIndex index) const {
    return states_[static_cast<std::size_t>(index)];
}

namespace {

// The positions on all stacks. Equal lists are equal states.
std::vector<std::uint32_t> positions_of(const GrammarState& state) {
    std::vector<std::uint32_t> positions;
    for (const Stack& stack : state.stacks) {
        for (const Frame* frame = stack.get(); frame; frame = frame->below.get())
            for (const std::uint32_t part :
                 {frame->position.rule, frame->position.alternative, frame->position.index})
                positions.push_back(part);
        positions.push_back(0xffffffff);  // the end of a stack: no rule has this index
    }
    return positions;
}

}  // namespace

LazyAutomaton::StateIndex LazyAutomaton::index_of(GrammarState state) {
    if (is_rejected(state)) return rejected;
    const auto next_index = static_cast<StateIndex>(states_.size());
    const auto [entry, is_new] = index_of_.emplace(positions_of(state), next_index);
    if (is_new) {
        require(states_.size() < 65536, "grammar: more than 65536 states in one step");
        states_.push_back(std::move(state));
        transitions_.emplace_back().fill(unknown);
    }
    return entry->second;
}

LazyAutomaton::StateIndex LazyAutomaton::next(StateIndex state, unsigned char byte) {
    if (state == rejected) return rejected;
    const auto index = static_cast<std::size_t>(state);
    if (transitions_[index][byte] == unknown) {
        const StateIndex after = index_of(advance(*grammar_, states_[index], byte));
        transitions_[index][byte] = after;
    }
    return transitions_[index][byte];
}

LazyAutomaton::StateIndex LazyAutomaton::clear_if_large(StateIndex keep) {
    if (states_.size() <= 16384) return keep;
    GrammarState kept = std::move(states_[static_cast<std::size_t>(keep)]);
    states_.clear();
    transitions_.clear();
    index_of_.clear();
    index_of(start_state(*grammar_));
    return index_of(std::move(kept));
}

TokenConstraint::TokenConstraint(std::shared_ptr<const TokenTrie> trie,
                                 std::shared_ptr<const Grammar> grammar, TextStart text_start)
    : trie_(std::move(trie)),
      automaton_(std::move(grammar)),
      drops_space_(trie_->strip_leading_space && text_start == TextStart::own_text) {}

bool TokenConstraint::is_complete() const { return llm::is_complete(automaton_.state(state_)); }

bool TokenConstraint::is_eos(Id id) const {
    const std::vector<Id>& eos = trie_->eos_token_ids;
    return std::find(eos.begin(), eos.end(), id) != eos.end();
}

std::vector<bool> TokenConstraint::allowed_text_tokens() {
    std::vector<bool> allowed(trie_->vocab_size(), false);

    // Walk the trie in depth-first order, with the state after the bytes of each ancestor.
    std::vector<LazyAutomaton::StateIndex> state_at = {state_};  // by depth
    for (std::size_t i = 0; i < trie_->nodes.size();) {
        const TrieNode& node = trie_->nodes[i];
        const bool is_dropped =
            drops_space_ && tokens_.empty() && node.depth == 1 && node.byte == ' ';
        const LazyAutomaton::StateIndex state =
            is_dropped ? state_ : automaton_.next(state_at[node.depth - 1], node.byte);

        // Reject all tokens that begin with the bytes of this node, or go on below it.
        if (state == LazyAutomaton::rejected) {
            i = node.subtree_end;
            continue;
        }
        state_at.resize(node.depth);
        state_at.push_back(state);
        for (const Id id : trie_->ids_at(node)) allowed[static_cast<std::size_t>(id)] = true;
        ++i;
    }
    return allowed;
}

std::vector<bool> TokenConstraint::allowed_tokens() {
    if (state_ == last_mask_.state && !tokens_.empty()) return last_mask_.allowed;
    state_ = automaton_.clear_if_large(state_);
    last_mask_.state = LazyAutomaton::rejected;  // the states may have new numbers
    std::vector<bool> allowed = allowed_text_tokens();
    if (is_complete())
        for (const Id id : trie_->eos_token_ids) allowed[static_cast<std::size_t>(id)] = true;
    require(std::find(allowed.begin(), allowed.end(), true) != allowed.end(),
            is_complete() ? "token_mask: after {} tokens the text is complete, but the "
                            "vocabulary has no EOS token"
                          : "token_mask: after {} tokens, no token of the vocabulary fits the "
                            "grammar",
            tokens_.size());
    if (!tokens_.empty()) last_mask_ = {state_, allowed};
    return allowed;
}

LazyAutomaton::StateIndex TokenConstraint::after(Id id) {
    if (id < 0 || static_cast<std::size_t>(id) >= trie_->vocab_size() ||
        trie_->bytes_of(id).empty())
        return LazyAutomaton::rejected;
    std::string_view bytes = trie_->bytes_of(id);
    if (drops_space_ && tokens_.empty() && bytes.starts_with(' ')) bytes.remove_prefix(1);
    LazyAutomaton::StateIndex state = state_;
    for (const char byte : bytes)
        state = automaton_.next(state, static_cast<unsigned char>(byte));
    return state;
}

void TokenConstraint::accept(Id id) {
    const bool ends = is_eos(id) && is_complete();
    const LazyAutomaton::StateIndex state = ends ? state_ : after(id);
    require(state != LazyAutomaton::rejected,
            "token_mask: token {} does not fit the grammar after {} tokens", id,
            tokens_.size());
    state_ = state;
    tokens_.push_back(id);
}

void TokenConstraint::set_tokens(const std::vector<Id>& ids) {
    const bool goes_on =
        ids.size() >= tokens_.size() && std::equal(tokens_.begin(), tokens_.end(), ids.begin());
    if (!goes_on) {
        tokens_.clear();
        state_ = LazyAutomaton::start;
    }
    for (std::size_t i = tokens_.size(); i < ids.size(); ++i) accept(ids[i]);
}

Vector apply_mask(const Vector& logits, const std::vector<bool>& allowed) {
    require(logits.size() == allowed.size(),
            "apply_mask: expected {} logits, one for each token, got {}", allowed.size(),
            logits.size());
    Vector masked = logits;
    for (std::size_t id = 0; id < masked.size(); ++id)
        if (!allowed[id]) masked(id) = -infinity;
    return masked;
}

std::function<Vector(const Vector&, std::span<const Id>)> constrained_logits(
    std::shared_ptr<TokenConstraint> constraint) {
    return [constraint](const Vector& logits, std::span<const Id> new_ids) {
        constraint->set_tokens({new_ids.begin(), new_ids.end()});
        return apply_mask(logits, constraint->allowed_tokens());
    };
}

}  // namespace llm
