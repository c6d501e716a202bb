#include "chapters/10_tokenizer/tokenizer_json.hpp"

#include <cmath>
#include <cstring>

#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"

namespace llm {

// Letters, digits and punctuation apart, each with the space before it; English endings apart,
// too. Of several spaces the last one goes with the word, the others (\s+ that no word follows)
// stay behind. Source: openai/gpt-2, encoder.py.
const std::string word_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using Words = std::vector<std::string>;

// Cuts a word into what the pattern matches and, if wanted, what lies between.
Words cut(const std::string& word, const Pattern& pattern, bool keep_gaps) {
    Words parts;
    std::size_t at = 0;
    for (const auto& [begin, end] : pattern.matches(word)) {
        if (keep_gaps && begin > at) parts.push_back(word.substr(at, begin - at));
        parts.push_back(word.substr(begin, end - begin));
        at = end;
    }
    if (keep_gaps && at < word.size()) parts.push_back(word.substr(at));
    return parts;
}

Step cutting(const std::string& name, const std::string& expression, bool keep_gaps = true) {
    return {name, [pattern = Pattern(expression), keep_gaps](const std::string& word, bool) {
                return cut(word, pattern, keep_gaps);
            }};
}

// A step that makes one word of a word.
template <class F>
Step changing(const std::string& name, F change) {
    return {name, [change](const std::string& word, bool at_start) {
                return Words{change(word, at_start)};
            }};
}

bool says(const JsonFile& json, const std::string& key, bool otherwise) {
    return json.has(key) ? json.boolean(key) : otherwise;
}

// <0x41> stands for the byte 0x41, not for these six characters.
void spell_bytes(Tokenizer& tokenizer) {
    for (int byte = 0; byte < 256; ++byte) {
        const auto id = tokenizer.ids.find(byte_name(static_cast<unsigned char>(byte)));
        if (id != tokenizer.ids.end())
            tokenizer.pieces[static_cast<std::size_t>(id->second)] = static_cast<char>(byte);
    }
}

// Reads a tokenizer.json, part by part.
class HuggingFace {
 public:
    HuggingFace(const std::string& path, std::size_t vocab_size)
        : json_(path), vocab_size_(vocab_size) {}

    Tokenizer read() {
        read_vocabulary(json_.object("model"));
        for_each(json_, "normalizer", "normalizers", &HuggingFace::read_normalizer);
        place_added_tokens();
        for_each(json_, "pre_tokenizer", "pretokenizers", &HuggingFace::read_pre_tokenizer);
        for_each(json_, "post_processor", "processors", &HuggingFace::read_post_processor);
        if (!json_.has("decoder")) json_.refuse("a tokenizer without decoder is not supported");
        for_each(json_, "decoder", "decoders", &HuggingFace::read_decoder);
        return std::move(tokenizer_);
    }

 private:
    JsonFile json_;
    std::size_t vocab_size_;
    Tokenizer tokenizer_;
    std::vector<std::pair<std::string, Id>> normalized_;  // added tokens that are found later
    bool fused_ = false;  // has the decoder put all pieces together?

    // One part, or each part of a "Sequence".
    void for_each(const JsonFile& json, const std::string& key, const std::string& list,
                  void (HuggingFace::*read_one)(const JsonFile&, const std::string&)) {
        if (!json.has(key)) return;
        const JsonFile part = json.object(key);
        if (part.text("type") != "Sequence") return (this->*read_one)(part, part.text("type"));
        for (const JsonFile& element : part.objects(list))
            (this->*read_one)(element, element.text("type"));
    }

    [[noreturn]] static void refuse(const JsonFile& json, const std::string& what) {
        json.refuse(what + " is not supported");
    }

    Id id_of(const JsonFile& json, const std::string& spelling) const {
        const auto found = tokenizer_.ids.find(spelling);
        if (found == tokenizer_.ids.end()) json.refuse("there is no token " + spelling);
        return found->second;
    }

    void add(const std::string& spelling, Id id) {
        if (static_cast<std::size_t>(id) >= vocab_size_)
            json_.refuse("token " + spelling + " has the id " + to_text(id) +
                         ", the model knows " + to_text(vocab_size_) + " tokens");
        tokenizer_.ids[spelling] = id;
        tokenizer_.pieces[static_cast<std::size_t>(id)] = spelling;
    }

    // The pattern of a Split or Replace, which must be of this kind: "String" or "Regex".
    static std::string pattern(const JsonFile& json, const std::string& kind) {
        if (!json.has("pattern." + kind)) refuse(json, "a pattern that is no " + kind);
        const std::string text = json.text("pattern." + kind);
        if (text.empty()) json.refuse("pattern." + kind + " must not be empty");
        return text;
    }

