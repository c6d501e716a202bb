// Writes tests/fixtures/10_tokenizer/KIND/{tokenizer.json,encodings.json}: eight small tokenizers of
// the kinds that real models have, and the ids of many texts from Hugging Face's own library. A tool
// for maintainers: building, running and testing the project does not need node. To run it:
//
//   npm install --prefix FOLDER tokenizers@0.23.2 @huggingface/tokenizers@0.2.0
//   node tests/make/make_tokenizer_fixtures.mjs FOLDER
//
// `tokenizers` is the Rust library with bindings for node: all ids and texts of encodings.json come
// from it. `@huggingface/tokenizers` is a second implementation in JavaScript. It writes nothing:
// the script only prints where it disagrees. The vocabularies are trained here on the text below.
//
// Also tests/fixtures/25_encoders/{bert_uncased,bert_cased}, whose vocabularies are trained by the
// WordPieceTrainer of `tokenizers`. It numbers the characters with ## in a random order: a second
// run of this script writes other ids there. text.txt is the text.

import { createRequire } from 'node:module'
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

const require = createRequire(resolve(process.argv[2] ?? '.', 'script.js'))
const { Tokenizer } = require('tokenizers')
const Witness = require('@huggingface/tokenizers').Tokenizer
const OUT = new URL('../fixtures/10_tokenizer/', import.meta.url)

const CORPUS = `The model reads the text and the model writes the text again. It doesn't know what
the words mean; it knows which token comes next. We'll ask it, and they'll see that it's right.
In the beginning there was a small tokenizer, and the small tokenizer was slow. I've seen it, you've
seen it, and we're sure that they're tired of it. The rain in the evening was longer than the
morning rain, and nothing was stronger than the wind. Thinking, learning and reading are good things.
The cat and the other cat sat on the mat. The quick brown fox jumps over the lazy dog again.
THE TITLE OF THE TEXT IS THE TITLE. Hello world, hello again, HELLO WORLD! What? Why? When???
Die Größe der Wörter ist für die Übung nicht wichtig. Die schönen Häuser über der Straße sind groß,
und die Bäume vor der Tür sind auch schön. Für die Schüler ist die Übung schwer.
Le café est près de la forêt, et la fenêtre est fermée. L'été, le garçon a mangé à la crêperie.
In 1999 and 2000 there were 12345 words, in 2024 there were 3.14159 times 100000, and 12 34 56 78.
int main() {
    int total = 0;
    for (int i = 0; i < 100; ++i) {
        if (i % 2 == 0) {
            total += i;
        }
    }
    return total;
}
def find(values):
    for i in range(10):
        for j in range(10):
            if values[i][j] == i + j:
                return values[i]
`

const SPACES = 'a\u00a0b\u00a0 \u3000c\u3000\u2009d!\u0085e\u200bf!\ufeff' // not all of them count as spaces

// Adjacent characters that some pre-tokenizers cut apart and others keep together. The byte-level kinds get a
// last merge for each pair, over the edge of the two characters, so that a wrong cut changes the ids.
const EDGES = [SPACES, '!\u00bd\u00bda\u00b2 \u0661\u0662\u2167', 'x2y', '3.1',
  "E'REA", "N'T", '!\n\n ', ' \n', ';\r\n', '?"\t\tc', 'e\u0301t\u0301 ', 'हिन्दी 中文', '\u{1f468}\u200d\u{1f469}']

/** Plain BPE training: merge the most frequent pair again and again; among equals the first in alphabetical order. */
function train(words, merges) {
  const parts = words.map((word) => [...word])
  const result = []
  while (result.length < merges) {
    const pairs = new Map()
    for (const pieces of parts) {
      for (let i = 0; i + 1 < pieces.length; ++i) {
        const pair = `${pieces[i]} ${pieces[i + 1]}`
        pairs.set(pair, (pairs.get(pair) ?? 0) + 1)
      }
    }
    const [best] = [...pairs].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
    const [left, right] = best[0].split(' ')
    result.push([left, right])
    for (const pieces of parts) {
      for (let i = 0; i + 1 < pieces.length; ++i) {
        if (pieces[i] === left && pieces[i + 1] === right) pieces.splice(i, 2, left + right)
      }
    }
  }
  return result
}

