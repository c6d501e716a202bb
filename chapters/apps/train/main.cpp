// ./learn train FILE: trains a tokenizer and a model on a text of your own, in the time you
// give.
#include "chapters/apps/train/masked_lm_run.hpp"
#include "chapters/apps/train/rank_process.hpp"
#include "chapters/apps/train/text_run.hpp"
#include "chapters/apps/train/training_options.hpp"
#include "common/files/unicode.hpp"
#include "common/system/blas.hpp"
#include "common/system/timer.hpp"

using namespace llm;
using namespace llm::runs;

void add_text_options(Options& options, TrainingText& text, std::string& special_tokens,
                      float& minutes) {
    options.path("--text", text.file,
                 "UTF-8 text file to train on, or a folder of them, or a list with commas");
    options.number("--minutes", minutes, 0.1, 10000, "time of the run, in total");
    options.count("--vocab-size", text.vocab_size, 0, 1 << 16,
                  "vocabulary size, 0: characters");
    options.text("--document-separator", text.document_separator,
                 "text between the documents of a file: \"<|endoftext|>\"");
    options.flag("--cross-documents", text.cross_documents,
                 "let tokens attend to other documents");
    options.text("--special-tokens", special_tokens,
                 "tokens reserved for chapter 14: \"<|im_start|> <|im_end|>\"");
    options.flag("--individual-digits", text.individual_digits,
                 "a token of documents contains at most one digit");
}

// What only a model that predicts the next token has.
void reject_options_of_decoders(const Options& options) {
    for (const char* name :
         {"--num-key-value-heads", "--qk-norm", "--attention-dropout", "--optimizer", "--ranks",
          "--zero", "--tensor", "--pipeline", "--context", "--cross-documents",
          "--special-tokens", "--individual-digits"})
        require(!options.given(name), "{} is not for --masked-lm", name);
}

int main(int argc, char** argv) {
    select_blas_kernels(argv);  // may restart the program: before MPI_Init
    elapsed_seconds();          // --minutes includes the start of the program
    RankProcess process;
    RankOptions ranks;
    TrainingOptions given;
    RunFolder folder;
    TrainingText text;
    std::string special_tokens, dtype = "float32";
    float minutes = 5;
    bool masked_lm = false;
    Options options("train", "What does a model learn from your text?");
    add_text_options(options, text, special_tokens, minutes);
    add_folder_options(options, folder, dtype);
    add_training_options(options, given);
    add_rank_options(options, ranks);
    options.flag("--masked-lm", masked_lm,
                 "train an encoder, which predicts hidden tokens from both sides");
    if (!process.is_main()) options.create_no_folders();
    const int code = options.run(argc, argv, [&] {
        require(!text.file.empty(), "--text is missing: ./learn train FILE or FOLDER");
        Generator generator(options.seed());
        folder.dtype = dtype_named(dtype);
        TrainingTask task = apply(given, masked_lm ? masked_lm_task() : text_task());
        task.args.seed = options.seed();
        // --minutes limits a new run unless --steps is given, a resumed run only if it is
        // given.
        const bool limited = folder.resume ? options.given("--minutes") : given.steps == 0;
        if (masked_lm) {
            reject_options_of_decoders(options);
            if (!options.given("--vocab-size")) text.vocab_size = 2048;
            return train_masked_lm(task, folder, text,
                                   limited ? std::optional<double>(minutes) : std::nullopt);
        }
        require(ranks.axes.is_one_rank() || !text.has_documents() || text.cross_documents,
                "--tensor, --pipeline and --context need --cross-documents: their attention "
                "has no masks of documents");
        const auto strategy = process.strategy(ranks, options, task, argc, argv);
        text.special_tokens = split_at_spaces(special_tokens);
        train_on_text(std::move(task), folder, text,
                      limited ? std::optional<double>(minutes) : std::nullopt, generator,
                      strategy);
    });
    return process.end(code);
}
