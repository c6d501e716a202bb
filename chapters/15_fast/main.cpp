// Chapter 15 — What makes inference fast? This program measures the roofline of the machine,
// computes a matrix product and a whole forward pass in several variants, shows online softmax
// and flash attention, and generates text with the fast model.
#include "chapters/11_generation/generation.hpp"
#include "chapters/15_fast/demo/attention.hpp"
#include "chapters/15_fast/demo/bandwidth.hpp"
#include "chapters/15_fast/demo/matmul.hpp"
#include "chapters/15_fast/inference.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"
#include "common/system/timer.hpp"

using namespace llm;

// Psalm 23, from the text that the model was trained on.
const std::string psalm =
    "The LORD is my shepherd; I shall not want.\n"
    "He maketh me to lie down in green pastures: he leadeth me beside the still waters.\n"
    "He restoreth my soul: he leadeth me in the paths of righteousness for his name's sake.\n"
    "Yea, though I walk through the valley of the shadow of death, I will fear no evil: for "
    "thou art with me; thy rod and thy staff they comfort me.\n"
    "Thou preparest a table before me in the presence of mine enemies: thou anointest my head "
    "with oil; my cup runneth over.\n"
    "Surely goodness and mercy shall follow me all the days of my life: and I will dwell in "
    "the house of the LORD for ever.";

// Greedy generation with chapter 11's generate: the prompt and the new tokens.
std::vector<Id> generate_reference(const Model& model, const std::vector<Id>& prompt_ids,
                                   std::size_t max_new_tokens,
                                   const std::vector<Id>& eos_token_ids) {
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = max_new_tokens;
    config.eos_token_ids = eos_token_ids;
    Generator unused(1);  // temperature 0 samples nothing
    std::vector<Id> ids = prompt_ids;
    const std::vector<Id> new_ids = generate(model, prompt_ids, config, unused).ids;
    ids.insert(ids.end(), new_ids.begin(), new_ids.end());
    return ids;
}

void greedy_generation(const Timing& timing, const Model& model, const Tokenizer& tokenizer,
                       const std::vector<Id>& prompt_ids, std::size_t max_new_tokens) {
    step("Greedy generation");
    const std::vector<Id>& eos_token_ids = tokenizer.eos_token_ids;
    std::vector<TableRow> rows;
    std::vector<Id> expected;
    double first = 0;
    const auto row = [&](const std::string& name, int runs, const auto& generate_ids) {
        std::vector<Id> ids;
        const double seconds = fastest_seconds(runs, [&] { ids = generate_ids(); });
        if (expected.empty()) expected = ids, first = seconds;
        const auto different = std::ranges::mismatch(ids, expected).in1;
        const double num_new = double(ids.size() - prompt_ids.size());
        rows.push_back({name, timing.cell(num_new / seconds, 0),
                        timing.cell(first / seconds, 1),
                        to_text(std::size_t(different - ids.begin()) - prompt_ids.size())});
    };
    row("chapter 11", 1,
        [&] { return generate_reference(model, prompt_ids, max_new_tokens, eos_token_ids); });
    for (const DType dtype : weight_dtypes) {
        const FastModel fast = make_fast_model(model, dtype);
        row("fast model, " + std::string(to_text(dtype)), 2,
            [&] { return generate_greedily(fast, prompt_ids, max_new_tokens, eos_token_ids); });
    }
    write_text(tokenizer.decode(expected));
    end_text();
    show_table({"model", "tokens per second", "speedup", "tokens equal to chapter 11's"}, rows);
}

void demo(Timing& timing, const Model& model, const Tokenizer& tokenizer, Generator generator) {
    const std::vector<Id> ids = tokenizer.encode(psalm);
    show_roofline(timing);
    matmul_variants(timing, generator);
    forward_variants(timing, model, std::vector<Id>(ids.begin(), ids.begin() + 64));
    online_softmax();
    attention_in_tiles(generator);
    const Matrix weight = uniform({32000, 384}, -1, 1, generator);  // (out, in)
    decode_matvec(timing, weight, generator);
    batched_matmul(timing, weight, generator);
}

int main(int argc, char** argv) {
    bool no_timing = false;
    std::string model_path, tokenizer_path, prompt = "And the LORD said unto Moses";
    std::size_t max_new_tokens = 100;
    Options options("15_fast", "What makes inference fast?");
    options.flag("--no-timing", no_timing, "leave out run times, which differ from run to run");
    models::add_model_path(options, model_path,
                           "generate with this model: a folder, GGUF or llama2.c file");
    options.path("--tokenizer", tokenizer_path,
                 "its tokenizer, if it is not next to the model");
    options.needs("--tokenizer", "--model");
    options.text("--prompt", prompt, "the text to continue");
    options.count("--max-new-tokens", max_new_tokens, 1, 1 << 20, "tokens to generate");

    return options.run(argc, argv, [&] {
        const bool own_model = !model_path.empty();
        if (!own_model) model_path = asset("king_james");
        const Model model = models::load_model(model_path);
        const Tokenizer tokenizer = models::load_tokenizer_of_model(model_path, tokenizer_path,
                                                                    model.config.vocab_size);
        const std::vector<Id> prompt_ids = models::encode_prompt(tokenizer, prompt);
        check_input(model.config, one_sequence(prompt_ids));
        Timing timing{!no_timing};
        if (!own_model) demo(timing, model, tokenizer, Generator(options.seed()));
        greedy_generation(timing, model, tokenizer, prompt_ids, max_new_tokens);
    });
}
