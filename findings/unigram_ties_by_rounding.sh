#!/usr/bin/env bash
# Hugging Face tokenizers 0.23.2 (npm) and SentencePiece 0.1.97 (Debian 12), with the same Unigram vocabulary and
# scores and the same search, segment some words differently. "66 6" and "6 66" have the same tokens, so their scores
# are equal; but sums of floating-point numbers depend on the order, and which one comes out larger is decided by
# rounding: SentencePiece adds in 32 bits, tokenizers in 64. Words with repeated parts, such as 230666, change their ids
# when a model's tokenizer is converted; the decoded text does not show it. Neither has a rule for ties that holds:
# of equal sums, both take the longer last token, but these sums are equal only on paper.
# Needs node 18 or newer, npm, and spm_train and spm_encode (apt-get install sentencepiece). Exits with 1 if all words
# are segmented alike.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts tokenizers@0.23.2 >/dev/null
seq 0 997 999999 >text.txt
seq 0 31 999999 >words.txt
spm_train --input=text.txt --model_prefix=numbers --vocab_size=60 --normalization_rule_name=identity --num_threads=1 \
    --minloglevel=2
spm_encode --model=numbers.model --output_format=piece <words.txt >sentencepiece.txt
cat >compare.js <<'END'
const { Tokenizer } = require('tokenizers')
const { readFileSync } = require('fs')
const lines = (file) => readFileSync(file, 'utf8').trim().split('\n')

// numbers.model is a protobuf message: field 1 of each piece is its text, field 2 its score in 32 bits.
const bytes = readFileSync('numbers.model')
const vocab = []
for (let at = 0; bytes[at] === 0x0a; at += 2 + bytes[at + 1]) {
  const piece = bytes.subarray(at + 2, at + 2 + bytes[at + 1])
  const size = piece[1]
  vocab.push([piece.subarray(2, 2 + size).toString(), piece[2 + size] === 0x15 ? piece.readFloatLE(3 + size) : 0])
}
const metaspace = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true }
const tokenizer = Tokenizer.fromString(JSON.stringify({ version: '1.0', truncation: null, padding: null, added_tokens: [],
  normalizer: null, pre_tokenizer: metaspace, post_processor: null, decoder: metaspace,
  model: { type: 'Unigram', unk_id: 0, vocab, byte_fallback: false } }))
const words = lines('words.txt'), expected = lines('sentencepiece.txt')
async function main() {
  let numDifferent = 0, numSameTokens = 0
  for (const [i, word] of words.entries()) {
    const tokens = (await tokenizer.encode(word)).getTokens()
    if (tokens.join(' ') === expected[i]) continue
    numDifferent += 1
    numSameTokens += `${tokens.toSorted()}` === `${expected[i].split(' ').toSorted()}`
    if (numDifferent <= 3) console.log(`${word}: SentencePiece ${expected[i]}, tokenizers ${tokens.join(' ')}`)
  }
  console.log(`${vocab.length} tokens, ${words.length} words, ${numDifferent} differ, ${numSameTokens} of them by order alone`)
  process.exit(numDifferent > 0 && numSameTokens === numDifferent ? 0 : 1)
}
main()
END
node compare.js
