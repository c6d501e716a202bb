#include "chapters/13_training/documents.hpp"

#include "chapters/01_masking/masking.hpp"
#include "common/numbers/choices.hpp"

namespace llm {

std::vector<std::string> split_documents(const std::string& text,
                                         const std::string& separator) {
    require(!separator.empty(), "split_documents: the separator is empty");
    std::vector<std::string> documents;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        if (end > begin) documents.push_back(text.substr(begin, end - begin));
        begin = end + separator.size();
    }
    return documents;
}

std::vector<Id> pack_documents(std::vector<std::string> documents, const Tokenizer& tokenizer,
                               Id end_of_text_id, Generator& generator) {
    shuffle(documents, generator);
    std::vector<Id> tokens = {end_of_text_id};
    for (const std::string& document : documents) {
        const std::vector<Id> ids = tokenizer.encode(document);
        tokens.insert(tokens.end(), ids.begin(), ids.end());
        tokens.push_back(end_of_text_id);
    }
    return tokens;
}

Dataset split_by_document(const std::vector<Id>& tokens, Id end_of_text_id,
                          std::size_t seq_len) {
    Dataset dataset;
    std::size_t count = 0;
    for (const Id id : tokens) {
        if (id == end_of_text_id) ++count;
        (count % 10 == 0 ? dataset.validation : dataset.train).push_back(id);
    }
    require(dataset.validation.size() > seq_len,
            "training: {} documents are too few: every tenth is held out, and together these "
            "must have more than {} tokens, not {}",
            count - 1, seq_len, dataset.validation.size());
    return dataset;
}

IdMatrix document_ids(const IdMatrix& input_ids, Id end_of_text_id) {
    const auto [batch_size, seq_len] = dims(input_ids);
    IdMatrix ids = xt::zeros<Id>({batch_size, seq_len});
    for (std::size_t b = 0; b < batch_size; ++b) {
        Id document = 0;
        for (std::size_t t = 0; t < seq_len; ++t) {
            if (input_ids(b, t) == end_of_text_id) ++document;
            ids(b, t) = document;
        }
    }
    return ids;
}

IdMatrix position_ids_of_documents(const IdMatrix& document_ids) {
    const auto [batch_size, seq_len] = dims(document_ids);
    IdMatrix positions = xt::zeros<Id>({batch_size, seq_len});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 1; t < seq_len; ++t)
            positions(b, t) =
                document_ids(b, t) == document_ids(b, t - 1) ? positions(b, t - 1) + 1 : 0;
    return positions;
}

Tensor4 mask_other_documents(const Tensor4& mask, const IdMatrix& document_ids) {
    const auto [batch_size, one, query_len, kv_len] = dims(mask);
    require(document_ids.shape(0) == batch_size && document_ids.shape(1) == kv_len &&
                query_len == kv_len,
            "documents: a mask of shape {} does not match document ids of shape {}",
            to_text(mask.shape()), to_text(document_ids.shape()));
    Tensor4 masked = mask;
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < query_len; ++t)
            for (std::size_t s = 0; s < kv_len; ++s)
                if (document_ids(b, s) != document_ids(b, t)) masked(b, 0, t, s) = -infinity;
    return masked;
}

AttentionInputs document_attention_inputs(const RotaryTable& rotary_table,
                                          const IdMatrix& input_ids, Id end_of_text_id) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const IdMatrix documents = document_ids(input_ids, end_of_text_id);  // (B, T)
    AttentionInputs inputs = causal_attention_inputs(rotary_table, batch_size, seq_len);
    inputs.position_ids = position_ids_of_documents(documents);
    inputs.attention_mask = mask_other_documents(inputs.attention_mask, documents);
    return inputs;
}

}  // namespace llm
