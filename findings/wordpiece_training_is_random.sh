#!/usr/bin/env bash
# Hugging Face tokenizers 0.23.2 (npm): training a WordPiece vocabulary on the same text gives other ids in each run,
# also with one thread, and there is no seed to set. The characters that begin with "##" get their ids in the order of
# a hash map with a random state; pairs that are equally frequent are merged in the order of these ids, so the set of
# tokens differs, too, where vocab_size cuts among them. BPE of the same library, trained on the same text, is the
# same in each run. A model that was trained with one vocabulary reads nonsense with another of the same size and the
# same settings: keep the file, do not train it again.
# Needs node 18 or newer and npm. Exits with 1 if that changes.
set -euo pipefail
cd "$(mktemp -d)"
npm install --silent --no-audit --no-fund --ignore-scripts tokenizers@0.23.2 >/dev/null
cat >text.txt <<'END_OF_FILE'
the bank lends money and the bank takes money
a river has two banks and the water takes the lower one
she reads and he writes and both of them are reading and writing
walking walked walker reading reads reader playing played player
END_OF_FILE
cat >train.js <<'END_OF_FILE'
const { Tokenizer } = require('tokenizers')
const models = {
  WordPiece: { type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100, vocab: {} },
  BPE: { type: 'BPE', vocab: {}, merges: [] },
}
const tokenizer = Tokenizer.fromString(JSON.stringify({
  version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null, pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: null, decoder: null, model: models[process.argv[2]] }))
tokenizer.train(['text.txt'])
const vocab = Object.entries(tokenizer.getVocab()).sort(([, a], [, b]) => a - b)
console.log(JSON.stringify(vocab))
END_OF_FILE
for model in WordPiece BPE; do
    for _ in 1 2 3 4 5; do RAYON_NUM_THREADS=1 node train.js $model; done | grep "^\[" >"$model"
    echo "$model: five runs, vocabularies: $(sort -u "$model" | wc -l)"
done | sed 's/: [2-5]$/: more than one/' | tee results
diff results - <<'END_OF_FILE'
WordPiece: five runs, vocabularies: more than one
BPE: five runs, vocabularies: 1
END_OF_FILE