    void read_vocabulary(const JsonFile& model) {
        const std::string type = model.has("type") ? model.text("type") : "BPE";
        if (type != "BPE") refuse(model, "type " + type);
        if (model.has("dropout") && model.number("dropout") > 0) refuse(model, "dropout");
        for (const std::string key : {"continuing_subword_prefix", "end_of_word_suffix"})
            if (model.has(key) && !model.text(key).empty()) refuse(model, key);

        tokenizer_.pieces.resize(vocab_size_);
        for (const auto& [spelling, id] : model.ids_by_name("vocab")) add(spelling, id);
        read_merges(model);
        read_added_tokens();
        if (model.has("unk_token")) tokenizer_.unknown = id_of(model, model.text("unk_token"));
        tokenizer_.fuse_unknown = says(model, "fuse_unk", false);
        tokenizer_.byte_fallback = says(model, "byte_fallback", false);
        tokenizer_.whole_words_first = says(model, "ignore_merges", false);
    }

    // Each is "a b" or, newer, ["a", "b"]. The first has rank 0. A pair that is named twice has
    // the later one, as in Hugging Face's library.
    void read_merges(const JsonFile& model) {
        double rank = 0;
        for (Words pair : model.text_lists("merges")) {
            if (pair.size() == 1) {
                const std::string both = pair[0];
                const std::size_t space = both.find(' ');
                if (space != both.npos) pair = {both.substr(0, space), both.substr(space + 1)};
            }
            if (pair.size() != 2) model.refuse("a merge must name two tokens");
            const Id joined = id_of(model, pair[0] + pair[1]);
            tokenizer_.merges[{id_of(model, pair[0]), id_of(model, pair[1])}] = {rank++,
                                                                                 joined};
        }
    }

    void read_added_tokens() {
        if (!json_.has("added_tokens")) return;
        for (const JsonFile& token : json_.objects("added_tokens")) {
            const std::string spelling = token.text("content");
            const auto ids = token.ids("id");
            if (spelling.empty() || ids.size() != 1) token.refuse("needs a content and an id");
            for (const std::string key : {"lstrip", "rstrip", "single_word"})
                if (says(token, key, false)) refuse(token, key);
            add(spelling, ids[0]);
            auto& where = says(token, "normalized", false) ? normalized_ : tokenizer_.added;
            where.emplace_back(spelling, ids[0]);
            if (says(token, "special", false)) tokenizer_.silent.insert(ids[0]);
        }
    }

    // Normalized tokens are found in the normalized text, spelled as it spells them: with Llama
    // 2's ▁ in front, "<s>" is found at the beginning and "a<s>" is not.
    void place_added_tokens() {
        std::vector<std::pair<std::string, Id>> changed;
        for (const auto& [spelling, id] : normalized_) {
            const std::string found_as = tokenizer_.stages(spelling, true).back().at(0);
            if (found_as == spelling) {
                tokenizer_.added.emplace_back(spelling, id);
            } else {
                changed.emplace_back(found_as, id);
                tokenizer_.added_words[found_as] = id;
            }
        }
        if (changed.empty()) return;
        if (json_.has("pre_tokenizer"))
            refuse(json_, "a normalized token with a pre_tokenizer");
        tokenizer_.steps.push_back({"added_tokens", [changed](const std::string& word, bool) {
                                        Words parts;
                                        for (const Section& part : cut_out(changed, word))
                                            parts.push_back(part.text);
                                        return parts;
                                    }});
    }

    void read_normalizer(const JsonFile& json, const std::string& type) {
        if (type == "NFC") {
            tokenizer_.steps.push_back(
                changing(type, [](const std::string& word, bool) { return composed(word); }));
        } else if (type == "Prepend") {
            tokenizer_.steps.push_back(
                changing(type, [prefix = json.text("prepend")](const std::string& word, bool) {
                    return word.empty() ? word : prefix + word;
                }));
        } else if (type == "Replace") {
            const std::string part = pattern(json, "String");
            tokenizer_.steps.push_back(changing(
                type, [part, content = json.text("content")](const std::string& word, bool) {
                    return replaced(word, part, content);
                }));
        } else {
            refuse(json, "type " + type);
        }
    }

