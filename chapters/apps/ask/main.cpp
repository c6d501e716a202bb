// ./learn ask QUESTION — Where does this book answer a question? Shows the sections that words
// (BM25) and an embedding model find; with --model, a language model answers from them. --train
// trains the embedding model.
#include "chapters/apps/ask/commands.hpp"
#include "chapters/apps/chat/model_options.hpp"

using namespace llm;
using namespace llm::ask;

namespace {

struct Arguments {
    std::string question, test, embeddings;
    std::size_t count = 3;
    bool scores = false;
    chat::ModelOptions model;
    AnswerOptions answer;
    TrainCommand train;
};

void add_options(Options& options, Arguments& arguments) {
    options.text("--question", arguments.question, "in English, in quotes");
    options.count("--count", arguments.count, 1, 20, "sections to show, or to give a model");
    options.flag("--scores", arguments.scores,
                 "only the scores of sections by words and by vectors");
    chat::add_model_options(options, arguments.model);
    options.count("--max-new-tokens", arguments.answer.max_new_tokens, 1, 1 << 20,
                  "the longest answer of a model");
    options.count("--context-length", arguments.answer.context_length, 2, 1 << 20,
                  "tokens of passages, question and answer, at most those of the model");
    for (const char* name : {"--max-new-tokens", "--context-length", "--dtype", "--template",
                             "--adapter", "--cache-dtype"})
        options.needs(name, "--model");
    options.path("--test", arguments.test,
                 "JSON Lines of questions with the sections that answer them, or, with "
                 "--model, with a word that an answer contains");
    options.path("--embeddings", arguments.embeddings,
                 "a folder that --train wrote; default: the shipped model");
    options.text("--train", arguments.train.folder,
                 "only: train an embedding model on the pages and on WordNet, and write it to "
                 "this new folder");
    options.path("--wordnet", arguments.train.wordnet, "the folder of WordNet's files");
    options.count("--steps", arguments.train.training.steps, 20, 1 << 24, "of the training");
    options.count("--layers", arguments.train.num_layers, 0, 12, "of the trained encoder");
    for (const char* name : {"--wordnet", "--steps", "--layers"})
        options.needs(name, "--train");
}

void answer(const Arguments& arguments, const Options& options) {
    const std::string embeddings =
        arguments.embeddings.empty() ? asset("ask_encoder") : arguments.embeddings;
    const BookIndex book(read_passages(asset("../docs")), load_embedding_model(embeddings));
    if (arguments.model.files.model_path.empty()) {
        if (!arguments.test.empty())
            return evaluate_search(book, arguments.test, options.seed());
        const auto show = arguments.scores ? show_scores : show_sections;
        return show(book, arguments.question, arguments.count);
    }
    const chat::ChatModel model =
        chat::load_chat_model(chat::chosen_files(options, arguments.model));
    AnswerOptions answering = arguments.answer;
    answering.cache_dtype = dtype_named(arguments.model.cache_dtype);
    if (!arguments.test.empty())
        return evaluate_answers(book, model, arguments.test, arguments.count, answering);
    show_answer(book, model, arguments.question, arguments.count, answering);
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    Options options("ask", "Where does this book answer a question?");
    add_options(options, arguments);
    return options.run(argc, argv, [&] {
        arguments.train.training.seed = options.seed();
        if (!arguments.train.folder.empty()) return train_and_save(arguments.train);
        if (arguments.test.empty()) check_question(arguments.question);
        answer(arguments, options);
    });
}
