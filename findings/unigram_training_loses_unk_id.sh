#!/usr/bin/env bash
# Hugging Face tokenizers 0.23.2 (npm): train() on a tokenizer whose Unigram model has an unknown token gives a model
# without one. The default trainer has no unk_token, does not take the model's, and replaces vocabulary and unk_id.
# Nothing is said; each text of the training's characters is encoded as before, and the first other character, in use,
# makes encode() fail. Put the unknown token back into the saved file ("vocab" and "unk_id") before you use it.
# Needs node 18 or newer and npm. Exits with 1 if the trained model has an unknown token.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts tokenizers@0.23.2 >/dev/null
seq -f 'the bank lends money to %g banks and the bank takes it' 50 >text.txt
cat >train.js <<'END'
const { Tokenizer } = require('tokenizers')
const { readFileSync } = require('fs')
const metaspace = { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true }
const tokenizer = Tokenizer.fromString(JSON.stringify({ version: '1.0', truncation: null, padding: null, added_tokens: [],
  normalizer: null, pre_tokenizer: metaspace, post_processor: null, decoder: metaspace,
  model: { type: 'Unigram', unk_id: 0, vocab: [['<unk>', 0], ['▁', -1], ['a', -2]], byte_fallback: false } }))
async function ids(text) {
  try { return (await tokenizer.encode(text)).getIds().join(' ') } catch (error) { return `error: ${error.message}` }
}
async function main() {
  console.log(`before training, a€: ${await ids('a€')}`)
  tokenizer.train(['text.txt'])
  tokenizer.save('trained.json')
  const { unk_id, vocab } = JSON.parse(readFileSync('trained.json', 'utf8')).model
  const hasToken = vocab.some(([token]) => token === '<unk>')
  const known = await ids('the bank'), unknown = await ids('a€')
  console.log(`after training: ${vocab.length} tokens, <unk> among them: ${hasToken}, unk_id: ${unk_id}`)
  console.log(`the bank: ${known.startsWith('error') ? known : 'encoded'}\na€: ${unknown}`)
  process.exit(unk_id === null && !hasToken && !known.startsWith('error') && unknown.startsWith('error') ? 0 : 1)
}
main()
END
node train.js | grep .
