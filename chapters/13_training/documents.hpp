// Chapter 13, file 9 of 10: training data that consists of many documents.
#pragma once

#include <string>
#include <vector>

#include "chapters/05_gqa/attention.hpp"
#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/13_training/data.hpp"

namespace llm {

// The documents of a text, between the separators. Empty ones are skipped.
std::vector<std::string> split_documents(const std::string& text, const std::string& separator);

// Packs the documents into one sequence, in random order. Each begins with the end-of-text
// token, and the last one is followed by it. Source: llm.c, dev/data.
std::vector<Id> pack_documents(std::vector<std::string> documents, const Tokenizer& tokenizer,
                               Id end_of_text_id, Generator& generator);

// Holds out every tenth document of a packed sequence. Throws ValueError unless the validation
// set has more than seq_len tokens.
Dataset split_by_document(const std::vector<Id>& tokens, Id end_of_text_id,
                          std::size_t seq_len);

// The document that each token belongs to: the number of end-of-text tokens up to this position
// of its row. (A row can begin in the middle of a document.)
IdMatrix document_ids(const IdMatrix& input_ids, Id end_of_text_id);  // (B, T) -> (B, T)

// Position ids that start at 0 in each document.
IdMatrix position_ids_of_documents(const IdMatrix& document_ids);  // (B, T) -> (B, T)

// Masks other documents as well: -inf where query and key belong to different documents. Throws
// ValueError if the batch size or the number of tokens of the two differ.
Tensor4 mask_other_documents(const Tensor4& mask,            // (B, 1, T, T)
                             const IdMatrix& document_ids);  // (B, T)

// The attention inputs of packed documents: position ids start at 0 in each document, and a
// token attends to the earlier tokens of its own document, so the mask is block diagonal.
// Source: Dubey et al., 2024 ("The Llama 3 Herd of Models"), section 3.2; Hugging Face,
// DataCollatorWithFlattening.
AttentionInputs document_attention_inputs(const RotaryTable& rotary_table,  // (P, D/2)
                                          const IdMatrix& input_ids,        // (B, T)
                                          Id end_of_text_id);

}  // namespace llm
