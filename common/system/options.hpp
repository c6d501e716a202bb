// The command line of a chapter program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace llm {

// Every program has the options --help, --seed, --plots, --save, --step, --only, --quiet and
// --json, and those it adds.
class Options {
 public:
    // The chapter's slug, such as "01_masking", and the question that it answers.
    Options(std::string slug, std::string question);
    ~Options();

    // Adds a size with its name in Hugging Face's config.json, with dashes: "--hidden-size".
    // Its help text and its limits are defined in options.cpp.
    void size(const std::string& name, std::size_t& value);

    // Adds the sizes of a demo: those of the input, and those of a config with these fields.
    template <class Config>
    void sizes(std::size_t& batch_size, std::size_t& seq_len, Config& config) {
        size("--batch-size", batch_size);
        size("--seq-len", seq_len);
        size("--hidden-size", config.hidden_size);
        size("--num-attention-heads", config.num_attention_heads);
        size("--num-key-value-heads", config.num_key_value_heads);
        size("--head-dim", config.head_dim);
        size("--max-position-embeddings", config.max_position_embeddings);
    }

    // Adds a path, a list of ids such as "1,334" (0 to 2^31 - 1, at most 4096 of them), several
    // such lists, "1,334;2", or a writable folder, which is created if it does not exist.
    void path(const std::string& name, std::string& value, const std::string& help);
    void ids(const std::string& name, std::vector<std::int64_t>& value,
             const std::string& help);
    void id_lists(const std::string& name, std::vector<std::vector<std::int64_t>>& value,
                  const std::string& help);
    void folder(const std::string& name, std::string& value, const std::string& help);

    // Adds a text (UTF-8, at most 16384 bytes), an integer or a real number within limits.
    void text(const std::string& name, std::string& value, const std::string& help);
    void list(const std::string& name, std::vector<std::string>& value,
              const std::string& help);  // texts between commas; may be given several times
    void repeated(const std::string& name, std::vector<std::string>& values,
                  const std::string& help);  // a text; may be given several times
    void count(const std::string& name, std::size_t& value, std::int64_t low, std::int64_t high,
               const std::string& help);
    void number(const std::string& name, float& value, double low, double high,
                const std::string& help);

    // Adds one of several words, such as the name of an activation function.
    void choice(const std::string& name, std::string& value,
                const std::vector<std::string>& choices, const std::string& help);

    // Adds as many texts as there are placeholders, which --help shows: --diff A B.
    void texts(const std::string& name, std::vector<std::string>& value,
               const std::vector<std::string>& placeholders, const std::string& help);

    // Adds a flag, which is true if it is given.
    void flag(const std::string& name, bool& value, const std::string& help);

    // Declares that the first option requires the second; without it the run ends with an
    // error.
    void needs(const std::string& name, const std::string& other);

    // Declares that another command has this option now, with or without a value. The run ends
    // with an error that names the command.
    void moved(const std::string& name, const std::string& command);

    // Declares that another process writes the files of this run: no folder is created.
    void create_no_folders();

    // Parses the command line, runs the program and draws the figures. Returns the exit code:
    // 0, or 2 after printing one line on standard error that says what is wrong. With --only
    // and --quiet, figures are drawn only if --plots is given; with --json they are not drawn.
    int run(int argc, char** argv, const std::function<void()>& program);

    std::uint32_t seed() const;                 // --seed, 77 unless given
    bool given(const std::string& name) const;  // whether the command line has this option

 private:
    struct Parser;
    std::unique_ptr<Parser> parser_;
};

}  // namespace llm
