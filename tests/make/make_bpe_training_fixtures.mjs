// Writes tests/fixtures/bpe_training/: a text with special tokens, and what Hugging Face's
// BpeTrainer learns from it: the merges, and the ids of several texts, both also with single digits as
// words. Also the merges of a trainer with the tie-breaking rule of Stanford CS336 (assignment 1), written here from
// its handout. A tool for maintainers, not part of the build. To run it:
//
//   npm install --prefix FOLDER tokenizers@0.23.2
//   node tests/make/make_bpe_training_fixtures.mjs FOLDER
//   node tests/make/make_bpe_training_fixtures.mjs FOLDER TOKENIZER_JSON
//
// The second form writes nothing: it loads the tokenizer.json of this project with Hugging Face's
// library, and compares the ids. This command writes it:
//
//   ./learn 10 --train tests/fixtures/bpe_training/text.txt --byte-level --vocab-size 400 \
//              --special-tokens "<|endoftext|> <|user|> <|assistant|>" --export build/exported

import { createRequire } from 'node:module'
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const require = createRequire(resolve(process.argv[2] ?? '.', 'script.js'))
const { Tokenizer, byteLevelAlphabet } = require('tokenizers')
const VOCAB_SIZE = 400 // of the tokenizer of encodings.json
const OUT = new URL('../fixtures/bpe_training/', import.meta.url)
const SPECIAL = ['<|endoftext|>', '<|user|>', '<|assistant|>']

const sums = Array.from({ length: 60 }, (_, i) => [(i * 37) % 101, (i * 53) % 97])
  .map(([a, b]) => `<|user|>What is ${a} + ${b}?<|assistant|>${a} + ${b} = ${a + b}<|endoftext|>`)
const TEXT = `${sums.join('\n')}
<|user|>Say "hello" in five languages!<|assistant|>"Hello", 'hallo', "h\u00e9llo", \u00ab bonjour \u00bb, \u4f60\u597d \ud83d\ude00<|endoftext|>
<|user|>Don't you'll we've I'm it's they'd WE'RE<|assistant|>aaaa aaaaa aaaaaa aaaaaaa aa a ababab abababa bababab<|endoftext|>
def f(x):\n    if x == 0:\n        return "======"\n    return  f(x - 1)   \n\n\n\n\tend <|endoftext|><|endoftext|>  two spaces
Die Gr\u00f6\u00dfe der schönen H\u00e4user \u00fcber der Stra\u00dfe; \u4e2d\u6587\u5b57\u7b26 \u4e2d\u6587 \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \ud83d\ude00\ud83d\ude01\ud83d\ude02 \ud83d\ude00
the end of text, the <| user |> and |endoftext| are no special tokens: <|endoftext <|user|>the end<|endoftext|>`

const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true }
const added = (content, id) =>
  ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true })
const singleDigits = { type: 'Sequence', pretokenizers: [{ type: 'Digits', individual_digits: true }, byteLevel] }
const description = (vocab, merges, added_tokens, normalizer, pre_tokenizer = byteLevel) => JSON.stringify({
  version: '1.0', truncation: null, padding: null, added_tokens, normalizer, pre_tokenizer,
  post_processor: null, decoder: byteLevel,
  model: { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null,
    end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges },
}, null, 1)

/** The segments of a text between special tokens. */
const segments = (text) => SPECIAL.reduce((parts, token) => parts.flatMap((part) => part.split(token)), [text])
  .filter((part) => part !== '')

/** All merges of Hugging Face's trainer: it reads each segment from a file, and reads files line by
    line, so line feeds are written as U+0001, which a normalizer replaces. */
function huggingFaceMerges(preTokenizer) {
  const folder = mkdtempSync(join(tmpdir(), 'bpe'))
  const files = segments(TEXT).map((part, i) => {
    writeFileSync(join(folder, `${i}`), part.replaceAll('\n', '\u0001'))
    return join(folder, `${i}`)
  })
  const lineFeeds = { type: 'Replace', pattern: { String: '\u0001' }, content: '\n' }
  const tokenizer = Tokenizer.fromString(description({}, [], [], lineFeeds, preTokenizer))
  tokenizer.train(files)
  tokenizer.save(join(folder, 'tokenizer.json'))
  return JSON.parse(readFileSync(join(folder, 'tokenizer.json'))).model.merges
}

