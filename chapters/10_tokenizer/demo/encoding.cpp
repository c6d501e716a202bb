#include "chapters/10_tokenizer/demo/encoding.hpp"

#include "chapters/10_tokenizer/encoding_steps.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm {

std::string joined(const std::vector<std::string>& parts, const std::string& separator) {
    if (parts.empty()) return "none";
    std::string line = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) line += separator + parts[i];
    return line;
}

std::string tokens_of(const Tokenizer& tokenizer, const std::vector<Id>& ids) {
    std::vector<std::string> tokens;
    for (const Id id : ids) tokens.push_back(tokenizer.token_text(id));
    return joined(tokens, " ");
}

std::string visible(std::vector<std::string> words) {
    for (std::string& word : words) word = replaced(escaped(word), " ", "▁");
    return joined(words, " | ");
}

namespace {

// The types of normalizers or pre-tokenizers.
template <class Components>
std::string types_of(const Components& components) {
    std::vector<std::string> types;
    for (const auto& component : components) types.push_back(component.type);
    return joined(types, ", ");
}

void describe(const Tokenizer& tokenizer) {
    show("vocabulary size", tokenizer.vocab_size());
    show("merges", tokenizer.merges.size());
    show("normalizers", types_of(tokenizer.normalizers));
    show("pre-tokenizers", types_of(tokenizer.pre_tokenizers));
    const bool bytes = tokenizer.is_byte_level() || tokenizer.byte_fallback;
    show("unknown characters", bytes ? "encoded as bytes"
                               : tokenizer.unk_token_id
                                   ? tokenizer.token_text(*tokenizer.unk_token_id)
                                   : "raise an error");
    show("prefix tokens", tokens_of(tokenizer, tokenizer.prefix_tokens));
    std::vector<std::string> added;
    for (const AddedToken& token : tokenizer.added_tokens) added.push_back(token.content);
    added.resize(std::min<std::size_t>(added.size(), 6));
    show("special and other added tokens", escaped(joined(added, " ")));
}

// The segments of a step, separated by " | ", which no special token contains. Words show
// spaces as ▁.
std::string segments_text(const EncodingStep& step, bool are_words) {
    std::vector<std::string> parts;
    for (const Segment& segment : step.segments) parts.push_back(segment.text);
    return are_words ? visible(parts) : escaped(joined(parts, " | "));
}

void encode_step_by_step(const Tokenizer& tokenizer, const std::string& text) {
    step("Encode a text, step by step");
    const std::vector<EncodingStep> steps = encoding_steps(tokenizer, text);
    const std::size_t first_words = steps.size() - tokenizer.pre_tokenizers.size();
    for (std::size_t i = 0; i < steps.size(); ++i)
        show(steps[i].name, segments_text(steps[i], i >= first_words));

    const std::vector<Id> ids = tokenizer.encode(text);
    std::vector<std::string> tokens;
    for (const Id id : ids) tokens.push_back(to_text(id) + ":" + tokenizer.token_text(id));
    say("ids and tokens: " + joined(tokens, " "));
    IdMatrix input_ids({1, ids.size()});  // (B, T)
    std::copy(ids.begin(), ids.end(), input_ids.begin());
    show("input_ids", input_ids);
    const std::string decoded = tokenizer.decode(ids);
    show("decoded equals the text", decoded == text);
    if (decoded != text) show("decoded", escaped(decoded));
}

// One row for the characters of each word, and one for each of its merges.
void merge_by_merge(const Tokenizer& tokenizer, const std::string& text) {
    step("The merges of each word, in order");
    constexpr std::size_t max_rows = 200;
    Tokenizer without_merges = tokenizer;
    without_merges.merges.clear();
    const std::vector<EncodingStep> steps = encoding_steps(tokenizer, text);
    std::vector<TableRow> rows;
    for (const Segment& segment : steps.back().segments) {
        if (segment.id || rows.size() >= max_rows) continue;  // an added token stays whole
        std::vector<Id> ids = without_merges.encode_word(segment.text);
        rows.push_back({visible({segment.text}), "", "", tokens_of(tokenizer, ids)});
        while (rows.size() < max_rows) {
            const std::optional<TokenPair> pair = merge_next_pair(tokenizer, ids);
            if (!pair) break;
            rows.push_back({"", brief(tokenizer.merges.at(*pair).rank),
                            tokens_of(tokenizer, {pair->first}) + " + " +
                                tokens_of(tokenizer, {pair->second}),
                            tokens_of(tokenizer, ids)});
        }
    }
    show_table({"word", "rank", "merge", "tokens"}, rows);
    if (rows.size() >= max_rows) say("The table ends after 200 rows.");
}

}  // namespace

