// Chapter 11 — How does a model generate text? Samples the next token, compares prefill and
// decode with a KV cache, generates text, and inspects the prediction of one of its tokens.
#include "chapters/11_generation/demo/cache.hpp"
#include "chapters/11_generation/demo/inspection.hpp"
#include "chapters/11_generation/demo/sampling.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/11_generation/sampling_options.hpp"
#include "chapters/11_generation/text_streamer.hpp"
#include "chapters/11_generation/words.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/standard_input.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"
#include "common/system/timer.hpp"

using namespace llm;

// The value of --prompt if it is not given: no argument has a zero byte.
const std::string not_given(1, '\0');

struct Arguments {
    std::string model_path, tokenizer_path, words_folder, prompt = not_given;
    GenerationConfig config;
    std::size_t inspect = 0;  // the position to inspect; 0: the 13th new token
    bool no_cache = false, measure = false;
};

// The inspection shows the first 16 new tokens; if --inspect is given, the whole text.
// Attention weights take memory for the square of its length.
constexpr std::size_t num_inspected = 16, longest_prompt = 512;
constexpr std::size_t longest_text = longest_prompt + num_inspected;

// The text of the prompt; an empty one is the BOS token.
std::string prompt_text(const Arguments& arguments) {
    if (arguments.prompt == "-") return read_standard_input();
    if (arguments.prompt != not_given) return arguments.prompt;
    return arguments.model_path.empty() ? "And the LORD said unto Moses" : "";
}

void show_prompt(const Tokenizer& tokenizer, const std::vector<Id>& ids) {
    step("The prompt as tokens");
    const std::vector<std::string> tokens = token_texts(tokenizer, ids);
    std::string line;
    for (std::size_t i = 0; i < ids.size(); ++i)
        line += to_text(ids[i]) + ":" + tokens[i] + " ";
    say(line);
}

// The ids of the prompt. Throws ValueError if the model cannot continue it, or if --inspect is
// not one of the new tokens.
std::vector<Id> check_prompt(const Model& model, const Tokenizer& tokenizer,
                             const Arguments& arguments) {
    const std::vector<Id> ids = models::encode_prompt(tokenizer, arguments.prompt);
    check_input(model.config, one_sequence(ids));
    const std::size_t position = arguments.inspect;
    const std::size_t length = std::min({ids.size() + arguments.config.max_new_tokens,
                                         model.config.max_position_embeddings, longest_text});
    const std::size_t last = std::max(ids.size(), length - 1);
    require(position == 0 || (position >= ids.size() && position <= last),
            "with this prompt, --inspect takes a position from {} to {}, not {}", ids.size(),
            last, position);
    return ids;
}

// Generates and prints token by token. Returns the ids of prompt and text, the seconds, and why
// it stopped.
struct GeneratedText {
    std::vector<Id> ids;
    double seconds;
    StopReason reason;
};
GeneratedText generate_text(const Model& model, const Tokenizer& tokenizer,
                            const std::vector<Id>& prompt_ids, const GenerationConfig& config,
                            Generator& generator) {
    step("The generated text");
    write_text(tokenizer.decode_bytes(prompt_ids));
    TextStreamer streamer(tokenizer, prompt_ids);
    const InterruptHandler handler;
    CachedSequence cached =
        make_cached_sequence(model, num_cached_positions(model.config, prompt_ids, config));
    GeneratedTokens generated;
    const double seconds = fastest_seconds(1, [&] {
        generated =
            generate(cached, prompt_ids, config, generator, [&](Id id) { streamer.put(id); });
    });
    end_text();
    std::vector<Id> ids = prompt_ids;
    ids.insert(ids.end(), generated.ids.begin(), generated.ids.end());
    return {ids, seconds, generated.reason};
}

std::string text_of(StopReason reason) {
    switch (reason) {
        case StopReason::eos_token:
            return "an EOS token";
        case StopReason::max_new_tokens:
            return "--max-new-tokens";
        case StopReason::last_position:
            return "the model's last position";
        case StopReason::interrupted:
            return "Ctrl-C";
    }
    throw ValueError("there is no such reason");
}

