// Chapter 23, file 4 of 7: constrained decoding: which tokens may come next.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "chapters/23_structured_output/grammar.hpp"
#include "chapters/23_structured_output/token_trie.hpp"

namespace llm {

// The states of a grammar by number, and their transitions, each computed when it is needed
// first: a lazy DFA, as in RE2. In a JSON string most bytes lead back to the same state, so
// that a walk over a vocabulary costs a table look-up for each node.
class LazyAutomaton {
 public:
    explicit LazyAutomaton(std::shared_ptr<const Grammar> grammar);

    using StateIndex = std::int32_t;
    static constexpr StateIndex rejected = -1, start = 0;
    StateIndex next(StateIndex state, unsigned char byte);
    const GrammarState& state(StateIndex index) const;

    // Forgets all states if there are more than 16,384 (16 MB); returns the number that the
    // state has now. Throws ValueError, in next(), at 65,536 states.
    StateIndex clear_if_large(StateIndex keep);

 private:
    static constexpr StateIndex unknown = -2;
    std::shared_ptr<const Grammar> grammar_;
    std::vector<GrammarState> states_;
    std::vector<std::array<StateIndex, 256>> transitions_;
    std::map<std::vector<std::uint32_t>, StateIndex>
        index_of_;  // by the positions on the stacks

    StateIndex index_of(GrammarState state);
};

// Is the generated text the continuation of a prompt, or decoded as a text of its own? In the
// latter the tokenizers of Llama 2 drop a leading space, which then costs the grammar nothing.
enum class TextStart { after_prompt, own_text };

// The constraint on one generated text: its tokens so far, and the grammar's state after them.
class TokenConstraint {
 public:
    TokenConstraint(std::shared_ptr<const TokenTrie> trie,
                    std::shared_ptr<const Grammar> grammar,
                    TextStart text_start = TextStart::after_prompt);

    // Which tokens may come next: those whose bytes keep the text a beginning of a text of the
    // grammar; EOS tokens exactly if the text is complete. Throws ValueError if there are none.
    std::vector<bool> allowed_tokens();  // V

    // Takes the next token. Throws ValueError if it is not allowed.
    void accept(Id id);

    // Goes to the state after exactly these tokens: forward, or back if some were withdrawn
    // (speculative decoding). Throws ValueError as accept().
    void set_tokens(const std::vector<Id>& ids);

    const std::vector<Id>& tokens() const { return tokens_; }
    bool is_complete() const;

 private:
    std::shared_ptr<const TokenTrie> trie_;
    LazyAutomaton automaton_;
    bool drops_space_;  // is a space at the start of the text dropped?
    std::vector<Id> tokens_;
    LazyAutomaton::StateIndex state_ = LazyAutomaton::start;

    // The last mask after a token. In free text most tokens lead back to the same state.
    struct {
        LazyAutomaton::StateIndex state = LazyAutomaton::rejected;
        std::vector<bool> allowed{};
    } last_mask_{};

    std::vector<bool> allowed_text_tokens();  // V: without EOS tokens
    LazyAutomaton::StateIndex after(Id id);
    bool is_eos(Id id) const;
};

// -inf for the tokens that are not allowed: a probability of 0.
Vector apply_mask(const Vector& logits,               // (V) -> (V)
                  const std::vector<bool>& allowed);  // V

// The constraint as GenerationConfig::logits_processor of chapter 11.
std::function<Vector(const Vector& logits, std::span<const Id> new_ids)> constrained_logits(
    std::shared_ptr<TokenConstraint> constraint);

}  // namespace llm
