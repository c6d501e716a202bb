#include "chapters/apps/train/masked_lm_run.hpp"

#include <cmath>

#include "chapters/13_training/training_loop.hpp"
#include "chapters/25_encoders/masked_lm.hpp"
#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/apps/runs/step_run.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/encoder_training.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/numbers/hash.hpp"
#include "common/output/show.hpp"

namespace llm::runs {
namespace {

using ModernBert = models::EncoderFamilyModel<ModernBertBlock>;
using MaskedModernBert = MaskedLM<ModernBertBlock>;

// What a run learns from.
struct MaskedText {
    Tokenizer tokenizer;
    Dataset dataset;  // without special tokens
    Id cls_id, sep_id, pad_id;
    MaskingOptions masking;
};

MaskedText read_masked_text(const TrainingTask& task, const TrainingText& text) {
    std::string joined;
    for (const std::string& document : read_documents(text)) joined += document + "\n";
    MaskedText data;
    data.tokenizer = train_wordpiece(joined, {.vocab_size = text.vocab_size});
    const auto id = [&](const char* token) { return data.tokenizer.vocab.at(token); };
    data.cls_id = id("[CLS]"), data.sep_id = id("[SEP]"), data.pad_id = id("[PAD]");
    std::vector<Id> tokens = data.tokenizer.encode(joined);  // [CLS] text [SEP]
    tokens.erase(tokens.begin());
    tokens.pop_back();
    data.dataset = train_validation_split(tokens, task.args.seq_len);
    data.masking = {id("[MASK]"),
                    data.tokenizer.vocab_size(),
                    {data.cls_id, data.sep_id, data.pad_id},
                    Real(0.3)};  // as ModernBERT
    return data;
}

models::EncoderFamilyConfig config_of_run(const TrainingTask& task, const MaskedText& data) {
    Config sizes = task.config;
    sizes.vocab_size = data.tokenizer.vocab_size();
    sizes.num_key_value_heads = sizes.num_attention_heads;
    sizes.rms_norm_eps = Real(1e-5);
    sizes.tie_word_embeddings = true;
    models::EncoderFamilyConfig config =
        models::config_with(models::modernbert_family(), sizes);
    config.heads = {.masked_lm = true};
    config.architecture = models::class_with(models::modernbert_family(), config.heads);
    config.rope_theta = Real(10'000);
    config.windowed = WindowedLayers{.window = 16};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        config.windows[n] = config.windowed->has_window(n);
    config.has_bias = config.norm_bias = config.attention_bias = config.mlp_bias = false;
    config.head_bias = false;
    config.classifier_pooling = Pooling::mean;
    config.pad_token_id = data.pad_id;
    return config;
}

// [CLS] tokens [SEP] of each row.
BatchEncoding framed(const MaskedText& data, const IdMatrix& rows) {  // (B, T - 2)
    std::vector<std::vector<Id>> texts;
    for (std::size_t b = 0; b < rows.shape(0); ++b) {
        std::vector<Id> text = {data.cls_id};
        for (std::size_t t = 0; t < rows.shape(1); ++t) text.push_back(rows(b, t));
        text.push_back(data.sep_id);
        texts.push_back(std::move(text));
    }
    return pad(texts, data.pad_id);  // (B, T)
}

// Held-out text with the same tokens masked in every evaluation.
std::vector<MaskedBatch> held_out_batches(const TrainingTask& task, const MaskedText& data) {
    Generator generator(task.args.seed);
    std::vector<MaskedBatch> batches;
    for (const Batch& batch : evaluation_batches(data.dataset.validation, task.args.batch_size,
                                                 task.args.seq_len - 2, 20))
        batches.push_back(mask_tokens(framed(data, batch.input_ids), data.masking, generator));
    return batches;
}

// The loss and the share of right tokens over all labels.
struct MaskedScore {
    double loss = 0, accuracy = 0;
};

MaskedScore score_of(const MaskedModernBert& model, const std::vector<MaskedBatch>& batches) {
    double loss = 0, correct = 0, count = 0;
    for (const MaskedBatch& batch : batches) {
        const auto [rows, labels] = labeled_rows(batch.labels);
        const Matrix features =
            head_features(model.head, gather_rows(model.encoder(batch.inputs), rows)).features;
        const Matrix logits = decoder_logits(model.head, model.decoder_weight(), features);
        loss += cross_entropy(logits, labels) * double(labels.size());
        count += double(labels.size());
        for (std::size_t n = 0; n < labels.size(); ++n) {
            const Vector row = xt::view(logits, n);
            correct += std::max_element(row.begin(), row.end()) - row.begin() == labels(n);
        }
    }
    return {loss / count, correct / count};
}

// The control: the frequencies of tokens in the training text (one more each, so that none is
// 0), whatever stands around a masked one.
MaskedScore score_of_counting(const MaskedText& data, const std::vector<MaskedBatch>& batches) {
    std::vector<double> counts(data.tokenizer.vocab_size(), 1);
    for (const Id id : data.dataset.train) ++counts[std::size_t(id)];
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    const Id common = std::max_element(counts.begin(), counts.end()) - counts.begin();
    double loss = 0, correct = 0, count = 0;
    for (const MaskedBatch& batch : batches)
        for (const Id label : batch.labels) {
            if (label == ignored_label) continue;
            loss -= std::log(counts[std::size_t(label)] / total);
            correct += label == common;
            ++count;
        }
    return {loss / count, correct / count};
}

std::vector<Setting> settings_of_run(const TrainingTask& task, const TrainingText& text,
                                     const MaskedText& data, bool has_time_limit) {
    const TrainingArguments& args = task.args;
    const std::vector<Id>& tokens = data.dataset.train;
    return {{"--masked-lm", std::size_t{1}},
            {"--vocab-size", text.vocab_size},
            {"--hidden-size", task.config.hidden_size},
            {"--intermediate-size", task.config.intermediate_size},
            {"--num-hidden-layers", task.config.num_hidden_layers},
            {"--num-attention-heads", task.config.num_attention_heads},
            {"--batch-size", args.batch_size},
            {"--seq-len", args.seq_len},
            {"--gradient-accumulation-steps", args.gradient_accumulation_steps},
            {"--steps", has_time_limit || !task.steps_given ? 0 : args.lr_schedule.max_steps},
            {"--learning-rate", double(args.lr_schedule.learning_rate)},
            {"--weight-decay", double(args.weight_decay)},
            {"--max-grad-norm", args.max_grad_norm},
            {"--seed", args.seed},
            {"the training text", fnv1a(std::as_bytes(std::span(tokens)), fnv1a(""))}};
}

// One step: the mean over micro-batches, in parallel.
std::vector<double> masked_lm_step(const TrainingTask& task, const MaskedText& data,
                                   MaskedModernBert& model,
                                   std::vector<MaskedModernBert>& gradients, AdamW& optimizer,
                                   Generator& generator, Real learning_rate) {
    std::vector<MaskedBatch> batches;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const IdMatrix rows = random_batch(data.dataset.train, task.args.batch_size,
                                           task.args.seq_len - 2, generator)
                                  .input_ids;
        batches.push_back(mask_tokens(framed(data, rows), data.masking, generator));
    }
    const double loss = mean_loss_and_gradient<MaskedModernBert>(
        gradients, [&](std::size_t i, MaskedModernBert& gradient) {
            return forward_backward(model, batches[i], gradient);
        });
    const std::vector<Parameter> gradient = named_parameters(gradients[0]);
    const double norm = clip_grad_norm(gradient, task.args.max_grad_norm);
    optimizer.step(named_parameters(model), gradient, learning_rate);
    return {loss, norm};
}

// A folder that transformers and ./learn model read.
void save_masked_lm(const MaskedModernBert& model, const models::EncoderFamilyConfig& config,
                    const MaskedText& data, const RunFolder& folder) {
    ModernBert published = std::get<ModernBert>(models::make_empty_encoder(config));
    published.encoder = model.encoder;
    published.head = model.head;
    models::export_model(models::AnyEncoder(published), folder.path, folder.dtype);
    models::save_tokenizer(data.tokenizer, folder.path + "/tokenizer.json");
    write_json(folder.path + "/tokenizer_config.json",
               {{"tokenizer_class", "PreTrainedTokenizerFast"},
                {"model_max_length", config.max_position_embeddings},
                {"unk_token", "[UNK]"},
                {"pad_token", "[PAD]"},
                {"cls_token", "[CLS]"},
                {"sep_token", "[SEP]"},
                {"mask_token", "[MASK]"}});
}

void show_start(const TrainingTask& task, const MaskedText& data, MaskedModernBert& model) {
    std::size_t num_parameters = 0;
    for (const Parameter& parameter : named_parameters(model))
        num_parameters += parameter.values.size();
    step("Text, tokens and model");
    show("tokens",
         with_commas(data.dataset.train.size() + data.dataset.validation.size()) +
             ", of which for validation: " + with_commas(data.dataset.validation.size()));
    show("vocabulary", with_commas(data.tokenizer.vocab_size()));
    show("parameters", with_commas(num_parameters));
    show("tokens per step", with_commas(tokens_per_step(task.args)));
    show("masked", fixed(100 * double(data.masking.probability), 0) + " %");
}

void show_scores(const MaskedScore& counting, const MaskedScore& model) {
    step("Masked tokens of held-out text");
    const auto row = [](const char* name, const MaskedScore& score) {
        return TableRow{name, fixed(score.loss, 3), fixed(100 * score.accuracy, 1)};
    };
    show_table({"predicted by", "loss, nats", "correct, %"},
               {row("counting tokens", counting), row("the encoder", model)});
}

}  // namespace

void train_masked_lm(const TrainingTask& task, RunFolder folder, const TrainingText& text,
                     std::optional<double> minutes) {
    require(task.args.seq_len > 2, "--seq-len {}: [CLS] and [SEP] leave no token",
            task.args.seq_len);
    if (folder.path.empty()) folder.path = model_folder("encoder");
    reject_existing_result(folder);
    const MaskedText data = read_masked_text(task, text);
    const models::EncoderFamilyConfig config = config_of_run(task, data);
    Generator generator(task.args.seed);
    ModernBert initial = std::get<ModernBert>(models::make_encoder(config, generator));
    MaskedModernBert model{std::move(initial.encoder), std::move(*initial.head)};
    std::vector<MaskedModernBert> gradients(task.args.gradient_accumulation_steps,
                                            zeros_like(model));
    const std::vector<MaskedBatch> held_out = held_out_batches(task, data);
    AdamW optimizer;
    optimizer.weight_decay = task.args.weight_decay;
    const std::vector<Setting> settings =
        settings_of_run(task, text, data, minutes.has_value());
    lock_run_folder(folder);
    reject_existing_result(folder);  // again: another run may have ended
    if (folder.resume) open_checkpoint(folder, settings);
    show_start(task, data, model);

    step("Training");
    StepRun run{folder, settings, named_parameters(model), optimizer, generator};
    if (minutes) run.deadline = Deadline{60 * *minutes};
    const InterruptHandler interrupt_handler;
    const auto take_step = [&](Real learning_rate) {
        return masked_lm_step(task, data, model, gradients, optimizer, generator,
                              learning_rate);
    };
    const auto report = [&] {
        show("    loss on held-out text", fixed(score_of(model, held_out).loss, 3));
    };
    const auto train = [&] {
        const auto lines =
            run_steps(run, task.args.lr_schedule, {"loss", "gradient norm"}, take_step, report);
        plot("masked_lm", {LinePlot{"Masked tokens", "step", "loss, nats", {lines[0]}}});
    };
    if (!train_and_save(folder, train, [&] { save_masked_lm(model, config, data, folder); }))
        return;
    show_scores(score_of_counting(data, held_out), score_of(model, held_out));
    say("The encoder is in " + folder.path + ". ./learn fine_tune " + folder.path +
        " --method classifier or contrastive trains it further.");
}

}  // namespace llm::runs
