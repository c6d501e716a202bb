// What the mains of tests and exercises share: a doctest reporter that describes the first
// failure of a test case in a few lines: the INFO messages, what was expected, what came, and
// where.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "common/system/processor.hpp"

namespace llm {

// Whether the processor lacks an extension that this program was compiled for; prints which.
inline bool lacks_compiled_extensions() {
    try {
        require_compiled_extensions();
        return false;
    } catch (const std::runtime_error& error) {
        std::cerr << error.what() << '\n';
        return true;
    }
}

using Lines = std::vector<std::string>;

inline Lines split_lines(const std::string& text) {
    Lines lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

// One line of at most 400 characters.
inline std::string one_line(std::string text) {
    for (std::size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 2)
        text.replace(at, 1, "\\n");
    return text.size() <= 400 ? text : text.substr(0, 400) + "...";
}

// Replaces sizes such as 18446744073709551607, which is -9 converted to an unsigned type.
inline std::string with_signed_sizes(std::string text) {
    for (std::size_t at = 0; (at = text.find("1844674407370955", at)) != text.npos; ++at) {
        const std::size_t count = text.find_first_not_of("0123456789", at) - at;
        const std::string digits = text.substr(at, count);
        if (digits.size() != 20 || digits > "18446744073709551615") continue;
        const auto negative = static_cast<std::int64_t>(std::stoull(digits));
        text.replace(at, 20, std::to_string(negative) + " as an unsigned number");
    }
    return text;
}

// Prints lines with an indentation of 4, and of 6 where they continue after column 80.
inline void print_indented(const Lines& lines) {
    for (const std::string& line : lines) {
        std::size_t column = 0;
        std::istringstream words(line);
        for (std::string word; std::getline(words, word, ' ');) {
            const auto width = static_cast<std::size_t>(std::count_if(
                word.begin(), word.end(), [](char c) { return (c & 0xC0) != 0x80; }));
            const bool fits = column + 1 + width <= 80;
            if (column == 0 || !fits) std::cout << (column == 0 ? "    " : "\n      ");
            if (column != 0 && fits) std::cout << ' ';
            column = column == 0 ? 4 + width : fits ? column + 1 + width : 6 + width;
            std::cout << word;
        }
        std::cout << '\n';
    }
}

struct Comparison {
    std::string left, op, right;
};

// Splits "f(a == b) <= c" at the first comparison outside of parentheses and strings.
inline std::optional<Comparison> split_comparison(const std::string& code) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < code.size(); ++i) {
        if (code[i] == '"' && (i == 0 || code[i - 1] != '\\')) quoted = !quoted;
        if (quoted) continue;
        depth += int{std::strchr("([{", code[i]) != nullptr};
        depth -= int{std::strchr(")]}", code[i]) != nullptr};
        if (depth != 0 || code[i] != ' ') continue;
        for (const std::string op : {"==", "!=", "<=", ">=", "<", ">"})
            if (code.compare(i + 1, op.size() + 1, op + " ") == 0)
                return Comparison{code.substr(0, i), op, code.substr(i + op.size() + 2)};
    }
    return {};
}

// Splits the values of a comparison: doctest writes "2 == Approx( 3 )" or "2 >  3".
inline std::optional<Comparison> split_values(const std::string& values,
                                              const std::string& op) {
    const std::string separator = " " + op + " ";
    const std::size_t at = values.find(separator);
    if (at == values.npos || values.find(separator, at + 1) != values.npos) return {};
    std::string right = values.substr(at + separator.size());
    right.erase(0, right.find_first_not_of(' '));
    if (right.starts_with("Approx( ") && right.ends_with(" )"))
        right = right.substr(8, right.size() - 10);
    return Comparison{values.substr(0, at), op, right};
}

// "got 2, expected 3". Long values get a line each, from just before their first difference.
inline Lines got_and_expected(std::string got, std::string expected) {
    const auto shared = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
    const auto first = static_cast<std::size_t>(shared.first - got.begin());
    for (std::string* text : {&got, &expected})
        if (first > 100 && text->size() > 200) *text = "..." + text->substr(first - 40);
    got = one_line(got), expected = one_line(expected);
    if (got.size() + expected.size() < 60) return {"got " + got + ", expected " + expected};
    return {"got      " + got, "expected " + expected};
}

constexpr int throws = doctest::assertType::is_throws | doctest::assertType::is_throws_as |
                       doctest::assertType::is_throws_with;

