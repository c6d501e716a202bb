// Writes tests/fixtures/26_encoder_decoder/unigram/KIND/{tokenizer.json,encodings.json}: small Unigram tokenizers
// with the components of published ones, and the ids of many texts from Hugging Face's own library. A
// tool for maintainers: building, running and testing the project does not need node. To run it, with
// Debian's package sentencepiece:
//
//   npm install --prefix FOLDER tokenizers@0.23.2
//   node tests/make/make_unigram_fixtures.mjs FOLDER
//   node tests/make/make_unigram_fixtures.mjs FOLDER OUT 4000 [SEED]
//
// The second form writes to OUT instead, with SentencePiece's nmt_nfkc (240 KB) as the normalizer, and 4000
// random texts for each kind. To compare them: UNIGRAM_CASES=OUT build/test_models -tc='*UNIGRAM_CASES*'
//
// The vocabularies are those that SentencePiece learns from text.txt, and one that tokenizers learns (another
// one in each run). ties has scores of few values, so that many segmentations are equally good.

import { createRequire } from 'node:module'
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const require = createRequire(resolve(process.argv[2] ?? '.', 'script.js'))
const { Tokenizer } = require('tokenizers')
const FIXTURES = fileURLToPath(new URL('../fixtures/25_encoders/', import.meta.url))
const TEXT = join(FIXTURES, 'text.txt')
const CORPUS = readFileSync(TEXT, 'utf8')
const OUT = process.argv[3] ?? join(FIXTURES, 'unigram')
const COUNT = Number(process.argv[4] ?? 0)
const WORK = mkdtempSync(join(tmpdir(), 'unigram'))

/** mulberry32: a random number from 0 to 1. */
let state = Number(process.argv[5] ?? 77)
function random() {
  state = (state + 0x6d2b79f5) | 0
  let t = Math.imul(state ^ (state >>> 15), 1 | state)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
}
const below = (n) => Math.floor(random() * n)
const one = (list) => list[below(list.length)]

// A few rules of NFKC, in hexadecimal: "ª", full-width "Ａ", ligatures, white space, control characters.
const RULES = ['aa>61', 'aa 300>e0', '61 300>e0', '65 301>e9', 'ff21>41', 'ff21 301>c1', '41 301>c1', 'fb01>66 69',
  '9>20', 'a>20', 'd>20', 'a0>20', '3000>20', '1>', 'ad>', '1100 1161>ac00', '2163>49 56', '1d400>41', 'e33>e4d e32']

/** The fields of a protobuf message: [number, value]. */
function* fields(bytes) {
  let at = 0
  const varint = () => {
    let value = 0
    for (let shift = 1; ; shift *= 128) {
      const byte = bytes[at++]
      value += (byte & 127) * shift
      if (byte < 128) return value
    }
  }
  while (at < bytes.length) {
    const key = varint()
    if (key % 8 === 0) yield [key >> 3, varint()]
    else if (key % 8 === 5) yield [key >> 3, bytes.readFloatLE((at += 4) - 4)]
    else { const size = varint(); yield [key >> 3, bytes.subarray(at, (at += size))] }
  }
}

/** What SentencePiece learns from the text: tokens, scores and the normalizer's table. */
function sentencepiece(...options) {
  const rules = join(WORK, 'rules.tsv')
  writeFileSync(rules, RULES.map((rule) => `${rule.replace('>', '\t')}\n`).join(''))
  execFileSync('spm_train', [`--input=${TEXT}`, `--model_prefix=${join(WORK, 'model')}`, '--hard_vocab_limit=false',
    '--minloglevel=2', '--num_threads=1', COUNT ? '--normalization_rule_name=nmt_nfkc' : `--normalization_rule_tsv=${rules}`,
    ...options], { stdio: 'ignore' })
  const vocab = []
  let charsmap
  for (const [number, value] of fields(readFileSync(join(WORK, 'model.model')))) {
    const inner = Object.fromEntries(number === 1 || number === 3 ? fields(value) : [])
    if (number === 1) vocab.push([inner[1].toString(), inner[2] ?? 0])
    if (number === 3) charsmap = inner[2].toString('base64')
  }
  return { vocab, charsmap }
}

