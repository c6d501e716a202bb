#include "common/system/options.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "common/files/mapped_file.hpp"
#include "common/output/events.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/output/terminal.hpp"
#include "common/system/blas.hpp"
#include "common/system/option_values.hpp"
#include "common/system/run_program.hpp"

namespace llm {

struct Options::Parser {
    // An option whose text is parsed after the whole command line has been read.
    struct Pending {
        std::string text;
        std::function<void(const std::string&)> parse;
        CLI::Option* option = nullptr;
    };

    struct Requirement {
        std::string name, needed_option;
    };
    struct MovedOption {
        std::string name, new_command;
    };

    CLI::App app;
    std::string slug;
    std::vector<JsonMembers> described;  // for --help --json
    std::vector<std::pair<std::string, std::string*>> written_folders;
    std::vector<Requirement> requirements;
    std::vector<MovedOption> moved;
    std::vector<std::unique_ptr<Pending>> pending;  // CLI11 keeps pointers to the texts
    std::string seed_text = "77", only_text, plots, save;
    std::uint32_t seed = 77;
    PrintOptions printing;
    Folders folders;

    // Reports all errors of the command line before anything is printed or written.
    void parse(int argc, char** argv) {
        app.parse(argc, argv);
        for (const auto& [name, new_command] : moved)
            if (app.count(name) > 0)
                throw UsageError(fmt::format("{} has moved: {}", name, new_command));
        if (const auto rest = app.remaining(); !rest.empty())
            throw UsageError(
                fmt::format("unknown argument '{}'; --help lists the options", rest[0]));
        for (const auto& given : pending)
            if (given->option->count() > 0) given->parse(given->text);
        for (const auto& [name, needed_option] : requirements)
            if (app.count(name) > 0 && app.count(needed_option) == 0)
                throw UsageError(fmt::format("{} needs {}", name, needed_option));
        seed = static_cast<std::uint32_t>(parse_number("--seed", seed_text, 0, 0xFFFFFFFF));
        if (app.count("--only") > 0)
            printing.only = static_cast<std::size_t>(parse_number("--only", only_text, 0, 999));
        for (const auto& [name, folder] : written_folders)
            if (app.count(name) > 0) folders.prepare(name, *folder);
        if (app.count("--save") > 0) folders.prepare("--save", save);
        if (printing.json && printing.stepwise) throw UsageError("--json excludes --step");
        if (printing.json && app.count("--plots") > 0 && plots != "none")
            throw UsageError("--json prints the data of figures and excludes --plots");
        if (app.count("--plots") == 0) {
            if (printing.quiet || printing.only || printing.json)
                plots = "none";
            else
                prepare_default_plots();
        } else if (plots != "none") {
            folders.prepare("--plots", plots);
        }
    }

    CLI::Option& add(const std::string& name, const std::string& help,
                     std::function<void(const std::string&)> parse) {
        pending.push_back(std::make_unique<Pending>(Pending{"", std::move(parse)}));
        pending.back()->option = app.add_option(name, pending.back()->text, help);
        return *pending.back()->option;
    }

    void describe(const std::string& name, const std::string& kind, const std::string& help,
                  const JsonMembers& limits = {}) {
        described.push_back({{"name", name}, {"kind", kind}});
        described.back().insert(described.back().end(), limits.begin(), limits.end());
        if (const std::string text = app.get_option(name)->get_default_str(); !text.empty())
            described.back().emplace_back("default", text);
        described.back().emplace_back("help", help);
    }

    void print_help() const {
        if (!printing.json) std::cout << app.help();
        if (printing.json)
            for (const JsonMembers& option : described) emit("option", option);
    }

