// Chapter 21 — How does one model answer many? This program divides a KV cache into pages,
// plans the steps of many requests, computes texts of the shipped model together, computes
// several tokens of one text in a step, and lets a model write only what a grammar allows.
#include "chapters/15_fast/fast_model.hpp"
#include "chapters/21_serving/demo/batching.hpp"
#include "chapters/21_serving/demo/calling.hpp"
#include "chapters/21_serving/demo/constrained.hpp"
#include "chapters/21_serving/demo/paging.hpp"
#include "chapters/21_serving/demo/speculation.hpp"
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
                  "tokens of a page, in step 2 and with --requests");
    options.count("--max-sequences", arguments.max_sequences, 1, 20,
                  "requests at a time, in step 5 and with --requests");
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
        Generator generator(options.seed());
        const std::string path = asset("king_james");
        const Model model = models::load_model(path);
        const Tokenizer tokenizer =
            models::load_tokenizer_of_model(path, "", model.config.vocab_size);
        const FastModel fast = make_fast_model(model, DType::float32);
        const FastMtpModule mtp = make_fast_mtp_module(
            load_mtp_module(asset("king_james_mtp/model.safetensors"), model.config), fast);
        one_step_for_many();
        reserved_memory(arguments.page_size);
        pages_of_sequences();
        common_beginning();
        static_and_continuous(arguments.max_sequences);
        long_prompt(arguments.max_step_tokens);
        no_page_left(arguments.num_pages);
        many_texts(fast, tokenizer);
        speculative_sampling_by_hand(generator);
        ngram_proposals();
        one_verification_step(fast, tokenizer);
        tokens_per_step(fast, mtp, tokenizer);
        acceptance_by_temperature(fast, mtp, tokenizer);
        allowed_by_state();
        cut_character();
        masked_probabilities();
        constrained_model();
        tool_call();
        calls_of_the_chat_model();
    });
}