const added = (id, content, settings = {}) =>
  ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...settings })
const sequence = (list, ...items) => ({ type: 'Sequence', [list]: items })
const replace = (kind, pattern, content) => ({ type: 'Replace', pattern: { [kind]: pattern }, content })
const precompiled = (precompiled_charsmap) => ({ type: 'Precompiled', precompiled_charsmap })
const metaspace = (prepend_scheme, split = true) => ({ type: 'Metaspace', replacement: '▁', prepend_scheme, split })
const words = (scheme) => sequence('pretokenizers', { type: 'WhitespaceSplit' }, metaspace(scheme))
const part = (kind, id, type_id = 0) => ({ [kind]: { id, type_id } })

/** Special tokens around a text; `names` are the tokens, A and B the texts. */
function template(vocab, single, pair) {
  const parts = (names) => names.split(' ').map((name) => part(/^[AB]$/.test(name) ? 'Sequence' : 'SpecialToken', name))
  const tokens = [...new Set(`${single} ${pair}`.split(' '))].filter((name) => !/^[AB]$/.test(name))
  const id = (token) => vocab.findIndex(([other]) => other === token)
  return { type: 'TemplateProcessing', single: parts(single), pair: parts(pair),
    special_tokens: Object.fromEntries(tokens.map((name) => [name, { id: name, ids: [id(name)], tokens: [name] }])) }
}

const whole = ({ vocab, specials, unk, byte_fallback = false, ...rest }) => ({ version: '1.0', truncation: null, padding: null,
  added_tokens: specials.map((token) => added(vocab.findIndex(([other]) => other === token), token)),
  normalizer: null, post_processor: null, decoder: metaspace('always'), ...rest,
  model: { type: 'Unigram', unk_id: vocab.findIndex(([token]) => token === unk), vocab, byte_fallback } })

function t5() {
  const { vocab, charsmap } = sentencepiece('--vocab_size=220', '--pad_id=0', '--eos_id=1', '--unk_id=2', '--bos_id=-1')
  const kind = whole({ vocab, specials: ['<pad>', '</s>', '<unk>'], unk: '<unk>', normalizer: precompiled(charsmap),
    pre_tokenizer: words('always'), post_processor: template(vocab, 'A </s>', 'A </s> B </s>') })
  kind.added_tokens.push(...[1, 0].map((n, i) => added(vocab.length + i, `<extra_id_${n}>`)))
  return kind
}

function xlmR() {
  const { vocab, charsmap } = sentencepiece('--vocab_size=160', '--bos_id=0', '--pad_id=1', '--eos_id=2', '--unk_id=3')
  vocab.push(['<mask>', 0])
  const kind = whole({ vocab, specials: ['<s>', '<pad>', '</s>', '<unk>', '<mask>'], unk: '<unk>',
    normalizer: sequence('normalizers', precompiled(charsmap), { type: 'Strip', strip_left: false, strip_right: true },
      replace('Regex', ' {2,}', '▁')),
    pre_tokenizer: metaspace('always'), post_processor: template(vocab, '<s> A </s>', '<s> A </s> </s> B </s>') })
  kind.added_tokens[4].lstrip = true
  return kind
}

function albert() {
  const { vocab, charsmap } = sentencepiece('--vocab_size=200', '--pad_id=0', '--unk_id=1', '--bos_id=2', '--eos_id=3',
    '--bos_piece=[CLS]', '--eos_piece=[SEP]', '--user_defined_symbols=[MASK]')
  return whole({ vocab, specials: ['<pad>', '<unk>', '[CLS]', '[SEP]', '[MASK]'], unk: '<unk>',
    normalizer: sequence('normalizers', replace('String', '``', '"'), replace('String', "''", '"'), { type: 'NFKD' },
      { type: 'StripAccents' }, { type: 'Lowercase' }, precompiled(charsmap)),
    pre_tokenizer: words('always'), post_processor: template(vocab, '[CLS] A [SEP]', '[CLS] A [SEP] B [SEP]') })
}

