#include "chapters/apps/ask/passages.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "common/files/mapped_file.hpp"
#include "common/files/regex.hpp"
#include "common/files/unicode.hpp"

namespace llm::ask {
namespace {

// Collects the lines of a page: sections, paragraphs of them, passages of these.
struct PageReader {
    std::string page;
    std::size_t max_words;
    std::vector<std::string> headings = {};           // of all levels above this line
    std::map<std::string, std::size_t> anchors = {};  // how often each was seen
    Passage passage = {};
    std::string paragraph = {};
    std::size_t num_words = 0;  // of the passage
    std::vector<Passage> passages = {};

    void end_paragraph() {
        const std::size_t count = split_at_spaces(paragraph).size();
        if (count == 0) return;
        if (num_words > 0 && num_words + count > max_words) end_passage();
        passage.text += (passage.text.empty() ? "" : "\n") + paragraph;
        num_words += count;
        paragraph.clear();
    }
    void end_passage() {
        if (num_words > 0) passages.push_back(passage);
        passage.text.clear();
        num_words = 0;
    }

    void begin_section(std::size_t level, const std::string& title) {
        end_paragraph();
        end_passage();
        headings.resize(level);
        headings.back() = without_markup(title);
        std::string anchor = anchor_of(title);
        if (const std::size_t seen = anchors[anchor]++; seen > 0)
            anchor += "-" + std::to_string(seen);
        passage = {page, anchor, "", ""};
        for (const std::string& heading : headings)
            if (!heading.empty())
                passage.headings += (passage.headings.empty() ? "" : " › ") + heading;
    }

    void add(const std::string& line) {
        // Items of lists and rows of tables are paragraphs of their own.
        const bool is_item = line.starts_with("- ") || line.starts_with("|");
        if (line.empty() || is_item) end_paragraph();
        const std::string text = without_markup(line);
        if (!text.empty()) paragraph += (paragraph.empty() ? "" : " ") + text;
    }
};

// The text without HTML comments and tags.
std::string without_html(const std::string& markdown) {
    static const Pattern html(R"(<!--[\s\S]*?-->|</?(details|summary|br)>)");
    return html.replace_all(markdown, "");
}

std::size_t heading_level(const std::string& line) {
    const std::size_t level = line.find_first_not_of('#');
    return level != std::string::npos && level > 0 && line[level] == ' ' ? level : 0;
}

// A cell of a row that draws the line under the headings of a table.
bool is_rule(const std::string& line) {
    return line.starts_with("|") && line.find_first_not_of("|-: ") == std::string::npos;
}

}  // namespace

std::string anchor_of(const std::string& heading) {
    std::string anchor;
    for (const std::string& letter : characters(without_markup(heading))) {
        const bool is_ascii = letter.size() == 1;
        const char c = letter[0];
        if (is_ascii && c >= 'A' && c <= 'Z')
            anchor += static_cast<char>(c - 'A' + 'a');
        else if (letter == " ")
            anchor += '-';
        else if (letter == "-" || letter == "_" || is_word_before(letter, letter.size()))
            anchor += letter;
    }
    return anchor;
}

std::string without_markup(const std::string& line) {
    static const std::regex image(R"(!\[[^\]]*\]\([^)]*\))"), link(R"(\[([^\]]*)\]\([^)]*\))"),
        cells(R"( *\| *)");
    std::string text = line;
    if (line.find("](") != line.npos)
        text = std::regex_replace(std::regex_replace(text, image, ""), link, "$1");
    text = replaced(replaced(text, "**", ""), "`", "");
    if (line.starts_with("|")) text = std::regex_replace(text, cells, " ");
    if (line.starts_with("> ")) text = text.substr(2);
    return strip(text);
}

std::string first_words(const std::vector<std::string>& words, std::size_t count) {
    std::string text;
    for (std::size_t n = 0; n < count; ++n) text += (n > 0 ? " " : "") + words[n];
    return text;
}

std::string beginning_of(const Passage& passage) {
    constexpr std::size_t most = 14;
    const std::vector<std::string> paragraphs = lines_of(passage.text);
    const auto prose = std::find_if(paragraphs.begin(), paragraphs.end(),
                                    [](const auto& text) { return !text.starts_with("$$"); });
    const std::vector<std::string> words =
        split_at_spaces(prose == paragraphs.end() ? paragraphs.front() : *prose);
    if (words.size() <= most) return first_words(words, words.size());
    return first_words(words, most) + " ...";
}

std::vector<Passage> passages_of(const std::string& page, const std::string& markdown,
                                 std::size_t max_words) {
    PageReader reader{page, max_words};
    bool in_code = false;
    for (const std::string& line : lines_of(without_html(markdown))) {
        if (line.starts_with("```")) {
            in_code = !in_code;
            continue;
        }
        if (in_code || is_rule(line)) continue;
        if (const std::size_t level = heading_level(line); level > 0)
            reader.begin_section(level, strip(line.substr(level)));
        else
            reader.add(line);
    }
    reader.end_paragraph();
    reader.end_passage();
    return reader.passages;
}

std::vector<Passage> read_passages(const std::string& folder) {
    static const std::set<std::string> left_out = {"changelog.md", "contributing.md",
                                                   "index.md"};
    std::vector<Passage> passages;
    for (const std::string& file : files_in(folder)) {
        const std::string page = file.substr(file.rfind('/') + 1);
        if (!page.ends_with(".md") || left_out.count(page) > 0) continue;
        for (const Passage& passage : passages_of(page, read_text(file)))
            if (passage.headings.find("› Exercise") == std::string::npos)
                passages.push_back(passage);
    }
    return passages;
}

}  // namespace llm::ask