void run_generation(const Model& model, const Tokenizer& tokenizer,
                    const std::vector<Id>& prompt_ids, const Arguments& arguments,
                    Generator& generator) {
    const GenerationConfig& config = arguments.config;
    show_prompt(tokenizer, prompt_ids);
    auto [ids, seconds, reason] =
        generate_text(model, tokenizer, prompt_ids, config, generator);

    const std::size_t count = ids.size() - prompt_ids.size();
    show("tokens generated", to_text(count) + " (stopped by " + text_of(reason) + ")");
    if (count == 0) return;
    if (!arguments.model_path.empty() || arguments.measure)
        show("tokens per second", fixed(double(count) / seconds, 0));

    const std::size_t prompt_len = prompt_ids.size(), position = arguments.inspect;
    if (prompt_len > longest_prompt) return say("The prompt is too long for the inspection.");
    ids.resize(std::min({ids.size(), model.config.max_position_embeddings,
                         position > 0 ? longest_text : prompt_len + num_inspected}));
    inspect_generation(
        model, tokenizer, ids,
        {prompt_len, std::min(position > 0 ? position : prompt_len + 12, ids.size() - 1),
         position > 0},
        config.sampling);
}

void add_options(Options& options, Arguments& arguments) {
    models::add_model_path(
        options, arguments.model_path,
        "another model: a Hugging Face folder, a GGUF file or a llama2.c file");
    options.path("--tokenizer", arguments.tokenizer_path,
                 "its tokenizer, if it is neither beside nor in the model");
    options.needs("--tokenizer", "--model");
    options.text("--prompt", arguments.prompt, "the text to continue, -: standard input");
    options.count("--max-new-tokens", arguments.config.max_new_tokens, 0, 1 << 20,
                  "tokens to generate");
    add_sampling_options(options, arguments.config.sampling);
    options.flag("--context-shift", arguments.config.context_shift,
                 "when the context is full, keep its first token and its last half, and go on");
    options.flag("--no-cache", arguments.no_cache,
                 "recompute the whole sequence for each token");
    options.count("--inspect", arguments.inspect, 0, 1 << 20,
                  "position to inspect, 0: the 13th new token");
    options.flag("--measure", arguments.measure,
                 "measure the time per token with and without a cache");
    options.folder("--words", arguments.words_folder,
                   "folder to write the tensors of assets/words to, or those of the prompt; "
                   "nothing else is run");
}

void run(Arguments arguments, std::uint32_t seed) {
    const SamplingConfig& sampling = arguments.config.sampling;
    const bool prompt_given = arguments.prompt != not_given;
    arguments.config.use_cache = !arguments.no_cache;
    check_temperature(sampling);
    arguments.prompt = prompt_text(arguments);

    // Load the model that comes with this repository, or another one.
    const bool shipped = arguments.model_path.empty();
    const std::string path = shipped ? asset("king_james") : arguments.model_path;
    const Model model = models::load_model(path);
    const Tokenizer tokenizer = models::load_tokenizer_of_model(path, arguments.tokenizer_path,
                                                                model.config.vocab_size);
    if (!arguments.words_folder.empty())
        return save_words(
            arguments.words_folder,
            words_of(model, tokenizer, prompt_given ? arguments.prompt : text_of_words));
    arguments.config.eos_token_ids = tokenizer.eos_token_ids;
    const std::vector<Id> prompt_ids = check_prompt(model, tokenizer, arguments);

    // Show sampling and the KV cache with the shipped model, then generate.
    if (shipped) {
        const std::string text = "And the king and the people went to the";
        Generator generator(seed);
        show_next_word(model, tokenizer, text_of_words);
        show_sampling(model, tokenizer, text, sampling, generator);
        show_cache(model, tokenizer.encode(text));
    }
    Generator generator(seed);
    run_generation(model, tokenizer, prompt_ids, arguments, generator);
    if (arguments.measure) measure_cache(model);
}

int main(int argc, char** argv) {
    Arguments arguments;
    arguments.config.sampling.temperature = 0.8f;
    arguments.config.sampling.top_p = 0.9f;
    arguments.config.max_new_tokens = 100;
    Options options("11_generation", "How does a model generate text?");
    add_options(options, arguments);
    return options.run(argc, argv, [&] { run(arguments, options.seed()); });
}
