#include "chapters/23_structured_output/tool_use.hpp"

#include "common/files/unicode.hpp"

namespace llm {
namespace {

// Text that ends before the tag is complete, or goes on after it. Rule i follows text that ends
// with the first i bytes of the tag, and no more of them (Knuth, Morris, Pratt): an automaton
// as a right-linear grammar. Returns rule 0.
RuleIndex add_text_before(GrammarRules& rules, const std::string& tag,
                          const Sequence& after_tag) {
    std::vector<RuleIndex> rule_after;
    for (std::size_t i = 0; i < tag.size(); ++i)
        rule_after.push_back(rules.declare("text, " + to_text(i) + " bytes of the tag"));
    for (std::size_t i = 0; i < tag.size(); ++i) {
        std::vector<ByteSet> bytes_to(tag.size() + 1);
        for (std::size_t byte = 0; byte < 256; ++byte)
            bytes_to[overlap_length(tag.substr(0, i) + static_cast<char>(byte), tag)].set(byte);
        std::vector<Sequence> alternatives = {Sequence{}};
        for (std::size_t next = 0; next < tag.size(); ++next)
            if (bytes_to[next].any())
                alternatives.push_back({bytes_to[next], rule_after[next]});
        if (bytes_to.back().any())
            alternatives.push_back(joined({{bytes_to.back()}, after_tag}));
        rules.define(rule_after[i], std::move(alternatives));
    }
    return rule_after[0];
}

}  // namespace

Grammar tool_use_grammar(const std::vector<Tool>& tools, const ToolUse& use) {
    GrammarRules rules;
    const RuleIndex call = add_tool_call(rules, tools);
    const RuleIndex more = rules.declare("more calls");
    std::vector<Sequence> after_call = {Sequence{}};
    if (use.parallel) {
        after_call.push_back(literal("\n"));
        after_call.push_back(joined({literal("\n" + tool_call_begin), {call, more}}));
    }
    rules.define(more, after_call);
    const Sequence calls = {call, more};
    const RuleIndex root = use.required
                               ? rules.add("calls", {joined({literal(tool_call_begin), calls})})
                               : add_text_before(rules, tool_call_begin, calls);
    return Grammar(std::move(rules), root);
}

std::function<Vector(const Vector&, std::span<const Id>)> tool_use_logits(
    std::shared_ptr<const TokenTrie> trie, const std::vector<Tool>& tools, const ToolUse& use) {
    return constrained_logits(std::make_shared<TokenConstraint>(
        std::move(trie), std::make_shared<const Grammar>(tool_use_grammar(tools, use))));
}

std::shared_ptr<const TokenTrie> make_tool_trie(Tokenizer& tokenizer,
                                                const std::vector<Id>& eos_token_ids) {
    for (const auto* added : {&tokenizer.added_tokens, &tokenizer.normalized_added_tokens})
        for (const AddedToken& token : *added)
            if (token.content == tool_call_begin || token.content == tool_call_end)
                tokenizer.all_special_ids.erase(token.id);
    Tokenizer of_answers = tokenizer;
    of_answers.eos_token_ids = eos_token_ids;
    return std::make_shared<const TokenTrie>(make_token_trie(of_answers));
}

}  // namespace llm
