// Chapter 13 — How does a model learn? Trains a model on first names, and compares it with
// n-gram models. (./learn train trains one on a text of your own.)
#include "chapters/13_training/demo/names.hpp"
#include "chapters/apps/train/training_options.hpp"
#include "chapters/apps/train/training_task.hpp"

using namespace llm;
using namespace llm::runs;

int main(int argc, char** argv) {
    TrainingOptions given;
    RunFolder folder;
    std::string dtype = "float32";
    Options options("13_training", "How does a model learn?");
    add_folder_options(options, folder, dtype);
    add_training_options(options, given);
    options.moved("--text", "./learn train FILE");
    options.moved("--ablations", "./learn experiment ablations");
    options.moved("--mup", "./learn experiment mup");
    options.moved("--scaling-law", "./learn experiment scaling-law");
    return options.run(argc, argv, [&] {
        Generator generator(options.seed());
        folder.dtype = dtype_named(dtype);
        TrainingTask task = apply(given, names_task());
        task.args.seed = options.seed();
        names_demo(std::move(task), folder, generator);
    });
}
