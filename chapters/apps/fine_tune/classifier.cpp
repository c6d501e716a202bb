#include <map>

#include "chapters/14_fine_tuning/evaluation.hpp"
#include "chapters/apps/fine_tune/encoder_run.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"

namespace llm::fine_tune {
namespace {

// The parts of a batch that are computed in parallel: of equal size, so that the mean of their
// losses is that of the batch.
std::size_t num_parts(std::size_t batch_size) {
    std::size_t parts = 4;
    while (batch_size % parts != 0) --parts;
    return parts;
}

IdVector label_ids(const std::vector<LabeledText>& texts,
                   const std::vector<std::string>& labels) {
    IdVector ids(std::array{texts.size()});
    for (std::size_t n = 0; n < texts.size(); ++n) {
        const auto found = std::find(labels.begin(), labels.end(), texts[n].label);
        require(found != labels.end(), "{}: no text to train on has the label {}",
                texts[n].source, texts[n].label);
        ids(n) = found - labels.begin();
    }
    return ids;
}

std::vector<std::string> texts_of(const std::vector<LabeledText>& examples) {
    std::vector<std::string> texts;
    for (const LabeledText& example : examples) texts.push_back(example.text);
    return texts;
}

// The label of each text with the largest logit.
std::vector<std::size_t> predictions(const models::TextEncoder& encoder,
                                     const std::vector<LabeledText>& examples) {
    constexpr std::size_t batch_size = 32;
    std::vector<std::size_t> labels;
    for (std::size_t begin = 0; begin < examples.size(); begin += batch_size) {
        const auto first = examples.begin() + std::ptrdiff_t(begin);
        const auto count = std::min(batch_size, examples.size() - begin);
        const BatchEncoding batch =
            encode_batch(encoder, texts_of({first, first + std::ptrdiff_t(count)}));
        const Matrix logits = *models::encode(encoder.encoder, batch).logits;  // (B, labels)
        for (std::size_t b = 0; b < count; ++b) {
            const Vector row = xt::view(logits, b);
            labels.push_back(
                std::size_t(std::max_element(row.begin(), row.end()) - row.begin()));
        }
    }
    return labels;
}

TableRow score_row(const std::string& name, const Score& score) {
    const Interval interval = wilson_interval(score);
    return {name, to_text(score.num_questions),
            fixed(100 * double(score.num_correct) / double(score.num_questions), 1),
            fixed(100 * interval.low, 0) + " to " + fixed(100 * interval.high, 0)};
}

// The accuracy on held-out texts beside that of one label for all, and of each label.
void show_accuracy(const Examples<LabeledText>& examples,
                   const std::vector<std::string>& labels,
                   const std::vector<std::size_t>& predicted) {
    const IdVector trained = label_ids(examples.train, labels),
                   correct = label_ids(examples.held_out, labels);
    std::vector<std::size_t> counts(labels.size());
    for (const Id label : trained) ++counts[std::size_t(label)];
    const auto common =
        std::size_t(std::max_element(counts.begin(), counts.end()) - counts.begin());
    Score control, all;
    std::vector<Score> of_label(labels.size());
    for (std::size_t n = 0; n < predicted.size(); ++n) {
        const auto label = std::size_t(correct(n));
        for (Score* score : {&control, &all, &of_label[label]}) ++score->num_questions;
        control.num_correct += label == common;
        all.num_correct += label == predicted[n];
        of_label[label].num_correct += label == predicted[n];
    }
    step("Held-out texts");
    const TableRow headings = {"label", "texts", "correct, %", "95 % interval"};
    std::vector<TableRow> rows = {
        score_row("always " + labels[common] + ", the most common", control),
        score_row("the classifier", all)};
    for (std::size_t n = 0; n < labels.size(); ++n)
        if (of_label[n].num_questions > 0) rows.push_back(score_row(labels[n], of_label[n]));
    show_table(headings, rows);
}

}  // namespace

void train(EncoderRun& run, const Classifier& method) {
    Examples<LabeledText> examples =
        split_examples(run, read_labeled_texts(run.task.train), read_labeled_texts);
    const std::size_t left_out = leave_out_long(run, examples.train, &LabeledText::text) +
                                 leave_out_long(run, examples.held_out, &LabeledText::text);
    const std::vector<std::string> labels = labels_of(examples.train);
    require(labels.size() > 1, "{}: all texts have the label {}", run.task.train, labels[0]);
    label_ids(examples.held_out, labels);  // throws if one is not known
    open_result(run);
    show_counts(run, "texts", examples.train.size(), examples.held_out.size(), left_out);
    show("labels", with_commas(labels.size()));
    models::AnyEncoder& encoder = run.text.encoder;
    encoder = models::with_classifier(encoder, labels, run.generator);
    const std::size_t parts = num_parts(method.steps.batch_size),
                      part_size = method.steps.batch_size / parts;
    std::visit(
        [&]<class AnyModel>(AnyModel& model) {
            std::vector<AnyModel> gradients(parts, zeros_like(model));
            const auto take_step = [&](Real learning_rate) {
                const auto chosen =
                    random_choices(examples.train, method.steps.batch_size, run.generator);
                const double loss = mean_loss_and_gradient<AnyModel>(
                    gradients, [&](std::size_t i, AnyModel& gradient) {
                        const auto first = chosen.begin() + std::ptrdiff_t(i * part_size);
                        const std::vector<LabeledText> part(first,
                                                            first + std::ptrdiff_t(part_size));
                        return forward_backward(model, encode_batch(run.text, texts_of(part)),
                                                label_ids(part, labels), gradient);
                    });
                return std::vector{loss, update(run, model, gradients[0], learning_rate)};
            };
            const auto save = [&] {
                models::export_model(encoder, run.task.folder.path, run.task.folder.dtype);
                save_tokenizer_files(run);
            };
            train_encoder(run, method.steps, named_parameters(model), method.name, take_step,
                          save);
        },
        encoder);
    say("Saved in " + run.task.folder.path + ". ./learn model " + run.task.folder.path +
        " shows it.");
    show_accuracy(examples, labels, predictions(run.text, examples.held_out));
}

}  // namespace llm::fine_tune