    // Draws no figures if the default folder is not writable.
    void prepare_default_plots() try {
        folders.prepare("--plots", plots);
    } catch (const UsageError&) {
        plots = "none";
    }
};

Options::Options(std::string slug, std::string question) : parser_(std::make_unique<Parser>()) {
    CLI::App& app = parser_->app;
    app.description(slug + ": " + question);
    app.name(slug);
    app.allow_extras();
    app.get_formatter()->column_width(36);
    parser_->slug = std::move(slug);
    parser_->plots = fmt::format("{}/{}", LLM_PLOTS_FOLDER, parser_->slug);

    app.add_option("--seed", parser_->seed_text,
                   "seed of the random number generator, 0 to 4294967295")
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--plots", parser_->plots, "folder for the figures; none: no figures")
        ->type_name("DIR")
        ->default_str("build/plots/" + parser_->slug);
    app.add_option("--save", parser_->save,
                   "folder in which each shown tensor is saved as NAME.npy")
        ->type_name("DIR");
    app.add_flag("--step", parser_->printing.stepwise,
                 "wait for Enter before each step and after each screenful");
    app.add_option("--only", parser_->only_text,
                   "print only step N, without figures; 0: list the steps")
        ->type_name("N");
    app.add_flag("--quiet", parser_->printing.quiet,
                 "print only generated text, without figures");
    app.add_flag("--json", parser_->printing.json,
                 "print each step, tensor, table and figure as a line of JSON");
    parser_->describe("--seed", "integer", "seed of the random number generator",
                      {{"low", 0.0}, {"high", 4294967295.0}});
}

Options::~Options() = default;

void Options::size(const std::string& name, std::size_t& value) {
    const ConfigOption& field = known_fields.at(name);
    count(name, value, field.low, field.high, field.help);
}

void Options::count(const std::string& name, std::size_t& value, std::int64_t low,
                    std::int64_t high, const std::string& help) {
    CLI::Option& option =
        parser_->add(name, fmt::format("{}, {} to {}", help, low, high),
                     [&value, name, low, high](const std::string& text) {
                         value = static_cast<std::size_t>(parse_number(name, text, low, high));
                     });
    option.type_name("N");
    if (value != 0 || low == 0) option.default_str(std::to_string(value));
    parser_->describe(name, "integer", help, {{"low", double(low)}, {"high", double(high)}});
}

void Options::number(const std::string& name, float& value, double low, double high,
                     const std::string& help) {
    parser_
        ->add(name, fmt::format("{}, {} to {}", help, low, high),
              [&value, name, low, high](const std::string& text) {
                  value = parse_real(name, text, low, high);
              })
        .type_name("X")
        ->default_str(fmt::format("{}", value));
    parser_->describe(name, "number", help, {{"low", low}, {"high", high}});
}

void Options::text(const std::string& name, std::string& value, const std::string& help) {
    const auto take = [&value, name](const auto& text) { value = parse_text(name, text); };
    parser_->add(name, help, take).type_name("TEXT");
    parser_->describe(name, "text", help);
}

void Options::list(const std::string& name, std::vector<std::string>& value,
                   const std::string& help) {
    parser_->add(name, help, [&value](const std::string& text) { value = split_list(text); })
        .type_name("TEXT,...")
        ->join(',');
    parser_->describe(name, "text", help);
}

void Options::repeated(const std::string& name, std::vector<std::string>& values,
                       const std::string& help) {
    using Texts = std::vector<std::string>;
    const auto take = [&values, name](const Texts& texts) {
        for (const std::string& text : texts) values.push_back(parse_text(name, text));
    };
    CLI::Option* const option = parser_->app.add_option_function<Texts>(name, take, help);
    option->type_name("TEXT")->expected(-1)->allow_extra_args(false);
    parser_->describe(name, "text", help);
}

void Options::path(const std::string& name, std::string& value, const std::string& help) {
    parser_->app.add_option(name, value, help)->type_name("PATH");
    parser_->describe(name, "path", help);
}

void Options::ids(const std::string& name, std::vector<std::int64_t>& value,
                  const std::string& help) {
    parser_
        ->add(name, help,
              [&value, name](const std::string& text) { value = parse_ids(name, text); })
        .type_name("ID,ID,...")
        ->default_str(fmt::format("{}", fmt::join(value, ",")));
    parser_->describe(name, "ids", help);
}

void Options::id_lists(const std::string& name, std::vector<std::vector<std::int64_t>>& value,
                       const std::string& help) {
    const auto take = [&value, name](const auto& text) { value = parse_id_lists(name, text); };
    parser_->add(name, help, take).type_name("ID,ID,...[;ID,...]");
    parser_->describe(name, "id lists", help);
}

void Options::texts(const std::string& name, std::vector<std::string>& value,
                    const std::vector<std::string>& placeholders, const std::string& help) {
    parser_->app.add_option(name, value, help)
        ->expected(static_cast<int>(placeholders.size()))
        ->option_text(fmt::format("{}", fmt::join(placeholders, " ")));
    parser_->describe(name, "texts", help);
}

void Options::folder(const std::string& name, std::string& value, const std::string& help) {
    parser_->app.add_option(name, value, help)->type_name("DIR");
    parser_->written_folders.emplace_back(name, &value);
    parser_->describe(name, "folder", help);
}

void Options::choice(const std::string& name, std::string& value,
                     const std::vector<std::string>& choices, const std::string& help) {
    parser_
        ->add(name, fmt::format("{}: {}", help, alternatives(choices)),
              [&value, name, choices](const std::string& text) {
                  value = parse_choice(name, text, choices);
              })
        .type_name("NAME")
        ->default_str(value);
    parser_->describe(name, "choice", help, {{"choices", choices}});
}

void Options::flag(const std::string& name, bool& value, const std::string& help) {
    parser_->app.add_flag(name, value, help);
    parser_->describe(name, "flag", help);
}

void Options::needs(const std::string& name, const std::string& other) {
    parser_->requirements.push_back({name, other});
}

void Options::moved(const std::string& name, const std::string& command) {
    parser_->app.add_option(name)->expected(0, 1)->group("");  // --help does not list it
    parser_->moved.push_back({name, command});
}

void Options::create_no_folders() { parser_->folders.creates = false; }

std::uint32_t Options::seed() const { return parser_->seed; }
bool Options::given(const std::string& name) const { return parser_->app.count(name) > 0; }

int Options::run(int argc, char** argv, const std::function<void()>& program) {
    select_blas_kernels(argv);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // pipes and files receive each line at once
    const auto fail = [&](const std::string& message) {
        std::cout << std::flush;
        std::cerr << parser_->slug << ": " << one_line(message) << '\n';
        parser_->folders.remove_created();
        return 2;
    };
    try {
        parser_->parse(argc, argv);
        save_shown_tensors(parser_->save);
        set_print_options(parser_->printing);
        if (parser_->plots != "none") collect_plots(parser_->slug, parser_->plots);
        run_and_report(program, parser_->printing);
        return 0;
    } catch (const CLI::CallForHelp&) {
        parser_->print_help();
        return 0;
    } catch (const CLI::ParseError& error) {
        return fail(error.what());
    } catch (const std::bad_alloc&) {
        return fail("not enough memory for these sizes");
    } catch (const std::exception& error) {
        return fail(error.what());
    }
}

}  // namespace llm