// A text is one word, whose first space is the one that is prepended; bytes instead of the unknown token.
function bytes() {
  const { vocab } = sentencepiece('--vocab_size=440', '--byte_fallback', '--character_coverage=0.98', '--split_by_whitespace=false')
  const kind = whole({ vocab, specials: ['<unk>', '<s>', '</s>'], unk: '<unk>', byte_fallback: true,
    pre_tokenizer: metaspace('first', false), decoder: sequence('decoders', replace('String', '▁', ' '), { type: 'ByteFallback' },
      { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }) })
  kind.added_tokens.push(added(vocab.length, 'New Tok', { special: false, normalized: true }))
  return kind
}

// A token with several ▁, of which none is left at the beginning of a decoded text.
function spaces() {
  const { vocab } = sentencepiece('--vocab_size=150', '--split_by_whitespace=false')
  vocab.push(['▁▁', -3.5], ['▁▁▁▁', -4], ['▁the▁', -5])
  return whole({ vocab, specials: ['<unk>', '<s>', '</s>'], unk: '<unk>', pre_tokenizer: metaspace('first', false),
    decoder: metaspace('first', false) })
}

function huggingFace() {
  const kind = whole({ vocab: [['<unk>', 0]], specials: ['<unk>'], unk: '<unk>', pre_tokenizer: metaspace('never'), decoder: metaspace('never') })
  const trained = Tokenizer.fromString(JSON.stringify(kind))
  trained.train([TEXT])
  const file = join(WORK, 'trained.json')
  trained.save(file)
  kind.model.vocab.push(...JSON.parse(readFileSync(file, 'utf8')).model.vocab) // the trainer drops the unknown token
  return kind
}

// Substrings of the text with scores of few values, also above 0; token 1 is the unknown one.
function ties() {
  const flat = CORPUS.replaceAll(/\s/g, '▁')
  const tokens = new Set(['the', '<unk>', ...[...new Set(flat)].slice(0, 24)])
  while (tokens.size < 400) { const at = below(flat.length); tokens.add([...flat.slice(at, at + 2 + below(4))].join('')) }
  const vocab = [...tokens].filter((token) => token.isWellFormed()).map((token) => [token, one([-4, -3, -2, -1, -1.5, 0, 0.5])])
  return whole({ vocab, specials: ['<unk>'], unk: '<unk>', pre_tokenizer: metaspace('first'), decoder: metaspace('first') })
}

/** Texts that have gone wrong somewhere; `a` and `b` are two of the added tokens. */
const texts = (a, b) => ['', ' ', '   ', 'the cat', '  the  cat ', 'Hello world, hello again!', 'one\ntwo\r\n\r\nthree\n', 'a\tb\t\tc',
  "don't it's", '``Hello\'\' "it"', '12345 3.14159', 'Die Größe der schönen Häuser', 'Le café près de la forêt', 'cafe\u0301 e\u0301',
  '\u00aa \u00aa\u0300 \uff21 \uff21\u0301 \ufb01 \ufb01\u0301 a\u0300\u0301 \u2163', '\u00aa\u0e33 \u1100\u1161 \u{1d400}\u0301 a\u0e33',
  'th\u0001e c\u00adat\u0001', '\u0001', '\u0001the', 'a\r\u0301\nb \u0301 \u0301c', '\u0000a\u0000', '\u0600e\u0301 \u0600\u00aa',
  'Ελληνικά 中文字符 हिन्दी Русский', '中文', 'a中b文c', '\u{1f44b}\u{1f3fd} \u{1f468}\u200d\u{1f469}\u200d\u{1f467} \u{1f1e9}\u{1f1ea}!',
  'a\u00a0b\u3000c\u2009d\u0085e\u200bf\u2028g\ufeff', '▁the▁▁cat ▁', '▁▁▁', '▁', 'inginging thethethe', 'the    cat', '        the', ' the ',
  'THE TITLE', 'İstanbul ΣΊΣΥΦΟΣ Straße', '<0x41> <0xE4>', 'New Tok new tok', '<unk>the', `${a}the cat`, `the cat${b}`, `the ${a} cat`,
  `the${a}${b}the`, `  ${a}  ${b}\n${b} `, `${a}`, `${a} ${a}中 ${b}12`, `${a.slice(0, -1)} ${a.slice(1)}`, 'aa aaa aaaa aaaaaaaaa']