std::optional<TokenPair> merge_next_pair(const Tokenizer& tokenizer, std::vector<Id>& ids) {
    auto best = tokenizer.merges.end();
    std::size_t position = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto merge = tokenizer.merges.find({ids[i], ids[i + 1]});
        if (merge == tokenizer.merges.end()) continue;
        if (best == tokenizer.merges.end() || merge->second.rank < best->second.rank) {
            best = merge;
            position = i;
        }
    }
    if (best == tokenizer.merges.end()) return std::nullopt;
    ids[position] = best->second.merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(position) + 1);
    return best->first;
}

void inspect(const std::string& title, const Tokenizer& tokenizer, const std::string& text,
             bool with_merges) {
    step(title);
    describe(tokenizer);
    encode_step_by_step(tokenizer, text);
    if (with_merges) merge_by_merge(tokenizer, text);
}

void without_ranks(const Tokenizer& tokenizer, const std::string& text) {
    step("Wrong: merge from left to right, without ranks");
    Tokenizer left_to_right = tokenizer;
    for (auto& [pair, merge] : left_to_right.merges) merge.rank = 0;
    const std::vector<Id> ids = left_to_right.encode(text);
    say(tokens_of(tokenizer, ids));
    show("decoded equals the text", tokenizer.decode(ids) == text);
    say("The ids decode to the text, but these token sequences are rare in the training data "
        "of the model.");
}

void special_tokens(Tokenizer tokenizer) {
    step("Special tokens are matched before all other steps");
    const std::string text = "go in peace<|im_end|>";
    show("as ordinary text", tokens_of(tokenizer, tokenizer.encode(text)));
    const Id id = static_cast<Id>(tokenizer.vocab_size());
    tokenizer.token_bytes.push_back("<|im_end|>");
    tokenizer.added_tokens.push_back({"<|im_end|>", id});
    tokenizer.all_special_ids.insert(id);
    show("as an added token", tokens_of(tokenizer, tokenizer.encode(text)));
    show("decoded without special tokens", tokenizer.decode(tokenizer.encode(text)));
}

void fertility(const Tokenizer& tokenizer) {
    step("Fertility: tokens per word of four texts");
    const std::vector<std::pair<std::string, std::string>> texts = {
        {"King James", "And the LORD spake unto Moses, saying, Speak unto the children"},
        {"Modern English", "The program loads its weights and prints every tensor it computes"},
        {"German", "Das Programm liest die Gewichte und zeigt jeden Tensor"},
        {"C++", "for (int i = 0; i < n; ++i) sum += weight[i] * input[i];"}};
    std::vector<TableRow> rows;
    for (const auto& [kind, text] : texts) {
        const std::vector<Id> ids = tokenizer.encode(text);
        const auto words = double(1 + std::count(text.begin(), text.end(), ' '));
        const auto unknown = std::count(ids.begin(), ids.end(), tokenizer.unk_token_id);
        rows.push_back({kind, brief(words), to_text(ids.size()),
                        fixed(double(ids.size()) / words, 2), to_text(unknown)});
    }
    show_table({"text", "words", "tokens", "tokens per word", "<unk> tokens"}, rows);
}

}  // namespace llm