    void read_pre_tokenizer(const JsonFile& json, const std::string& type) {
        if (type == "ByteLevel") {
            read_byte_level(json);
        } else if (type == "Digits") {
            const bool single = says(json, "individual_digits", false);
            tokenizer_.steps.push_back(cutting(type, single ? R"(\p{N})" : R"(\p{N}+)"));
        } else if (type == "Split") {
            const std::string behavior = json.text("behavior");
            const bool invert = says(json, "invert", false);
            const bool only_matches = behavior == "Removed" && invert;
            if (behavior != "Isolated" && !only_matches)
                refuse(json, "behavior " + behavior + (invert ? ", inverted," : ""));
            tokenizer_.steps.push_back(cutting(type, pattern(json, "Regex"), !only_matches));
        } else if (type == "Metaspace") {
            read_metaspace(json);
        } else {
            refuse(json, "type " + type);
        }
    }

    // The text as bytes, each written as a character.
    void read_byte_level(const JsonFile& json) {
        if (says(json, "add_prefix_space", true))
            tokenizer_.steps.push_back(changing("prefix", [](const std::string& word, bool) {
                return word.starts_with(' ') ? word : " " + word;
            }));
        if (says(json, "use_regex", true))
            tokenizer_.steps.push_back(cutting("split", word_pattern));
        tokenizer_.steps.push_back(changing("ByteLevel", [](const std::string& word, bool) {
            std::string spelled;
            for (const char byte : word)
                spelled += byte_alphabet(static_cast<unsigned char>(byte));
            return spelled;
        }));
    }

    // Spaces as ▁, and one in front of the text.
    void read_metaspace(const JsonFile& json) {
        const std::string mark = json.text("replacement");
        if (mark.empty()) json.refuse("replacement must not be empty");
        const std::string scheme = json.has("prepend_scheme") ? json.text("prepend_scheme")
                                   : says(json, "add_prefix_space", true) ? "always"
                                                                          : "never";
        if (scheme != "always" && scheme != "first" && scheme != "never")
            refuse(json, "prepend_scheme " + scheme);
        tokenizer_.steps.push_back(
            changing("Metaspace", [mark, scheme](const std::string& word, bool at_start) {
                const std::string marked = replaced(word, " ", mark);
                const bool wanted = scheme == "always" || (scheme == "first" && at_start);
                return wanted && !marked.starts_with(mark) ? mark + marked : marked;
            }));
        if (says(json, "split", true))
            tokenizer_.steps.push_back({"split", [mark](const std::string& word, bool) {
                                            Words parts;
                                            for (std::size_t at = 0; at < word.size();) {
                                                const std::size_t next = std::min(
                                                    word.find(mark, at + 1), word.size());
                                                parts.push_back(word.substr(at, next - at));
                                                at = next;
                                            }
                                            return parts;
                                        }});
    }

    // Which tokens stand in front of every text.
    void read_post_processor(const JsonFile& json, const std::string& type) {
        if (type == "ByteLevel") return;
        if (type != "TemplateProcessing") refuse(json, "type " + type);
        bool behind = false;
        for (const JsonFile& part : json.objects("single")) {
            if (!part.has("SpecialToken")) {
                behind = true;
            } else if (behind) {
                refuse(part, "a token behind the text");
            } else {
                tokenizer_.start.push_back(id_of(part, part.text("SpecialToken.id")));
            }
        }
    }

    // What becomes of the spellings when they are put together.
    void read_decoder(const JsonFile& json, const std::string& type) {
        if (type == "ByteLevel") {
            std::unordered_map<std::string, char> bytes;
            for (int byte = 0; byte < 256; ++byte)
                bytes[byte_alphabet(static_cast<unsigned char>(byte))] =
                    static_cast<char>(byte);
            for (std::string& piece : tokenizer_.pieces) piece = from_bytes(piece, bytes);
        } else if (type == "ByteFallback") {
            spell_bytes(tokenizer_);
        } else if (type == "Fuse") {
            fused_ = true;
        } else if (type == "Replace") {
            const std::string part = pattern(json, "String");
            for (std::string& piece : tokenizer_.pieces)
                piece = replaced(piece, part, json.text("content"));
        } else if (type == "Strip") {
            if (json.text("content") != " " || json.number("start") != 1 ||
                json.number("stop") != 0 || !fused_)
                refuse(json, "this Strip");
            tokenizer_.drops_first_space = true;
        } else {
            refuse(json, "type " + type);
        }
    }

