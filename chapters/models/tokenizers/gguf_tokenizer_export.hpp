// A tokenizer as the metadata of a GGUF file.
#pragma once

#include "chapters/10_tokenizer/tokenizer.hpp"
#include "common/files/gguf.hpp"

namespace llm::models {

// The keys tokenizer.ggml.* of a GGUF file: model "llama" for SentencePiece with byte fallback,
// "gpt2" for byte-level BPE, "bert" for WordPiece. Ids up to vocab_size that have no token are
// named [PAD<id>]. Without EOS token, <unk> is written as one, because llama.cpp would stop at
// token 11. Throws ValueError if llama.cpp has no such tokenizer.
//
// read_gguf_tokenizer gives the same ids, with one exception. BPE over characters
// (train_bpe, chapter 10) is written as byte-level BPE, which is the same if all tokens are
// ASCII. Other characters are <unk>, but after reading the file one <unk> for each byte, and
// llama.cpp leaves them out.
GgufMetadata tokenizer_metadata(const Tokenizer& tokenizer, std::size_t vocab_size);

}  // namespace llm::models