const RANGES = [[0x20, 0x7e], [0x20, 0x7e], [0, 0x1f], [0xa0, 0x17f], [0x300, 0x36f], [0x300, 0x36f], [0x370, 0x5ff], [0x600, 0x6ff],
  [0x900, 0x97f], [0xe01, 0xe5b], [0x1100, 0x11ff], [0x1e00, 0x1fff], [0x2000, 0x206f], [0x2070, 0x218f], [0x2460, 0x24ff], [0x3000, 0x30ff],
  [0x3200, 0x33ff], [0x4e00, 0x4eff], [0xac00, 0xac5f], [0xf900, 0xf95f], [0xfb00, 0xfb4f], [0xfe00, 0xffef], [0x1d400, 0x1d4ff], [0x1f300, 0x1f64f]]
const WORDS = CORPUS.split(/\s+/)

function randomText(tokens) {
  let text = ''
  for (let n = 1 + below(12); n > 0; --n) {
    const choice = below(10)
    if (choice < 3) text += one(WORDS)
    else if (choice < 4) text += one(WORDS).slice(below(5), 3 + below(5))
    else if (choice < 5) text += ' '.repeat(1 + below(3))
    else if (choice < 6) text += one(tokens)
    else if (choice < 7) text += one(['\u00aa', '\ufb01', '\uff21', 'e', '\u2163', '\u00bd', '▁', '\u3000']) + one(['\u0301', '\u0300', '\u0323\u0301', '\u200d', '\u0e33', '\ufe0f'])
    else for (let m = 1 + below(3); m > 0; --m) {
      const [low, high] = one(RANGES)
      text += String.fromCodePoint(low + below(high - low + 1))
    }
    if (below(2)) text += ' '
  }
  return text
}

const KINDS = { t5: [t5, '<extra_id_0>', '</s>'], xlm_r: [xlmR, '<mask>', '<s>'], albert: [albert, '[MASK]', '[SEP]'],
  bytes: [bytes, 'New Tok', '</s>'], spaces: [spaces, '<s>', '</s>'], hugging_face: [huggingFace, '<unk>', '<unk>'], ties: [ties, '<unk>', '<unk>'] }

const escaped = (value) => JSON.stringify(value)
  .replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)

for (const [name, [make, a, b]] of Object.entries(KINDS)) {
  const description = make()
  const tokenizer = Tokenizer.fromString(JSON.stringify(description))
  const tokens = description.added_tokens.map(({ content }) => content)
  const all = [...texts(a, b), ...Array.from({ length: COUNT }, () => randomText([...tokens, 'the']))]
  const cases = []
  for (const text of all) {
    const ids = (await tokenizer.encode(text)).getIds()
    cases.push({ text, ids, decoded: await tokenizer.decode(ids, true) })
  }
  mkdirSync(join(OUT, name), { recursive: true })
  const vocab = description.model.vocab.map((pair) => `  ${escaped(pair)}`).join(',\n')
  const rest = JSON.stringify({ ...description, model: { ...description.model, vocab: [] } }, null, 1)
  writeFileSync(join(OUT, name, 'tokenizer.json'), `${rest.replace('"vocab": []', () => `"vocab": [\n${vocab}\n  ]`)}\n`)
  writeFileSync(join(OUT, name, 'encodings.json'), `{"cases": [\n${cases.map(escaped).join(',\n')}\n]}\n`)
  console.log(`${name}: ${description.model.vocab.length} tokens, ${cases.length} cases`)
}