    // A spelling with a character outside the alphabet is an added token, and stays.
    static std::string from_bytes(const std::string& piece,
                                  const std::unordered_map<std::string, char>& bytes) {
        std::string result;
        for (const std::string& character : characters(piece)) {
            const auto byte = bytes.find(character);
            if (byte == bytes.end()) return piece;
            result += byte->second;
        }
        return result;
    }
};

// Which tokens begin and end a text, as the files beside tokenizer.json say.
void read_ends(const std::string& folder, Tokenizer& tokenizer) {
    for (const std::string name : {"/config.json", "/generation_config.json"}) {
        if (!is_file(folder + name)) continue;
        const JsonFile json(folder + name);
        if (json.has("bos_token_id") && !json.ids("bos_token_id").empty())
            tokenizer.start_of_nothing = json.ids("bos_token_id")[0];
        if (json.has("eos_token_id")) tokenizer.ends = json.ids("eos_token_id");
    }
}

// Reads what a llama2.c file holds behind the length of its longest piece: for each token a
// score, a length and its bytes, with spaces where SentencePiece has ▁. Returns the scores.
std::vector<double> read_pieces(const std::string& path, std::size_t vocab_size,
                                Tokenizer& tokenizer) {
    const MappedFile file(path);
    std::size_t at = sizeof(std::int32_t);
    const auto next = [&](auto number) {
        if (file.bytes().size() < at + sizeof number)
            throw FileError(path + ": too short for a llama2.c tokenizer of " +
                            to_text(vocab_size) + " tokens");
        std::memcpy(&number, file.bytes().data() + at, sizeof number);
        at += sizeof number;
        return number;
    };
    std::vector<double> scores;
    while (scores.size() < vocab_size) {
        const double score = double(next(float()));
        const auto length = static_cast<std::size_t>(next(std::int32_t()));
        if (length > 512 || length > file.bytes().size() - at || !std::isfinite(score))
            throw FileError(path + ": token " + to_text(scores.size()) +
                            " is damaged: not a llama2.c tokenizer");
        const auto* bytes = reinterpret_cast<const char*>(file.bytes().data() + at);
        tokenizer.pieces.emplace_back(bytes, length);
        tokenizer.ids.emplace(tokenizer.pieces.back(), static_cast<Id>(scores.size()));
        scores.push_back(score);
        at += length;
    }
    if (at != file.bytes().size())
        throw FileError(path + ": more than " + to_text(vocab_size) + " tokens");
    return scores;
}

// llama2.c has no list of merges: two pieces may be joined if what they make is a piece, and
// the one with the highest score goes first.
Merges merges_of(const std::unordered_map<std::string, Id>& ids,
                 const std::vector<double>& scores) {
    Merges merges;
    for (const auto& [piece, joined] : ids)
        for (std::size_t middle = 1; middle < piece.size(); ++middle) {
            const auto left = ids.find(piece.substr(0, middle));
            const auto right = ids.find(piece.substr(middle));
            if (left != ids.end() && right != ids.end())
                merges[{left->second, right->second}] = {
                    -scores[static_cast<std::size_t>(joined)], joined};
        }
    return merges;
}

Tokenizer load_llama2c(const std::string& path, std::size_t vocab_size) {
    Tokenizer tokenizer;
    const std::vector<double> scores = read_pieces(path, vocab_size, tokenizer);
    tokenizer.merges = merges_of(tokenizer.ids, scores);
    spell_bytes(tokenizer);
    tokenizer.steps.push_back(
        changing("prefix", [](const std::string& word, bool) { return " " + word; }));
    tokenizer.byte_fallback = true;
    tokenizer.unknown = 0;
    tokenizer.start = {1};
    tokenizer.ends = {1, 2};
    tokenizer.silent = {1, 2};
    tokenizer.drops_first_space = true;
    return tokenizer;
}

}  // namespace

Step cut_into_words() { return cutting("Split", word_pattern); }

Tokenizer load_tokenizer(const std::string& path, std::size_t vocab_size) try {
    if (!path.ends_with(".json")) return load_llama2c(path, vocab_size);
    Tokenizer tokenizer = HuggingFace(path, vocab_size).read();
    const std::size_t slash = path.rfind('/');
    read_ends(slash == path.npos ? "." : path.substr(0, slash), tokenizer);
    return tokenizer;
} catch (const TextError& error) {
    throw FileError(path + ": " + error.what());
}

std::string tokenizer_beside(const std::string& model_path, std::size_t vocab_size) {
    if (is_folder(model_path)) return model_path + "/tokenizer.json";
    const std::size_t slash = model_path.rfind('/');
    const std::string folder = slash == model_path.npos ? "" : model_path.substr(0, slash + 1);
    for (const std::string& name :
         {"tok" + to_text(vocab_size) + ".bin", std::string("tokenizer.bin")})
        if (is_file(folder + name)) return folder + name;
    throw FileError(model_path + ": there is neither tok" + to_text(vocab_size) +
                    ".bin nor tokenizer.bin beside it; --tokenizer names another file");
}

}  // namespace llm
