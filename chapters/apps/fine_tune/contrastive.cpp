#include <set>

#include "chapters/25_encoders/retrieval.hpp"
#include "chapters/apps/fine_tune/encoder_run.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/fast_encoder.hpp"
#include "common/files/mapped_file.hpp"
#include "common/tensors/matmul.hpp"

namespace llm::fine_tune {
namespace {

std::vector<std::string> parts_of(const std::vector<QueryPassage>& pairs,
                                  std::string QueryPassage::*part) {
    std::vector<std::string> texts;
    for (const QueryPassage& pair : pairs) texts.push_back(pair.*part);
    return texts;
}

// Random pairs with different passages: another copy of the right one is no wrong one.
std::vector<QueryPassage> sample_pairs(const std::vector<QueryPassage>& pairs,
                                       std::size_t count, Generator& generator) {
    std::vector<QueryPassage> chosen;
    std::set<std::string> passages;
    while (chosen.size() < count) {
        const QueryPassage& pair = pairs[generator.next_32_bits() % pairs.size()];
        if (passages.insert(pair.passage).second) chosen.push_back(pair);
    }
    return chosen;
}

Matrix vectors_of(const models::TextEncoder& encoder, const std::vector<std::string>& texts) {
    std::vector<std::vector<Id>> ids;
    for (const std::string& text : texts) ids.push_back(encoder.tokenizer.encode(text));
    return models::embed_texts(models::make_fast_encoder(encoder.encoder), encoder.pooling,
                               ids);  // (N, C)
}

// How often the first passage that is found is the right one, among the held-out passages.
class SearchTest {
 public:
    explicit SearchTest(const std::vector<QueryPassage>& pairs) : pairs_(pairs) {
        const std::vector<std::string> all = parts_of(pairs, &QueryPassage::passage);
        const std::set<std::string> different(all.begin(), all.end());
        passages_.assign(different.begin(), different.end());
        const double chance = 1 / double(passages_.size());
        rows_.push_back(
            {"a random passage", to_text(pairs_.size()), fixed(100 * chance, 1), ""});
        std::vector<std::vector<std::string>> lists;
        for (const std::string& passage : passages_) lists.push_back(words(passage));
        const Bm25Index index(lists);
        add("words (BM25)", [&](std::size_t n) -> std::optional<std::size_t> {
            const auto found = index.search(words(pairs_[n].query), 1);
            return found.empty() ? std::nullopt : std::optional(found[0].document);
        });
    }

    void add_vectors(const std::string& name, const models::TextEncoder& encoder) {
        const Matrix queries = vectors_of(encoder, parts_of(pairs_, &QueryPassage::query)),
                     passages = vectors_of(encoder, passages_);
        const Matrix cosines = matmul_transposed(queries, passages);  // (N, M)
        add(name, [&](std::size_t n) -> std::optional<std::size_t> {
            const Vector row = xt::view(cosines, n);
            return std::size_t(std::max_element(row.begin(), row.end()) - row.begin());
        });
    }

    void show() const {
        step("Held-out queries, each searched among " + with_commas(passages_.size()) +
             " passages");
        show_table({"search by", "queries", "found first, %", "95 % interval"}, rows_);
    }

 private:
    void add(const std::string& name,
             const std::function<std::optional<std::size_t>(std::size_t n)>& first) {
        Score score{0, pairs_.size()};
        for (std::size_t n = 0; n < pairs_.size(); ++n) {
            const std::optional<std::size_t> found = first(n);
            score.num_correct += found && passages_[*found] == pairs_[n].passage;
        }
        const Interval interval = wilson_interval(score);
        rows_.push_back(
            {name, to_text(score.num_questions),
             fixed(100 * double(score.num_correct) / double(score.num_questions), 1),
             fixed(100 * interval.low, 0) + " to " + fixed(100 * interval.high, 0)});
    }

    const std::vector<QueryPassage>& pairs_;
    std::vector<std::string> passages_;  // each once
    std::vector<TableRow> rows_;
};

// What sentence-transformers reads, and ./learn serve.
void save_pooling(const std::string& folder, Pooling pooling, std::size_t width) {
    make_folder(folder + "/1_Pooling");
    make_folder(folder + "/2_Normalize");
    write_json(folder + "/1_Pooling/config.json",
               {{"word_embedding_dimension", width},
                {"pooling_mode_cls_token", pooling == Pooling::cls},
                {"pooling_mode_mean_tokens", pooling == Pooling::mean}});
    JsonArray modules;
    for (const char* name : {"Transformer", "Pooling", "Normalize"}) {
        const std::string number = to_text(modules.size());
        modules.push_back(
            JsonObject{{"idx", modules.size()},
                       {"name", number},
                       {"path", modules.empty() ? "" : number + "_" + name},
                       {"type", "sentence_transformers.models." + std::string(name)}});
    }
    write_text_file(folder + "/modules.json", json_text(Json(modules)) + "\n");
}

}  // namespace

void train(EncoderRun& run, const Contrastive& method) {
    Examples<QueryPassage> examples =
        split_examples(run, read_query_passages(run.task.train), read_query_passages);
    std::size_t left_out = 0;
    for (auto* part : {&examples.train, &examples.held_out})
        for (const auto text : {&QueryPassage::query, &QueryPassage::passage})
            left_out += leave_out_long(run, *part, text);
    const std::vector<std::string> all = parts_of(examples.train, &QueryPassage::passage);
    const std::size_t num_passages = std::set(all.begin(), all.end()).size();
    require(method.steps.batch_size > 1 && num_passages >= method.steps.batch_size,
            "--batch-size {}: a batch needs at least two different passages, and {} has {}",
            method.steps.batch_size, run.task.train, num_passages);
    open_result(run);
    show_counts(run, "pairs", examples.train.size(), examples.held_out.size(), left_out);
    models::AnyEncoder& encoder = run.text.encoder;
    encoder = models::without_heads(encoder);
    SearchTest test(examples.held_out);
    test.add_vectors("vectors, before training", run.text);
    std::visit(
        [&](auto& model) {
            auto gradient = zeros_like(model.encoder);
            const auto take_step = [&](Real learning_rate) {
                const std::vector<QueryPassage> pairs =
                    sample_pairs(examples.train, method.steps.batch_size, run.generator);
                InterruptHandler::throw_if_interrupted();
                zero_grad(gradient);
                const double loss = forward_backward(
                    model.encoder, run.text.pooling, Real(method.temperature),
                    encode_batch(run.text, parts_of(pairs, &QueryPassage::query)),
                    encode_batch(run.text, parts_of(pairs, &QueryPassage::passage)), gradient);
                return std::vector{loss, update(run, model.encoder, gradient, learning_rate)};
            };
            const auto save = [&] {
                models::export_model(encoder, run.task.folder.path, run.task.folder.dtype);
                save_tokenizer_files(run);
                save_pooling(run.task.folder.path, run.text.pooling, model.config.hidden_size);
            };
            train_encoder(run, method.steps, named_parameters(model.encoder), method.name,
                          take_step, save);
        },
        encoder);
    say("Saved in " + run.task.folder.path + ". ./learn serve " + run.task.folder.path +
        " gives its vectors.");
    test.add_vectors("vectors", run.text);
    test.show();
}

}  // namespace llm::fine_tune