inline Lines describe_exception(const doctest::AssertData& assertion) {
    const std::string text = assertion.m_exception_string.c_str();
    std::string expected = assertion.m_exception_type;
    if (expected.empty()) expected = "an exception";
    if (!text.empty()) expected += " \"" + text + "\"";
    if (!(assertion.m_at & throws)) expected = "no exception";
    const std::string got = assertion.m_threw ? assertion.m_exception.c_str() : "no exception";
    return got_and_expected(got, expected);
}

// The code of a CHECK or REQUIRE, what came and what was expected.
inline Lines describe(const doctest::AssertData& assertion) {
    const std::string code = assertion.m_expr, values = assertion.m_decomp.c_str();
    const auto compared = split_comparison(code);
    const auto numbers = compared ? split_values(values, compared->op) : std::nullopt;
    Lines lines{one_line(code)}, outcome;
    if (assertion.m_threw || assertion.m_at & (throws | doctest::assertType::is_nothrow)) {
        outcome = describe_exception(assertion);
    } else if (!numbers || (assertion.m_failed && values.find("{?}") != values.npos)) {
        const bool expected = !(assertion.m_at & doctest::assertType::is_false);
        outcome = {expected ? "got false, expected true" : "got true, expected false"};
    } else {
        lines[0] = one_line(compared->left);
        const std::string relation = compared->op == "==" ? "" : compared->op + " ";
        outcome = got_and_expected(numbers->left, relation + numbers->right);
    }
    lines.insert(lines.end(), outcome.begin(), outcome.end());
    return lines;
}

// Keeps the first failure of each test case. What is done with it is up to derived classes.
class FailureReporter : public doctest::IReporter {
 public:
    explicit FailureReporter(const doctest::ContextOptions& options) : options_(options) {}

    void test_case_start(const doctest::TestCaseData& test) override {
        title_ = test.m_name;
        num_failures_ = 0;
        is_skipped_ = false;
        failure_.clear();
        place_ = place(test.m_file.c_str(), static_cast<int>(test.m_line));
    }

    void log_assert(const doctest::AssertData& assertion) override {
        const std::lock_guard lock(mutex_);
        if (assertion.m_failed)
            fail(place(assertion.m_file, assertion.m_line), describe(assertion));
        else if (options_.success)  // check_exercises.py reads the messages of all assertions
            print_indented(with_context(describe(assertion)));
    }

    void log_message(const doctest::MessageData& message) override {
        const std::lock_guard lock(mutex_);
        const std::string where = place(message.m_file, message.m_line);
        if (message.m_severity != doctest::assertType::is_warn) {
            fail(where, split_lines(message.m_string.c_str()));
            return;
        }
        const std::string_view text = message.m_string.c_str();
        is_skipped_ = is_skipped_ || text.starts_with("skipped: ");
        std::cout << where << ": MESSAGE: " << text << '\n';
    }

    void test_case_exception(const doctest::TestCaseException& exception) override {
        const std::string how = exception.is_crash ? "it crashed: " : "it threw: ";
        Lines lines;  // the INFO messages at the throw
        for (int i = 0; i < get_num_stringified_contexts(); ++i)
            lines.emplace_back(get_stringified_contexts()[i].c_str());
        lines.push_back(how + one_line(exception.error_string.c_str()));
        fail(place_, lines);
    }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}

 protected:
    std::string title_, place_;
    Lines failure_;  // of the first failure
    int num_failures_ = 0;
    bool is_skipped_ = false;  // it said so with MESSAGE("skipped: ...")

 private:
    // "tests/chapters/05_gqa/gqa.cpp:12"
    static std::string place(std::string file, int line) {
        const std::size_t at = file.rfind("/tests/");
        if (at != file.npos) file.erase(0, at + 1);
        return file + ":" + std::to_string(line);
    }

    static Lines with_context(const Lines& lines) {
        Lines all;
        for (int i = 0; i < get_num_active_contexts(); ++i) {
            std::ostringstream stream;
            get_active_contexts()[i]->stringify(&stream);
            all.push_back(stream.str());
        }
        all.insert(all.end(), lines.begin(), lines.end());
        for (std::string& line : all) line = with_signed_sizes(line);
        return all;
    }

    void fail(const std::string& where, const Lines& lines) {
        if (++num_failures_ > 1) return;
        place_ = where;
        failure_ = with_context(lines);
        if (failure_.size() > 6) failure_.erase(failure_.begin(), failure_.end() - 6);
    }

    const doctest::ContextOptions& options_;
    std::mutex mutex_;
};

}  // namespace llm
