#include "chapters/apps/train/training_text.hpp"

#include <algorithm>

#include "chapters/01_masking/masking.hpp"
#include "chapters/10_tokenizer/byte_level_training.hpp"
#include "chapters/apps/train/training_run.hpp"
#include "common/files/json_file.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"

namespace llm::runs {
namespace {

const std::string end_of_text = "<|endoftext|>";

// The files that --text names: one, those of a folder, or a list with commas.
std::vector<std::string> files_of(const TrainingText& text) {
    if (is_folder(text.file)) {
        const std::vector<std::string> files = files_in(text.file);
        if (files.empty()) throw FileError(text.file + ": the folder has no files");
        return files;
    }
    const std::vector<std::string> list = split_documents(text.file, ",");
    return is_file(text.file) || list.empty() ? std::vector{text.file} : list;
}

void tokenize_documents(TrainingTask& task, const std::vector<std::string>& documents,
                        const TrainingText& text) {
    std::string joined;
    for (const std::string& document : documents) joined += end_of_text + document;
    BPEOptions bpe{.vocab_size = text.vocab_size,
                   .special_tokens = {end_of_text},
                   .individual_digits = text.individual_digits};
    bpe.special_tokens.insert(bpe.special_tokens.end(), text.special_tokens.begin(),
                              text.special_tokens.end());
    task.tokenizer = train_byte_level_bpe(joined, bpe);
    const Id id = task.tokenizer.vocab.at(end_of_text);
    Generator generator(task.args.seed);
    const std::vector<Id> tokens = pack_documents(documents, task.tokenizer, id, generator);
    const std::size_t seq_len = task.args.seq_len;
    task.dataset = documents.size() < 20 ? train_validation_split(tokens, seq_len)
                                         : split_by_document(tokens, id, seq_len);
    task.config.vocab_size = task.tokenizer.vocab_size();
    if (!text.cross_documents) task.args.end_of_text_id = id;
    task.eos_token_ids = {id};
}

// Twelve tokens of the training data that contain the beginning of a document.
IdMatrix tokens_at_boundary(const std::vector<Id>& tokens, Id id) {
    const std::size_t length = std::min<std::size_t>(12, tokens.size());
    const auto found = std::find(tokens.begin() + 1, tokens.end(), id) - tokens.begin();
    const std::size_t begin =
        std::min(std::size_t(found) - std::min<std::size_t>(5, found), tokens.size() - length);
    IdMatrix ids = xt::zeros<Id>({std::size_t(1), length});
    std::copy_n(tokens.begin() + std::ptrdiff_t(begin), length, ids.begin());
    return ids;
}

}  // namespace

bool TrainingText::has_documents() const {
    return !document_separator.empty() || is_folder(file) || files_of(*this).size() > 1;
}

std::vector<std::string> read_documents(const TrainingText& text) {
    std::vector<std::string> documents;
    std::size_t num_bytes = 0;
    for (const std::string& file : files_of(text)) {
        const std::string content = read_text(file);
        num_bytes += content.size();
        if (num_bytes > 64 << 20) throw FileError(text.file + ": more than 64 MB of text");
        if (text.document_separator.empty()) {
            documents.push_back(content);
        } else {
            const auto parts = split_documents(content, text.document_separator);
            documents.insert(documents.end(), parts.begin(), parts.end());
        }
    }
    return documents;
}

void tokenize(TrainingTask& task, const std::vector<std::string>& documents,
              const TrainingText& text) {
    if (text.has_documents()) return tokenize_documents(task, documents, text);
    tokenize_dataset(task, documents[0], text.vocab_size);
}

void write_generation_config(const TrainingTask& task, const RunFolder& folder) {
    if (task.eos_token_ids.empty()) return;
    const auto id = static_cast<std::size_t>(task.eos_token_ids.front());
    write_json(folder.path + "/generation_config.json",
               {{"bos_token_id", id}, {"eos_token_id", id}});
}

void show_packed_documents(const TrainingTask& task) {
    step("Packed documents");
    const Id id = task.eos_token_ids.front();
    const IdMatrix input_ids = tokens_at_boundary(task.dataset.train, id);
    std::string tokens;
    for (const Id token : input_ids) tokens += " " + task.tokenizer.token_text(token);
    show("tokens of a row", tokens.substr(1));
    if (!task.args.end_of_text_id) return say("Attention crosses documents.");
    const IdMatrix documents = document_ids(input_ids, id);
    const std::size_t length = input_ids.shape(1);
    const Tensor4 mask =
        mask_other_documents(expand_mask(causal_mask(length, length), 1), documents);
    show("document_ids", documents);
    show("position_ids", position_ids_of_documents(documents));
    show("attention_mask", mask);
}

void compare_masks(const TrainingTask& task, const Model& model) {
    step("Attention within documents, and across them");
    TrainingArguments args = task.args;
    std::vector<TableRow> rows;
    for (const bool is_within : {true, false}) {
        args.end_of_text_id.reset();
        if (is_within) args.end_of_text_id = task.eos_token_ids.front();
        const double loss =
            evaluate_loss(model, task.dataset.validation, args, 4 * num_evaluation_batches);
        rows.push_back({is_within ? "within documents" : "across documents", fixed(loss, 4)});
    }
    const bool was_within = task.args.end_of_text_id.has_value();
    say(std::string("The model was trained with attention ") +
        (was_within ? "within" : "across") + " documents.");
    show_table({"attention of the evaluation", "validation loss"}, rows);
}

}  // namespace llm::runs
