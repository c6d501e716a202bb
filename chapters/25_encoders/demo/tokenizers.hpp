// Chapter 25: the tokenizer of BERT.
#pragma once

namespace llm {

void words_of_bert();

}  // namespace llm
