// Chapter 25 — What else can read a text? This program shows what a token of an encoder sees,
// trains small encoders on names, makes one vector of a text, and searches with words and with
// vectors.
#include "chapters/25_encoders/demo/attention.hpp"
#include "chapters/25_encoders/demo/filling.hpp"
#include "chapters/25_encoders/demo/search.hpp"
#include "chapters/25_encoders/demo/tokenizers.hpp"
#include "chapters/25_encoders/demo/vectors.hpp"
#include "common/system/options.hpp"

using namespace llm;

int main(int argc, char** argv) {
    std::size_t num_steps = 100;
    std::string fill, query, export_folder;
    bool measure = false;
    Options options("25_encoders", "What else can read a text?");
    options.count("--steps", num_steps, 1, 100'000, "steps of both trainings");
    options.folder("--export", export_folder,
                   "only: train both encoders and write them to this folder");
    options.text("--fill", fill, "only: fill in the letters that are _ in this name");
    options.text("--query", query, "only: search for this name, also if it is misspelled");
    options.flag("--measure", measure, "only: the time of batches with and without padding");
    return options.run(argc, argv, [&] {
        if (measure) return measure_unpadded();
        Generator generator(options.seed());
        const Names names = load_names(generator);
        if (!export_folder.empty()) {
            const NameModel model = train_to_fill(names, num_steps, options.seed());
            return save_name_models(
                export_folder, model,
                train_for_search(model.encoder, names, num_steps, options.seed()));
        }
        const NameModel shipped = load_name_model();
        if (!fill.empty()) return fill_in(shipped, {fill});
        const ModernBertModel search_encoder = load_search_encoder();
        if (!query.empty()) return most_similar_names(search_encoder, names, query);
        bank_of_the_river();
        masks_of_encoders();
        one_more_word();
        mask_by_hand("elizabeth", generator);
        const NameModel model = train_to_fill(names, num_steps, options.seed());
        fill_in(shipped, {"ale_ander", "s_ephen", "eli_abeth", "an_"});
        wrong_objective(names, options.seed());
        mean_with_padding(shipped.encoder);
        rows_without_padding(shipped.encoder, names);
        train_for_search(model.encoder, names, num_steps, options.seed());
        bm25_by_hand();
        most_similar_names(search_encoder, names, "jonh");
        recall_of_names(search_encoder, shipped.encoder, names, options.seed());
        words_of_bert();
    });
}
