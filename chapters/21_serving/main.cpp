// Chapter 21 — How does one model answer many? This program plans the steps of many requests,
// divides a KV cache into pages, shares what prompts have in common, and computes texts of the
// shipped model together.
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/21_serving/demo/batching.hpp"
#include "chapters/21_serving/demo/paging.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/options.hpp"

using namespace llm;

struct Arguments {
    std::size_t page_size = 16, max_sequences = 2, max_step_tokens = 12, num_pages = 5;
    std::string requests;  // if given: the scheduler alone, with these
    bool static_batching = false, no_prefix_cache = false;
};

void add_options(Options& options, Arguments& arguments) {
    options.count("--page-size", arguments.page_size, 1, 64,
                  "tokens of a page, in step 3 and with --requests");
    options.count("--max-sequences", arguments.max_sequences, 1, 20,
                  "requests at a time, in step 1 and with --requests");
    options.count("--max-step-tokens", arguments.max_step_tokens, 4, 64,
                  "tokens of a step, in step 6 and with --requests");
    options.count("--num-pages", arguments.num_pages, 4, 64,
                  "pages of 4 tokens, in step 7; pages with --requests");
    options.text("--requests", arguments.requests,
                 "only the scheduler, with requests such as \"7+9 8+5+9@2-6\"");
    options.flag("--static-batching", arguments.static_batching,
                 "requests join when none is running");
    options.flag("--no-prefix-cache", arguments.no_prefix_cache, "no page is shared");
    options.needs("--static-batching", "--requests");
    options.needs("--no-prefix-cache", "--requests");
}

void schedule(const Arguments& arguments) {
    const SchedulerConfig config{arguments.max_sequences, arguments.max_step_tokens,
                                 !arguments.no_prefix_cache, !arguments.static_batching};
    show_schedule(make_scheduler(config, arguments.num_pages, arguments.page_size),
                  parse_requests(arguments.requests));
}

int main(int argc, char** argv) {
    Arguments arguments;
    Options options("21_serving", "How does one model answer many?");
    add_options(options, arguments);
    return options.run(argc, argv, [&] {
        if (options.given("--requests")) return schedule(arguments);
        const std::string path = asset("king_james");
        const Model model = models::load_model(path);
        const Tokenizer tokenizer =
            models::load_tokenizer_of_model(path, "", model.config.vocab_size);
        static_and_continuous(arguments.max_sequences);
        one_step_for_many();
        reserved_memory(arguments.page_size);
        pages_of_sequences();
        common_beginning();
        long_prompt(arguments.max_step_tokens);
        no_page_left(arguments.num_pages);
        many_texts(make_fast_model(model, DType::float32), tokenizer, options.seed());
    });
}
