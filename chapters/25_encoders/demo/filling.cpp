#include "chapters/25_encoders/demo/filling.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "chapters/01_masking/masking.hpp"
#include "chapters/13_training/training_loop.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/output/terminal.hpp"

namespace llm {
namespace {

MaskingOptions letter_masking() { return {mask_id, num_letter_ids, {cls_id, sep_id}}; }

TrainingArguments arguments_of(std::size_t num_steps) {
    TrainingArguments args;
    args.lr_schedule = {Real(0.005), Real(0.0005), num_steps / 10, num_steps};
    return args;
}

// Names of which each has one hidden letter, the one in the middle.
MaskedBatch hide_middle(const std::vector<std::string>& names) {
    MaskedBatch batch{encode_names(names), {}};
    batch.labels = IdMatrix(batch.inputs.input_ids.shape(), ignored_label);
    for (std::size_t b = 0; b < names.size(); ++b) {
        const std::size_t middle = 1 + names[b].size() / 2;
        batch.labels(b, middle) = batch.inputs.input_ids(b, middle);
        batch.inputs.input_ids(b, middle) = mask_id;
    }
    return batch;
}

// The cross-entropy of letters that are predicted by counting them: ln p of each.
double unigram_loss(const Names& names, const MaskedBatch& batch) {
    std::map<Id, double> counts;
    double total = 0;
    for (const std::string& name : names.train)
        for (const char letter : name) ++counts[4 + (letter - 'a')], ++total;
    double loss = 0, labels = 0;
    for (const Id label : batch.labels)
        if (label != ignored_label) loss -= std::log(counts[label] / total), ++labels;
    return loss / labels;
}

// The letter after each position, without hiding anything.
MaskedBatch next_letters(const std::vector<std::string>& names) {
    MaskedBatch batch{encode_names(names), {}};
    batch.labels = IdMatrix(batch.inputs.input_ids.shape(), ignored_label);
    for (std::size_t b = 0; b < names.size(); ++b)
        for (std::size_t t = 0; t <= names[b].size(); ++t)
            batch.labels(b, t) = batch.inputs.input_ids(b, t + 1);
    return batch;
}

// The most likely letters with their percentages: "m 62, r 9".
std::string likely_letters(const Vector& logits, std::size_t count) {
    const double normalizer = log_sum_exp(logits);
    std::vector<std::size_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), std::size_t{0});
    std::sort(ids.begin(), ids.end(),
              [&](std::size_t a, std::size_t b) { return logits(a) > logits(b); });
    std::string text;
    for (std::size_t i = 0; i < count; ++i)
        text += (i ? ", " : "") + letter_text(static_cast<Id>(ids[i])) + " " +
                fixed(100 * std::exp(double(logits(ids[i])) - normalizer), 0);
    return text;
}

}  // namespace

void mask_by_hand(const std::string& name, Generator& generator) {
    step("Masking: which tokens are hidden, and what must be predicted");
    MaskingOptions options = letter_masking();
    options.probability = Real(0.4);  // more than usual, to see some in one name
    const MaskedBatch masked = mask_tokens(encode_names({name}), options, generator);
    std::vector<TableRow> rows(3);
    rows[0] = {"name"}, rows[1] = {"input"}, rows[2] = {"label"};
    const std::vector<Id> ids = encode_name(name);
    TableRow headings = {"position"};
    for (std::size_t t = 0; t < ids.size(); ++t) {
        const Id label = masked.labels(0, t);
        headings.push_back(to_text(t));
        rows[0].push_back(letter_text(ids[t]));
        rows[1].push_back(letter_text(masked.inputs.input_ids(0, t)));
        rows[2].push_back(label == ignored_label ? "" : letter_text(label));
    }
    show_table(headings, rows);
}

NameModel train_to_fill(const Names& names, std::size_t num_steps, std::uint32_t seed) {
    step("Training: " + to_text(num_steps) + " steps of 64 names");
    NameModel model = make_name_model(seed);
    Generator generator(seed);
    std::uint64_t num_parameters = 0;
    for (const Parameter& parameter : named_parameters(model))
        num_parameters += parameter.values.size();
    show("parameters", with_commas(num_parameters));
    std::size_t step_number = 0;
    const std::vector<Real> losses =
        run_training_loop<NameModel>(model, arguments_of(num_steps), [&](NameModel& gradient) {
            show_progress("step " + to_text(++step_number) + " of " + to_text(num_steps));
            const BatchEncoding batch = encode_names(sample_names(names.train, 64, generator));
            return forward_backward(model, mask_tokens(batch, letter_masking(), generator),
                                    gradient);
        });
    show_progress("");
    show("loss", sparkline(losses, 60));
    const MaskedBatch hidden = hide_middle(names.held_out);
    show_table({"the middle letter of 1,000 held-out names", "loss"},
               {{"all letters equally likely", fixed(std::log(26.0), 2)},
                {"by counting letters", fixed(unigram_loss(names, hidden), 2)},
                {"the encoder", fixed(masked_lm_loss(model, hidden), 2)}});
    return model;
}

void fill_in(const NameModel& model, const std::vector<std::string>& names) {
    std::vector<TableRow> rows;
    for (const std::string& name : names) {
        const BatchEncoding batch = encode_names({name});
        const Tensor3 logits = model(batch);  // (1, T, V)
        for (std::size_t t = 0; t < batch.input_ids.size(); ++t)
            if (batch.input_ids(0, t) == mask_id)
                rows.push_back(
                    {name, to_text(t), likely_letters(xt::view(logits, 0, t, xt::all()), 4)});
    }
    require(!rows.empty(), "--fill: no letter of '{}' is hidden: write _ for one",
            names.front());
    step("Fill in the blank");
    show_table({"name", "position", "% of the most likely letters"}, rows);
}

void wrong_objective(const Names& names, std::uint32_t seed) {
    step("Wrong: predict the next letter while seeing both sides");
    if (!step_is_printed()) return;  // with --only, no other step needs the model
    NameModel model = make_name_model(seed);
    Generator generator(seed);
    run_training_loop<NameModel>(model, arguments_of(80), [&](NameModel& gradient) {
        return forward_backward(model, next_letters(sample_names(names.train, 64, generator)),
                                gradient);
    });
    // As in generation: the letters to come are not there yet.
    double loss = 0, count = 0;
    for (std::size_t n = 0; n < 100; ++n) {
        const std::string& name = names.held_out[n];
        for (std::size_t length = 1; length < name.size(); ++length) {
            std::vector<Id> beginning = encode_name(name.substr(0, length));
            beginning.pop_back();  // [SEP]
            const Tensor3 logits = model(pad({beginning}, pad_id));
            const Vector last = xt::view(logits, 0, length, xt::all());
            loss +=
                log_sum_exp(last) - double(last(std::size_t(encode_name(name)[length + 1])));
            ++count;
        }
    }
    show_table({"the next letter of held-out names", "loss"},
               {{"in a whole name, as in training",
                 fixed(masked_lm_loss(model, next_letters(names.held_out)), 2)},
                {"after the beginning of a name, as in generation", fixed(loss / count, 2)}});
}

}  // namespace llm
