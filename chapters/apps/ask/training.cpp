#include "chapters/apps/ask/training.hpp"

#include <algorithm>

#include "chapters/13_training/training_loop.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "common/output/show.hpp"
#include "common/output/terminal.hpp"

namespace llm::ask {
namespace {

struct EncodedPairs {
    std::vector<std::vector<Id>> queries, passages;  // N each
};

EncodedPairs encode_pairs(const EmbeddingModel& model, const TextPairs& pairs) {
    require(!pairs.empty(), "train: a kind of pairs has none");
    EncodedPairs encoded{std::vector<std::vector<Id>>(pairs.size()),
                         std::vector<std::vector<Id>>(pairs.size())};
    parallel_for(pairs.size(), [&](std::size_t n) {
        encoded.queries[n] = model.encode(pairs[n].query);
        encoded.passages[n] = model.encode(pairs[n].passage);
    });
    return encoded;
}

// Changes the pairs of batches at random.
struct Augmentation {
    const EmbeddingTraining& training;
    Generator& generator;

    // A random part of a long text, with [CLS] before and [SEP] after it.
    std::vector<Id> part_of(const std::vector<Id>& ids) {
        const std::size_t length = training.max_tokens;
        if (ids.size() <= length) return ids;
        const std::size_t first = 1 + generator.next_32_bits() % (ids.size() - length + 1);
        std::vector<Id> part(ids.begin() + std::ptrdiff_t(first),
                             ids.begin() + std::ptrdiff_t(first + length - 2));
        part.insert(part.begin(), ids.front());
        part.push_back(ids.back());
        return part;
    }
    // Without random tokens: each with this probability, if may_drop says so. The first and
    // the last token stay; so does a text of which nothing would be left.
    template <class MayDrop>
    std::vector<Id> without_some(const std::vector<Id>& ids, Real probability,
                                 const MayDrop& may_drop) {
        std::vector<Id> kept;
        for (std::size_t t = 0; t < ids.size(); ++t) {
            const bool is_inside = t > 0 && t + 1 < ids.size();
            if (is_inside && may_drop(ids[t]) && generator.next_uniform() < probability)
                continue;
            kept.push_back(ids[t]);
        }
        return kept.size() > 2 ? kept : ids;
    }
    std::pair<std::vector<Id>, std::vector<Id>> operator()(const std::vector<Id>& query,
                                                           const std::vector<Id>& passage) {
        const auto any = [](Id) { return true; };
        const std::vector<Id> changed = without_some(part_of(passage), training.dropout, any);
        const auto is_shared = [&](Id id) {
            return std::find(changed.begin(), changed.end(), id) != changed.end();
        };
        return {without_some(without_some(part_of(query), training.dropout, any),
                             training.overlap_dropout, is_shared),
                changed};
    }
};

}  // namespace

std::vector<Real> train_embedding_model(EmbeddingModel& model,
                                        const std::vector<TextPairs>& kinds,
                                        const EmbeddingTraining& training) {
    std::vector<EncodedPairs> encoded;
    for (const TextPairs& pairs : kinds) encoded.push_back(encode_pairs(model, pairs));
    ModernBertModel& encoder =
        std::get<models::EncoderFamilyModel<ModernBertBlock>>(model.encoder).encoder;
    Generator generator(training.seed);
    Augmentation augment{training, generator};
    TrainingArguments args;
    args.weight_decay = 0;
    args.lr_schedule = {training.learning_rate, training.learning_rate / 20,
                        training.steps / 20, training.steps};
    std::size_t step_number = 0;
    const auto loss_and_gradient = [&](ModernBertModel& gradient) {
        show_progress("step " + to_text(++step_number) + " of " + to_text(training.steps));
        const EncodedPairs& pairs = encoded[generator.next_32_bits() % encoded.size()];
        std::vector<std::vector<Id>> queries(training.batch_size), passages = queries;
        for (std::size_t b = 0; b < training.batch_size; ++b) {
            const std::size_t n = generator.next_32_bits() % pairs.queries.size();
            std::tie(queries[b], passages[b]) = augment(pairs.queries[n], pairs.passages[n]);
        }
        return forward_backward(encoder, Pooling::mean, training.temperature, pad(queries, 0),
                                pad(passages, 0), gradient);
    };
    const std::vector<Real> losses =
        run_training_loop<ModernBertModel>(encoder, args, loss_and_gradient);
    show_progress("");
    return losses;
}

}  // namespace llm::ask
