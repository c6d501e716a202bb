// Checks /v1/embeddings of ./learn serve with OpenAI's own client, against the vectors that PyTorch
// computed for the fixtures. Prints one line per check. Exits with 1 if one fails, and with 77 if the
// server or the client is missing, or Node is too old for the client.
// Usage: node tests/checks/check_embeddings.mjs BUILD, after npm --prefix tests/checks/clients ci.
import { cpSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { check, exit, failure, raw, start } from '../support/serve_checks.mjs'

const fixtures = fileURLToPath(new URL('../fixtures', import.meta.url))

// A folder with the fixture's weights, and words as the tokens 0 to 30.
function writeEncoder(name) {
  const folder = join(mkdtempSync(join(tmpdir(), 'encoder_')), name)
  const from = join(fixtures, 'models', name)
  const tokens = ['[UNK]', '[CLS]', '[SEP]', ...Array.from({ length: 28 }, (_, i) => String.fromCharCode(97 + i % 26).repeat(1 + Math.floor(i / 26)))]
  const special = (content, id) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true })
  const piece = id => ({ SpecialToken: { id, type_id: 0 } })
  const tokenizer = {
    version: '1.0', truncation: null, padding: null, added_tokens: ['[UNK]', '[CLS]', '[SEP]'].map(special),
    normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: {
      type: 'TemplateProcessing', single: [piece('[CLS]'), { Sequence: { id: 'A', type_id: 0 } }, piece('[SEP]')],
      pair: [piece('[CLS]'), { Sequence: { id: 'A', type_id: 0 } }, piece('[SEP]'), { Sequence: { id: 'B', type_id: 1 } }, { SpecialToken: { id: '[SEP]', type_id: 1 } }],
      special_tokens: { '[CLS]': { id: '[CLS]', ids: [1], tokens: ['[CLS]'] }, '[SEP]': { id: '[SEP]', ids: [2], tokens: ['[SEP]'] } } },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model: { type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100, vocab: Object.fromEntries(tokens.map((token, id) => [token, id])) } }
  cpSync(from, folder, { recursive: true })
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer))
  return folder
}

// The numbers of a .npy file of float32, or of int64.
function npy(name) {
  const file = readFileSync(join(fixtures, '25_encoders', `${name}.npy`))
  const begin = 10 + file.readUInt16LE(8), header = file.subarray(10, begin).toString()
  const bytes = file.buffer.slice(file.byteOffset + begin, file.byteOffset + file.length)
  return { shape: /\((.*?)\)/.exec(header)[1].split(',').filter(Boolean).map(Number),
    values: header.includes('<i8') ? Array.from(new BigInt64Array(bytes), Number) : Array.from(new Float32Array(bytes)) }
}
// Text n of the fixtures' batch: its ids, and the mean of its vectors, which has length 1.
function expected(encoder, n, length) {
  const ids = npy('input_ids'), states = npy(`${encoder}_last_hidden_state`)
  const [, T, C] = states.shape
  const sum = Array.from({ length: C }, (_, c) => { let x = 0; for (let t = 0; t < length; ++t) x += states.values[(n * T + t) * C + c]; return x })
  const norm = Math.hypot(...sum)
  return { ids: ids.values.slice(n * T, n * T + length), vector: sum.map(x => x / norm) }
}
const difference = (a, b) => a.length === b.length ? Math.max(...a.map((x, i) => Math.abs(x - b[i]))) : Infinity

