// ./learn model: what is in a published model? This program shows its layers, its logits and
// the text that it writes, and converts it for Hugging Face and llama.cpp.
#include "chapters/models/model_options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    ModelRun run;
    std::string prompt;
    Options options("model", "What is in a published model?");
    options.path("--model", run.model_path, "a Hugging Face folder, a GGUF file or llama2.c's");
    add_model_options(options, run, prompt);
    return options.run(argc, argv, [&] {
        require(!run.model_path.empty(), "--model is missing: ./learn model DIR or FILE.gguf");
        check_temperature(run.generation.sampling);
        if (options.given("--prompt")) run.prompt = prompt;
        Generator generator(options.seed());
        run_model(run, generator);
    });
}