/** CS336: merge the most frequent pair, of several the lexicographically greatest pair of bytes. */
function cs336Merges(count) {
  const letters = Tokenizer.fromString(description({}, [], [], null)).getPreTokenizer()
  const words = segments(TEXT).flatMap((part) => letters.preTokenizeString(part)).map(([word]) => [...word])
  const order = byteLevelAlphabet().sort()
  const isHidden = (letter) => letter >= '\u0100'
  const hidden = order.filter(isHidden)
  const visibleBytes = new Set(order.filter((letter) => !isHidden(letter)).map((letter) => letter.codePointAt(0)))
  const hiddenBytes = [...Array(256).keys()].filter((byte) => !visibleBytes.has(byte))
  const byteOf = (letter) => isHidden(letter) ? hiddenBytes[hidden.indexOf(letter)] : letter.codePointAt(0)
  const bytes = (token) => Buffer.from([...token].map(byteOf))
  const greater = ([a, b], [c, d]) => Buffer.compare(bytes(a), bytes(c)) || Buffer.compare(bytes(b), bytes(d))
  const merges = []
  while (merges.length < count) {
    const pairs = new Map()
    for (const word of words) {
      for (let i = 0; i + 1 < word.length; ++i) {
        const key = `${word[i]} ${word[i + 1]}`
        pairs.set(key, (pairs.get(key) ?? 0) + 1)
      }
    }
    const most = Math.max(...pairs.values())
    const [left, right] = [...pairs].filter(([, n]) => n === most).map(([key]) => key.split(' '))
      .reduce((best, pair) => (greater(pair, best) > 0 ? pair : best))
    merges.push([left, right])
    for (const word of words) {
      for (let i = 0; i + 1 < word.length; ++i) {
        if (word[i] === left && word[i + 1] === right) word.splice(i, 2, left + right)
      }
    }
  }
  return merges
}

const TEXTS = [TEXT, '', '12 + 30 = 42', '"Quotes" + \'apostrophes\' \ud83d\ude80\ud83c\udffd', '\u00e9\u00e8\u0000\u0001\u007f\u3042\t\n\n  x',
  'hello<|endoftext|>hello', '<|user|>2 + 2?<|assistant|>4<|endoftext|>', '<|endoftext|> <|endof text|> <|user|<|user|>>',
  'aaaaaaaaaaaaa babababab', 'Donaudampfschifffahrt \u4e2d\u6587\u5b57\u7b26\u4f60']
const escaped = (value) => JSON.stringify(value)
  .replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

if (process.argv[3]) {
  const expected = JSON.parse(readFileSync(new URL('encodings.json', OUT))).cases
  const tokenizer = Tokenizer.fromString(readFileSync(process.argv[3], 'utf8'))
  let wrong = 0
  for (const { text, ids } of expected) {
    const encoded = (await tokenizer.encode(text)).getIds()
    if (`${encoded}` !== `${ids}` || await tokenizer.decode(encoded, false) !== text) {
      console.log(`${escaped(text).slice(0, 60)}: ${encoded.slice(0, 20)} instead of ${ids.slice(0, 20)}`)
      ++wrong
    }
  }
  console.log(`${expected.length - wrong} of ${expected.length} texts have the expected ids`)
  process.exit(wrong ? 1 : 0)
}

/** The ids of all texts, with the first of these merges. */
async function encodings(allMerges, preTokenizer) {
  const merges = allMerges.slice(0, VOCAB_SIZE - SPECIAL.length - 256)
  const alphabet = byteLevelAlphabet().sort() // by code point, as the trainer sorts it
  const tokens = [...SPECIAL, ...alphabet, ...merges.map((pair) => pair.join(''))]
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]))
  const tokenizer = Tokenizer.fromString(description(vocab, merges, SPECIAL.map(added), null, preTokenizer))
  const cases = []
  for (const text of TEXTS) cases.push({ text, ids: (await tokenizer.encode(text)).getIds() })
  return cases
}

const allMerges = huggingFaceMerges(byteLevel)
const digitMerges = huggingFaceMerges(singleDigits)
const lines = (list) => list.map(escaped).join(',\n')

mkdirSync(OUT, { recursive: true })
writeFileSync(new URL('text.txt', OUT), TEXT)
writeFileSync(new URL('merges.json', OUT), `{"hugging_face": [\n${lines(allMerges)}\n],\n"individual_digits": [\n${lines(digitMerges)}\n],\n"cs336": [\n${lines(cs336Merges(allMerges.length))}\n]}\n`)
writeFileSync(new URL('encodings.json', OUT), `{"cases": [\n${lines(await encodings(allMerges, byteLevel))}\n],\n"individual_digits": [\n${lines(await encodings(digitMerges, singleDigits))}\n]}\n`)
console.log(`${allMerges.length} merges, ${TEXT.length} characters`)
