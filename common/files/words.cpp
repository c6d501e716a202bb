#include "common/files/words.hpp"

#include <fstream>

#include "common/files/safetensors.hpp"
#include "common/files/unicode.hpp"

namespace llm {

std::string Words::count() const {
    return tokens.size() == 5 ? "Five words" : to_text(tokens.size()) + " tokens";
}

void check_word_count(std::size_t num_tokens) {
    require(num_tokens >= 2 && num_tokens <= 16, "words: 2 to 16 tokens can be shown, not {}",
            num_tokens);
}

Words load_words() { return load_words(asset("words")); }

Words load_words(const std::filesystem::path& folder) {
    Words words;
    for (const std::string& line : lines_of(read_text(folder / "tokens.txt")))
        words.tokens.push_back(escaped(line));
    check_word_count(words.tokens.size());

    const SafeTensors file(folder / "words.safetensors");
    const std::size_t T = words.tokens.size(), C = 192, L = 4, H = 6, Hkv = 2, D = 32, F = 512;
    words.residual_stream = file.read("residual_stream", {L + 1, T, C});
    words.attention_input = file.read("attention_input", {T, C});
    words.queries = file.read("queries", {T, H * D});
    words.keys = file.read("keys", {T, Hkv * D});
    words.values = file.read("values", {T, Hkv * D});
    words.attentions = file.read("attentions", {H, T, T});
    words.head_query_weight = file.read("head_query_weight", {D, C});
    words.head_queries = file.read("head_queries", {T, D});
    words.head_keys = file.read("head_keys", {T, D});
    words.head_values = file.read("head_values", {T, D});
    words.gate = file.read("gate", {T, F});
    words.up = file.read("up", {T, F});
    return words;
}

void save_words(const std::filesystem::path& folder, const Words& words) {
    std::ofstream lines(folder / "tokens.txt");
    for (const std::string& token : words.tokens) lines << token << '\n';
    if (!lines.flush())
        throw FileError((folder / "tokens.txt").string() + ": cannot be written");
    write_safetensors(
        folder / "words.safetensors",
        {named("residual_stream", words.residual_stream),
         named("attention_input", words.attention_input), named("queries", words.queries),
         named("keys", words.keys), named("values", words.values),
         named("attentions", words.attentions),
         named("head_query_weight", words.head_query_weight),
         named("head_queries", words.head_queries), named("head_keys", words.head_keys),
         named("head_values", words.head_values), named("gate", words.gate),
         named("up", words.up)});
}

}  // namespace llm
