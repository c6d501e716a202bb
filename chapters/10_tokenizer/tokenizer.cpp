#include "chapters/10_tokenizer/tokenizer.hpp"

#include "common/files/unicode.hpp"

namespace llm {

std::vector<Id> join_pairs(std::vector<Id> ids, const Merges& merges) {
    while (true) {
        // Which two neighbours come first in the list?
        auto best = merges.end();
        std::size_t where = 0;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            const auto merge = merges.find({ids[i], ids[i + 1]});
            if (merge == merges.end()) continue;
            if (best == merges.end() || merge->second.rank < best->second.rank) {
                best = merge;
                where = i;
            }
        }
        if (best == merges.end()) return ids;

        // Join them, and look again: the new token may have a partner of its own.
        ids[where] = best->second.joined;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
}

std::string byte_alphabet(unsigned char byte) {
    const auto is_printable = [](unsigned b) {
        return (b > ' ' && b < 0x7f) || (b > 0xa0 && b != 0xad);  // 0xad: a soft hyphen
    };
    if (is_printable(byte)) return character(byte);
    char32_t next = 0x100;
    for (unsigned b = 0; b < byte; ++b) next += is_printable(b) ? 0 : 1;
    return character(next);
}

std::string byte_name(unsigned char byte) {
    const std::string digits = "0123456789ABCDEF";
    return std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">";
}

std::vector<Section> cut_out(const std::vector<std::pair<std::string, Id>>& tokens,
                             const std::string& text) {
    const auto token_at = [&](std::size_t at) {
        Section longest;
        for (const auto& [spelling, id] : tokens)
            if (spelling.size() > longest.text.size() &&
                text.compare(at, spelling.size(), spelling) == 0)
                longest = {spelling, id};
        return longest;
    };
    std::vector<Section> sections;
    std::string between;
    const auto end_between = [&] {
        if (!between.empty()) sections.push_back({std::exchange(between, "")});
    };
    for (std::size_t at = 0; at < text.size();) {
        const Section token = token_at(at);
        if (token.added < 0) {
            between += text[at++];
            continue;
        }
        end_between();
        sections.push_back(token);
        at += token.text.size();
    }
    end_between();
    return sections;
}

std::vector<std::vector<std::string>> Tokenizer::stages(const std::string& text,
                                                        bool at_start) const {
    std::vector<std::vector<std::string>> stages = {{text}};
    for (const Step& step : steps) {
        const std::vector<std::string> words = stages.back();
        stages.emplace_back();
        for (std::size_t i = 0; i < words.size(); ++i)
            for (const std::string& part : step.apply(words[i], at_start && i == 0))
                stages.back().push_back(part);
    }
    return stages;
}

std::vector<Id> Tokenizer::encode_word(const std::string& word) const {
    if (const auto added_word = added_words.find(word); added_word != added_words.end())
        return {added_word->second};
    if (const auto whole = ids.find(word); whole_words_first && whole != ids.end())
        return {whole->second};

    // Begin with characters. Those without a token become bytes, or the unknown token.
    std::vector<Id> tokens;
    bool after_unknown = false;
    for (const std::string& character : characters(word)) {
        const std::vector<Id> known = ids_of_character(character);
        if (known.empty()) {
            if (unknown < 0) throw TextError("there is no token for '" + character + "'");
            if (!(after_unknown && fuse_unknown)) tokens.push_back(unknown);
        }
        after_unknown = known.empty();
        tokens.insert(tokens.end(), known.begin(), known.end());
    }
    return join_pairs(tokens, merges);
}

std::vector<Id> Tokenizer::ids_of_character(const std::string& character) const {
    if (const auto known = ids.find(character); known != ids.end()) return {known->second};
    if (!byte_fallback) return {};
    std::vector<Id> bytes;
    for (const char byte : character) {
        const auto known = ids.find(byte_name(static_cast<unsigned char>(byte)));
        if (known == ids.end()) return {};
        bytes.push_back(known->second);
    }
    return bytes;
}

std::vector<Id> Tokenizer::encode(const std::string& text) const {
    if (text.empty() && start.empty() && start_of_nothing >= 0) return {start_of_nothing};
    characters(text);  // not UTF-8? Then say so before anything is cut.
    std::vector<Id> tokens = start;
    bool at_start = true;
    for (const Section& section : cut_out(added, text)) {
        if (section.added >= 0) {
            tokens.push_back(section.added);
        } else {
            const std::vector<std::string> words = stages(section.text, at_start).back();
            for (const std::string& word : words)
                for (const Id id : encode_word(word)) tokens.push_back(id);
        }
        at_start = false;
    }
    return tokens;
}

std::string Tokenizer::decode(const std::vector<Id>& token_ids) const {
    std::string text;
    for (const Id id : token_ids)
        if (!silent.contains(id) && id >= 0 && static_cast<std::size_t>(id) < pieces.size())
            text += pieces[static_cast<std::size_t>(id)];
    if (drops_first_space && text.starts_with(' ')) text.erase(0, 1);
    return text;
}

Tokenizer bytes_as_tokens() {
    Tokenizer tokenizer;
    tokenizer.pieces = {"<unk>", "<s>", "</s>"};
    for (int byte = 0; byte < 256; ++byte) {
        tokenizer.ids[byte_name(static_cast<unsigned char>(byte))] = byte + 3;
        tokenizer.pieces.push_back(std::string(1, static_cast<char>(byte)));
    }
    tokenizer.byte_fallback = true;
    tokenizer.start = {1};
    tokenizer.ends = {1, 2};
    tokenizer.silent = {1, 2};
    return tokenizer;
}

}  // namespace llm