/** GPT-2's 256 letters for the 256 bytes, in the order of GPT-2's ids. */
function byteLetters() {
  const visible = (byte) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad)
  const bytes = [...Array(256).keys()]
  const hidden = bytes.filter((byte) => !visible(byte)).map((byte, i) => [byte, String.fromCodePoint(256 + i)])
  return new Map([...bytes.filter(visible).map((byte) => [byte, String.fromCodePoint(byte)]), ...hidden])
}
const LETTERS = byteLetters()

/** The last byte of each character and the first byte of the next character, as letters. */
function edges() {
  const bytes = (character) => [...Buffer.from(character)].map((byte) => LETTERS.get(byte))
  return EDGES.flatMap((text) => [...text].slice(1).map((next, i) => [bytes([...text][i]).at(-1), bytes(next)[0]]))
}

const numbered = (pieces) => Object.fromEntries(pieces.map((piece, id) => [piece, id]))
const added = (id, content, special = true) =>
  ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special })
const byteLevel = (settings = {}) =>
  ({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true, ...settings })
const sequence = (name, ...items) => ({ type: 'Sequence', [name]: items })
const split = (Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false })
const startWith = (id, token) => ({
  type: 'TemplateProcessing',
  single: [{ SpecialToken: { id: token, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
  pair: [{ SpecialToken: { id: token, type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } },
    { SpecialToken: { id: token, type_id: 1 } }, { Sequence: { id: 'B', type_id: 1 } }],
  special_tokens: { [token]: { id: token, ids: [id], tokens: [token] } },
})
const whole = (parts) => ({ version: '1.0', truncation: null, padding: null, ...parts })

/** One byte-level kind. `before` tokens have the first ids, `extra` pieces and `after` the last. */
function byteLevelKind({ merges, model = {}, before = [], extra = [], after = [], ...rest }) {
  const empty = whole({ added_tokens: [], ...rest, model: { type: 'BPE', vocab: {}, merges: [] } })
  const cut = Tokenizer.fromString(JSON.stringify(empty)).getPreTokenizer()
  const learned = train(cut.preTokenizeString(CORPUS).map(([word]) => word), merges)
  const known = new Set(learned.map((pair) => pair.join('')))
  for (const pair of edges()) {
    if (!known.has(pair.join(''))) learned.push(pair)
    known.add(pair.join(''))
  }
  const pieces = [...before, ...LETTERS.values(), ...known, ...extra]
  const tokens = [...before.map((text, id) => added(id, text)),
    ...after.map(([text, special], i) => added(pieces.length + i, text, special))]
  const settings = { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null,
    end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ...model }
  const list = model.ignore_merges ? learned : learned.map((pair) => pair.join(' '))
  return whole({ added_tokens: tokens, ...rest, model: { ...settings, vocab: numbered(pieces), merges: list } })
}

function gpt2() {
  const kind = byteLevelKind({ merges: 90, after: [['<|endoftext|>', true]],
    model: { continuing_subword_prefix: '', end_of_word_suffix: '' }, normalizer: null,
    pre_tokenizer: byteLevel(), post_processor: byteLevel(), decoder: byteLevel() })
  for (const { content, id } of kind.added_tokens) kind.model.vocab[content] = id // as GPT-2 has it
  return kind
}

const WORDS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
const OTHERS = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'
// Whole words in the vocabulary to which no merge leads, in the byte alphabet: Ġ is a space, Ã¼ is ü
const WHOLE_WORDS = ['Ġlighthouse', 'zylinder', 'gemÃ¼se', '789']
function llama3() {
  const kind = byteLevelKind({ merges: 90, extra: WHOLE_WORDS,
    after: [['<|begin_of_text|>', true], ['<|end_of_text|>', true], ['<|eot_id|>', true]],
    model: { ignore_merges: true }, normalizer: null,
    pre_tokenizer: sequence('pretokenizers', split(`${WORDS}|\\p{N}{1,3}|${OTHERS}`), byteLevel({ use_regex: false })),
    post_processor: null, decoder: byteLevel() })
  const [{ id, content }] = kind.added_tokens
  kind.post_processor = sequence('processors', byteLevel(), startWith(id, content))
  return kind
}

const qwen = () => byteLevelKind({ merges: 90,
  after: [['<|endoftext|>', true], ['<|im_start|>', true], ['<|im_end|>', true], ['<think>', false]],
  model: { continuing_subword_prefix: '', end_of_word_suffix: '' }, normalizer: { type: 'NFC' },
  pre_tokenizer: sequence('pretokenizers', split(`${WORDS}|\\p{N}|${OTHERS}`), byteLevel({ trim_offsets: false, use_regex: false })),
  post_processor: byteLevel({ trim_offsets: false, use_regex: false }),
  decoder: byteLevel({ trim_offsets: false, use_regex: false }) })

// o200k_base of GPT-4o: a word begins at an upper-case letter after a lower-case one, and ends with a contraction
const o200kWord = (upper, lower) => '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]' + upper +
  '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]' + lower + "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
const gptOss = () => byteLevelKind({ merges: 90, extra: WHOLE_WORDS,
  after: [['<|startoftext|>', true], ['<|start|>', true], ['<|message|>', true], ['<|end|>', true]],
  model: { ignore_merges: true }, normalizer: null,
  pre_tokenizer: sequence('pretokenizers',
    split(`${o200kWord('*', '+')}|${o200kWord('+', '*')}|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`),
    byteLevel({ use_regex: false })),
  post_processor: byteLevel({ trim_offsets: false }), decoder: byteLevel() })

const smol = () => byteLevelKind({ merges: 90,
  before: ['<|endoftext|>', '<|im_start|>', '<|im_end|>'], normalizer: null,
  pre_tokenizer: sequence('pretokenizers', { type: 'Digits', individual_digits: true }, byteLevel()),
  post_processor: null, decoder: byteLevel({ add_prefix_space: true }) })

/** Llama 2's pieces: bytes, the 48 most frequent characters, and what was merged from them. Merges
    are listed as real conversions do it: every way to cut a piece into two pieces of the list. */
function llama2({ specials = ['<unk>', '<s>', '</s>'], bos = '<s>', ...rest }) {
  const text = CORPUS.replaceAll(' ', '▁')
  const count = (character) => text.split(character).length
  const characters = [...new Set(text.replaceAll('\n', ''))]
    .sort((a, b) => count(b) - count(a) || (a < b ? -1 : 1)).slice(0, 48)
  // words with the ▁ before them, and rows of ▁ by themselves; characters out of the list part words
  const words = text.match(/▁+(?=▁)|▁?[^▁\n]+/g).flatMap((word) =>
    word.split(new RegExp(`[^${characters.map((c) => `\\u{${c.codePointAt(0).toString(16)}}`).join('')}]`, 'u')))
  const merged = train(words, 107).map((pair) => pair.join(''))
  merged.push(...['▁▁', '▁▁▁▁', '▁▁▁▁▁▁▁▁'].filter((piece) => !merged.includes(piece)))
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`)
  const vocab = numbered([...specials, ...bytes, ...characters, ...merged])
  const merges = merged.flatMap((piece) =>
    Array.from({ length: piece.length - 1 }, (_, i) => [piece.slice(0, i + 1), piece.slice(i + 1)])
      .filter(([left, right]) => left in vocab && right in vocab)
      .sort(([a, b], [c, d]) => vocab[a] - vocab[c] || vocab[b] - vocab[d])
      .map((pair) => pair.join(' ')))
  return whole({
    added_tokens: specials.map((content, id) => added(id, content)),
    ...rest,
    post_processor: startWith(vocab[bos], bos),
    decoder: sequence('decoders', { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
      { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }),
    model: { type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: null,
      end_of_word_suffix: null, fuse_unk: true, byte_fallback: true, vocab, merges },
  })
}

const prepending = { normalizer: sequence('normalizers', { type: 'Prepend', prepend: '▁' },
  { type: 'Replace', pattern: { String: ' ' }, content: '▁' }), pre_tokenizer: null }
const metaspace = { normalizer: null,
  pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: false } }

// Without a space in front. The normalizer leaves no space to split at.
function gemma() {
  const specials = ['<pad>', '<eos>', '<bos>', '<unk>', '<start_of_turn>', '<end_of_turn>']
  const kind = llama2({ specials, bos: '<bos>', normalizer: { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false } })
  kind.decoder.decoders.pop()
  kind.model.merges = kind.model.merges.map((pair) => pair.split(' '))
  const lines = Object.keys(kind.model.vocab).length
  kind.model.vocab['\n\n'] = lines
  kind.added_tokens.push(added(lines, '\n\n', false))
  return kind
}

/** BERT: what the WordPieceTrainer learns from the text, of which the first `count` tokens are kept. */
function bert({ lowercase, count }) {
  const specials = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
  const cls = { SpecialToken: { id: '[CLS]', type_id: 0 } }
  const part = (id, type_id) => [{ Sequence: { id, type_id } }, { SpecialToken: { id: '[SEP]', type_id } }]
  const model = { type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100, vocab: {} }
  const kind = whole({
    added_tokens: [],
    normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: null,
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model,
  })
  const file = join(mkdtempSync(join(tmpdir(), 'bert')), 'text.txt')
  writeFileSync(file, CORPUS)
  const trained = Tokenizer.fromString(JSON.stringify(kind))
  trained.train([file])
  const learned = Object.entries(trained.getVocab()).sort(([, a], [, b]) => a - b).map(([token]) => token)
  model.vocab = numbered([...specials, ...learned].slice(0, count))
  kind.added_tokens = specials.map((content, id) => added(id, content))
  kind.post_processor = { type: 'TemplateProcessing', single: [cls, ...part('A', 0)],
    pair: [cls, ...part('A', 0), ...part('B', 1)],
    special_tokens: Object.fromEntries(['[CLS]', '[SEP]'].map((id) => [id, { id, ids: [model.vocab[id]], tokens: [id] }])) }
  return kind
}

/** The texts for every kind; `a` and `b` are two of its added tokens. */
const texts = (a, b) => [
  '', ' ', '     ', '             x', 'Hello world, hello again!', '  the cat and the other cat  ',
  'one\ntwo\r\n\r\nthree \n\n\n  four\n', 'a\tb\t\tc \t d', "don't it's I've", "DON'T we'll WE'REALLY o'clock 'tis",
  '12345 3.14159 100000', 'in 1999, x2y: !\u00bd\u00bd a\u00b2 \u00bd \u0661\u0662\u0663 \u2167',
  'for (int i = 0; i < 100; ++i) {\n        if (i % 2 == 0) {\n            return total;\n        }\n}\n',
  'Die Größe der schönen Häuser über der Straße', 'Le café près de la forêt', 'cafe\u0301 e\u0301te\u0301 a\u030a\u0323',
  'Ελληνικά 中文字符 हिन्दी Русский', '\u{1f44b}\u{1f3fd} \u{1f468}\u200d\u{1f469}\u200d\u{1f467} \u{1f1e9}\u{1f1ea}!',
  SPACES, '▁the▁▁cat ▁ Ġthe Ċ', ' ▁', 'Donaudampfschifffahrtsgesellschaft',
  'aaaaaaaaaaaaa thethethe inginging', 'tHe MiXeD cAsE ofThe textAndTHEText', 'What?!?... (---) == != "[]" \u2026\u00ab\u00bb',
  '<0x41> <0x4> 0x41>', '\u0000\u0001 \u007f', `${a}Hello world`, `Hello world${a}`, `the cat ${a} and the cat`,
  `the${a}${a}the`, `  ${a}  ${b}\n${b} `, `${a}`, `${a} ${a}\u00e9${b}12`, `<|im_st <s <|endof${a.slice(0, -1)} >${a.slice(1)}`,
]

const spacing = ['<unk>the', '\nthe cat', 'a                return j', 'a<s> the cat</s>  the cat']
const BERT_TEXTS = [
  'ÀÉÎõü Ångström İstanbul STRASSE Straße ΣΊΣΥΦΟΣ Ǆungla \ufb01ne', 'The cat\u0301s re\u0301ad na\u0308\u0323ive',
  '中文字符 and 日本語 にほんごカタカナ 한국어 \u{20000}\u{2b740}x 豈the中cat', 'th\u0000e c\u200da\u00adt\ufffd s\u0007at\u2028on\u0085the\u0009mat\u000ba\u001fb\u180ec',
  'a'.repeat(100), 'a'.repeat(101), `${'the'.repeat(33)}x the ${'the'.repeat(34)}`, '\u00e9'.repeat(100), '\u00e9'.repeat(101),
  'e\u0301'.repeat(51), 'a!b"c#d$e%f&g\'h(i)j*k+l,m-n.o/p:q;r<s=t>u?v@w[x\\y]z^a_b`c{d|e}f~g',
  '\u00bfqué? \u00abx\u00bb \u2014 \u201cy\u201d\u2026 \u2030 \u20ac5 \u00a7 \u00b6 \u00b7 3\u00d74 2\u00b2 \uff01 \u3002 \u203b', 'xyzzy the q\u0142 readings unreadable',
  'the [mask] [MASK]s [MASK ] un[MASK]ing ##the #the the##', 'do not, does n\'t I \'m we \'ve . ! ?', '[SEP][CLS] [PAD] [UNK]',
]
const PAIRS = [['the cat sat', 'on the mat.'], ['', ''], ['the cat', ''], ['', 'the cat'], ['the [SEP] cat', '[MASK] é中']]
const KINDS = [
  ['gpt2', gpt2(), ['<|endoftext|>', '<|endoftext|>']],
  ['llama3', llama3(), ['<|begin_of_text|>', '<|eot_id|>'],
    ['the lighthouse', 'the lighthouses', ' lighthouse lighthouse', 'zylinder Zylinder\ngemüse Gemüse', '789 1789 78 123789']],
  ['qwen', qwen(), ['<|im_start|>', '<think>'],
    ['\u1112\u1161\u11ab \ud55c', '\u212b \u2126 \ufb01', 'q\u0307\u0323 q\u0323\u0307', 'e<think>\u0301</think>\u0301']],
  ['smol', smol(), ['<|im_end|>', '<|im_start|>']],
  ['llama2', llama2(prepending), ['<s>', '</s>'], spacing],
  ['metaspace', llama2(metaspace), ['<s>', '</s>'], spacing],
  ['gpt_oss', gptOss(), ['<|start|>', '<|message|>'],
    ["HTMLParser's DON'Tcare isn'tIt XMLHttpRequest", 'a/b/\n//c/\r\n/', 'ǅungla ʰa ªb ΑβΓ', 'the lighthouse', "We'LL'd 'll"]],
  ['gemma', gemma(), ['<start_of_turn>', '<end_of_turn>'], ['<unk>the', '\nthe cat', 'a\n\n\n\nb\n\n \n', 'a                return j', 'x ']],
  ['../25_encoders/bert_uncased', bert({ lowercase: true, count: 320 }), ['[MASK]', '[SEP]'], BERT_TEXTS],
  ['../25_encoders/bert_cased', bert({ lowercase: false }), ['[MASK]', '[SEP]'], BERT_TEXTS],
]

const escaped = (value) => JSON.stringify(value)
  .replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

for (const [name, description, [a, b], more = []] of KINDS) {
  const tokenizer = Tokenizer.fromString(JSON.stringify(description))
  const witness = new Witness(description, {})
  for (const { content, id } of description.added_tokens) {
    if (tokenizer.tokenToId(content) !== id) throw new Error(`${name}: ${content} has another id`)
  }
  const cases = []
  for (const text of [...texts(a, b), ...more]) {
    const encode = async (addSpecialTokens) => (await tokenizer.encode(text, null, { addSpecialTokens })).getIds()
    const ids = await encode(true)
    const decoded = await tokenizer.decode(ids, true)
    cases.push({ text, ids, without_special: await encode(false), decoded })
    const other = witness.encode(text).ids
    const back = ids.length ? witness.decode(ids, { skip_special_tokens: true, clean_up_tokenization_spaces: false }) : ''
    if (`${other}` !== `${ids}`) console.log(`${name} ${escaped(text)}: Rust ${ids}, JavaScript ${other}`)
    if (back !== decoded) console.log(`${name} ${escaped(text)}: Rust ${escaped(decoded)}, JavaScript ${escaped(back)}`)
  }
  const pairs = []
  for (const [first, second] of description.model.type === 'WordPiece' ? PAIRS : []) {
    const encoding = await tokenizer.encode(first, second)
    pairs.push({ first, second, ids: encoding.getIds(), type_ids: encoding.getTypeIds() })
  }
  const folder = new URL(`${name}/`, OUT)
  mkdirSync(folder, { recursive: true })
  writeFileSync(new URL('tokenizer.json', folder), JSON.stringify(description, null, 1) + '\n')
  writeFileSync(new URL('encodings.json', folder), `{"cases": [\n${cases.map(escaped).join(',\n')}\n]${
    pairs.length ? `,\n"pairs": [\n${pairs.map(escaped).join(',\n')}\n]` : ''}}\n`)
  if (pairs.length) writeFileSync(new URL('../text.txt', folder), CORPUS)
  console.log(`${name}: ${tokenizer.getVocabSize(true)} tokens, ${description.model.merges?.length ?? 0} merges, ${cases.length} cases`)
}