async function vectors(name) {
  const server = await start('--model', writeEncoder(name), '--matryoshka'), { client, url } = server
  const texts = [expected(name, 1, 7), expected(name, 2, 4)], model = name
  check(`${name}: it is listed`, (await client.models.list()).data[0].id === name)
  const create = (input, more = {}) => client.embeddings.create({ model, input, ...more })

  // The client asks for base64 by itself, and decodes it.
  const both = await create(texts.map(({ ids }) => ids))
  check(`${name}: the vectors equal PyTorch's`, both.data.every(({ embedding, index }, n) => index === n && difference(embedding, texts[n].vector) < 2e-5))
  check(`${name}: usage`, both.usage.prompt_tokens === 11 && both.usage.total_tokens === 11 && both.model === name && both.object === 'list')
  const floats = await create(texts[0].ids, { encoding_format: 'float', user: 'me' })
  check(`${name}: base64 and float are the same numbers`, difference(floats.data[0].embedding, both.data[0].embedding) < 1e-7)

  // A text is its tokens between [CLS] and [SEP]: c is token 5.
  const text = await create('C d  unknownword'), ids = await create([1, 5, 6, 0, 2])
  check(`${name}: a text is [CLS] text [SEP], in lower case, with [UNK]`, difference(text.data[0].embedding, ids.data[0].embedding) === 0 && text.usage.prompt_tokens === 5)
  const many = await create(['a b c', 'd', 'c d unknownword'])
  check(`${name}: texts keep their order`, difference(many.data[2].embedding, text.data[0].embedding) < 1e-6 && many.data.length === 3)
  const short = await create('C d unknownword', { dimensions: 5 })
  const norm = Math.hypot(...text.data[0].embedding.slice(0, 5))
  check(`${name}: fewer dimensions have length 1 again`, difference(short.data[0].embedding, text.data[0].embedding.slice(0, 5).map(x => x / norm)) < 1e-6)

  check(`${name}: an empty text`, await failure(create('')) === '400 input')
  check(`${name}: no text`, await failure(create([])) === '400 input')
  check(`${name}: a text that is too long`, await failure(create('a '.repeat(15))) === '400 input context_length_exceeded')
  check(`${name}: a text of the last length`, (await create('a '.repeat(14))).usage.prompt_tokens === 16)
  check(`${name}: another model`, await failure(client.embeddings.create({ model: 'other', input: 'a' })) === '404 model model_not_found')
  const message = async promise => promise.then(() => 'accepted', error => error.message)
  check(`${name}: it is no chat model`, await message(client.chat.completions.create({ model, messages: [{ role: 'user', content: 'Hi' }] })) ===
    `400 the model ${name} is an encoder, which writes no text; /v1/embeddings gives its vectors`)
  check(`${name}: it completes nothing`, await failure(client.completions.create({ model, prompt: 'Hi' })) === '400 model')
  check(`${name}: it answers nothing`, await failure(client.responses.create({ model, input: 'Hi' })) === '400 model')
  check(`${name}: metrics`, /llm_prompt_tokens_total [1-9]/.test(await (await fetch(`${url}/metrics`)).text()))

  // Many clients at once.
  const answers = await Promise.all(Array.from({ length: 40 }, (_, i) => create(i % 2 ? texts[0].ids : texts[1].ids)))
  check(`${name}: many clients`, answers.every(({ data }, i) => difference(data[0].embedding, texts[i % 2 ? 0 : 1].vector) < 2e-5))
  const get = await raw(server, 'GET /v1/embeddings HTTP/1.1\r\nHost: localhost\r\n\r\n')
  check(`${name}: GET is not a method`, get.startsWith('HTTP/1.1 405') && get.includes('Allow: POST'))
  const unfinished = await raw(server, `POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 41\r\n\r\n${'{"model":"'}`, 50, null)
  check(`${name}: half a request`, !unfinished.includes('200 OK'))
  server.child.kill('SIGINT')
  check(`${name}: it ends`, await server.ended === 130 || await server.ended === 0, String(await server.ended))
}

async function keysAndDecoders() {
  const server = await start('--model', writeEncoder('bert'), '--api-key', 'key', '--context-length', '6')
  const create = key => fetch(`${server.url}/v1/embeddings`, { method: 'POST', headers: { 'Content-Type': 'application/json', ...key }, body: '{"model":"bert","input":"a b"}' })
  check('an encoder needs the key, too', (await create({})).status === 401 && (await create({ Authorization: 'Bearer key' })).status === 200)
  check('a shorter context', await failure(server.client.embeddings.create({ model: 'bert', input: 'a b c d e' })) === '400 input context_length_exceeded')
  check('fewer dimensions need --matryoshka', await failure(server.client.embeddings.create({ model: 'bert', input: 'a', dimensions: 3 })) === '400 dimensions unsupported_parameter')
  const decoder = await start()
  const answer = await decoder.client.embeddings.create({ model: 'wordnet_answers', input: 'a' }).then(() => 'accepted', error => error.message)
  check('a decoder has no vectors', answer === '400 the model wordnet_answers writes texts; /v1/embeddings needs an encoder, such as BERT', answer)
}

await vectors('bert')
await vectors('modernbert')
await keysAndDecoders()
exit()
