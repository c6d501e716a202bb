// Chapter 23 — How does a model write only what programs can read? This program shows which
// tokens a grammar allows, what masking them does to probabilities and to the answers of the
// shipped model, and how a model calls a tool.
#include "chapters/23_structured_output/demo/calling.hpp"
#include "chapters/23_structured_output/demo/constrained.hpp"
#include "common/numbers/random.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    std::string schema, text;
    Options options("23_structured_output",
                    "How does a model write only what programs can read?");
    options.text("--schema", schema, "only the mask, for texts of this JSON schema");
    options.text("--text", text, "with --schema: the text so far");
    options.needs("--text", "--schema");
    return options.run(argc, argv, [&] {
        if (options.given("--schema")) return allowed_by_schema(schema, text);
        Generator generator(options.seed());
        allowed_by_state();
        cut_character();
        masked_probabilities(generator);
        constrained_model();
        tool_call();
        calls_of_the_chat_model();
    });
}
