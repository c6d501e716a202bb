// Checks with the real llama.cpp that it reads the GGUF files of ./learn 16 --export: the same
// token ids, the same greedy tokens and the same probabilities as ours, also of a model of type
// qwen2; that a file without the permutation of q and k fails; that an adapter, applied by llama.cpp
// or merged by us, changes the answers as it does here; and that the files of ./learn 17 --gguf (types
// gemma2 and gemma3_text), ./learn 18 --gguf (mixtral, qwen3_moe, gpt_oss and llama4_text) and ./learn
// model --gguf (all other families) have the same logits, and encoders the same vectors of texts and BERT's tokenizers
// the same ids. Prints one line per check. Exits with 1 if one fails, and with 77 if llama.cpp is
// missing. Needs Node 20 and the npm package node-llama-cpp.
// Usage: node tests/checks/check_llama_cpp.mjs FOLDER BUILD, with node_modules in the folder.
import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const [folder, build] = process.argv.slice(2)
const library = resolve(folder, 'node_modules/node-llama-cpp/dist/index.js')
if (!existsSync(library)) {
  console.log(`skipped: ${folder} has no node_modules/node-llama-cpp`)
  process.exit(77)
}
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(library))
const llama = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.error })

const king_james = fileURLToPath(new URL('../../assets/king_james', import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'check_llama_cpp_'))
process.on('exit', () => rmSync(scratch, { recursive: true }))
let failures = 0
function check(title, passed, detail) {
  console.log(`${passed ? 'passed' : 'FAILED'}: ${title} (${detail})`)
  if (!passed) ++failures
}

// The lines of JSON that a program prints.
function run(program, ...options) {
  const output = execFileSync(resolve(build, program), [...options, '--json'], { maxBuffer: 2 ** 26 })
  return output.toString().trim().split('\n').map(line => JSON.parse(line))
}

// All characters of this text are in the vocabulary.
const text = `And it came to pass, when the LORD's servant (even he) had said, Who is this?
  that  he went out: yea, he did; and said unto them, Fear not!\n\n\nThou shalt be as one of us.\n`
const prompt = 'And God said'
const maxNewTokens = 40

const ourIds = run('10_tokenizer', '--tokenizer', king_james, '--encode', text)
  .find(line => line.name === 'input_ids').values

// The greedy continuation of the prompt, and the probabilities of its first tokens.
function generate(folder) {
  const lines = run('11_generation', '--model', folder, '--prompt', prompt, '--temperature', '0',
    '--max-new-tokens', String(maxNewTokens))
  return {
    text: lines.filter(line => line.type === 'generated').map(line => line.text).join('').trimEnd(),
    probabilities: lines.find(line => line.type === 'figure' && line.name === 'probabilities').values[0]
  }
}

// What llama.cpp computes: the ids of the text, and the same as generate().
async function compute(file, count) {
  const model = await llama.loadModel({ modelPath: file, useMmap: false })
  const context = await createContext(model)
  const sequence = context.getSequence()
  const promptIds = model.tokenize(prompt)
  const newIds = []
  for await (const id of sequence.evaluate(promptIds, { temperature: 0 })) {
    newIds.push(id)
    if (newIds.length === maxNewTokens) break
  }
  await sequence.clearHistory()
  const wanted = newIds.slice(0, count)
  const inputs = [...promptIds, ...wanted.slice(0, -1)].map(id => [id, { generateNext: { logits: true } }])
  const outputs = (await sequence.controlledEvaluate(inputs)).slice(promptIds.length - 1)
  const probabilities = outputs.map(({ next }, i) => softmax(next.logits).get(wanted[i]))
  const result = {
    ids: model.tokenize(text), text: model.detokenize([...promptIds, ...newIds]).trimEnd(), probabilities
  }
  await context.dispose()
  await model.dispose()
  return result
}

// llama.cpp's defaults, flash attention and a KV cache in float16, round more.
async function createContext(model, options = {}) {
  return model.createContext({
    contextSize: 256, threads: 1, flashAttention: false,
    experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32', ...options
  })
}

// The greedy answer of llama.cpp to a prompt with special tokens, and the probability of each of its tokens.
async function answer(file, prompt, lora) {
  const model = await llama.loadModel({ modelPath: file, useMmap: false })
  const context = await createContext(model, lora ? { lora } : {})
  const sequence = context.getSequence()
  let input = model.tokenize(prompt, true).map(id => [id])
  const ids = []
  const probabilities = []
  const end = model.tokenize('<|im_end|>', true)[0]
  while (ids.at(-1) !== end && ids.length < 64) {
    input.at(-1)[1] = { generateNext: { logits: true } }
    const outputs = await sequence.controlledEvaluate(input)
    const [best] = [...softmax(outputs.at(-1).next.logits)].sort((a, b) => b[1] - a[1])
    ids.push(best[0])
    probabilities.push(best[1])
    input = [[best[0]]]
  }
  const text = model.detokenize(ids.filter(id => id !== end)).trim()
  await context.dispose()
  await model.dispose()
  return { text, probabilities }
}

function softmax(logits) {
  const largest = Math.max(...logits.values())
  const total = [...logits.values()].reduce((sum, logit) => sum + Math.exp(logit - largest), 0)
  return new Map([...logits].map(([id, logit]) => [id, Math.exp(logit - largest) / total]))
}

// NaN if the tokens differ, because the probabilities are then those of other contexts.
function largestDifference(actual, expected) {
  if (actual.text !== expected.text) return NaN
  return Math.max(...actual.probabilities.map((p, i) => Math.abs(p - expected.probabilities[i])))
}

// A copy of a folder as a model of type qwen2: q_proj, k_proj and v_proj have biases.
function withBiases(folder) {
  const copy = join(scratch, 'qwen2')
  mkdirSync(copy)
  copyFileSync(join(folder, 'tokenizer.json'), join(copy, 'tokenizer.json'))
  const { attention_bias: _, ...config } = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'))
  writeFileSync(join(copy, 'config.json'), JSON.stringify({ ...config, model_type: 'qwen2' }))
  const data = readFileSync(join(folder, 'model.safetensors'))
  const headerSize = Number(data.readBigUInt64LE(0))
  const header = JSON.parse(data.toString('utf8', 8, 8 + headerSize))
  const parts = [data.subarray(8 + headerSize)]
  let end = parts[0].length
  for (const [name, { shape }] of Object.entries(header)) {
    if (!/[qkv]_proj\.weight$/.test(name)) continue
    const rows = shape[0]
    const bias = Uint16Array.from({ length: rows }, (_, i) => [0x3e00, 0xbd80, 0, 0x3d00, 0xbe00][i % 5]) // bfloat16
    header[name.replace('weight', 'bias')] = { dtype: 'BF16', shape: [rows], data_offsets: [end, end += 2 * rows] }
    parts.push(Buffer.from(bias.buffer))
  }
  const text = Buffer.from(JSON.stringify(header))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(text.length))
  writeFileSync(join(copy, 'model.safetensors'), Buffer.concat([size, text, ...parts]))
  return copy
}

// A copy of a file in float32 in which the rows of q and k are split halves again.
function withoutPermutation(file) {
  const data = readFileSync(file)
  const { metadata, tensors } = headerOf(data)
  const headDim = metadata['llama.rope.dimension_count']
  for (const { name, shape: [columns, rows], at } of tensors) {
    if (!/attn_[qk]\.weight$/.test(name)) continue
    const bytes = Buffer.from(data.subarray(at, at + 4 * rows * columns))
    for (let row = 0; row < rows; ++row) {
      const d = row % headDim
      const target = row - d + (d % 2) * headDim / 2 + Math.floor(d / 2)
      bytes.copy(data, at + 4 * columns * target, 4 * columns * row, 4 * columns * (row + 1))
    }
  }
  const copy = join(scratch, 'without_permutation.gguf')
  writeFileSync(copy, data)
  return copy
}

// The metadata, and the name, ne and first byte of each tensor.
function headerOf(data) {
  let at = 8
  const u32 = () => data.readUInt32LE((at += 4) - 4)
  const u64 = () => Number(data.readBigUInt64LE((at += 8) - 8))
  const string = () => { const size = u64(); return data.toString('utf8', at, at += size) }
  const values = {
    4: u32, 5: () => data.readInt32LE((at += 4) - 4), 6: () => data.readFloatLE((at += 4) - 4),
    7: () => data[at++] === 1, 8: string,
    9: () => { const type = u32(); return Array.from({ length: u64() }, values[type]) }
  }
  const [tensorCount, keyCount] = [u64(), u64()]
  const metadata = {}
  for (let i = 0; i < keyCount; ++i) {
    const key = string()
    metadata[key] = values[u32()]()
  }
  const tensors = []
  for (let i = 0; i < tensorCount; ++i) {
    const name = string()
    const shape = Array.from({ length: u32() }, u64)
    u32() // its type
    tensors.push({ name, shape, at: u64() })
  }
  const begin = Math.ceil(at / 32) * 32
  for (const tensor of tensors) tensor.at += begin
  return { metadata, tensors }
}

const expected = generate(king_james)
const count = expected.probabilities.length
for (const [dtype, tolerance] of [['float32', 1e-4], ['bfloat16', 0.02], ['q8_0', 0.02]]) {
  const file = join(scratch, `${dtype}.gguf`)
  execFileSync(resolve(build, '16_quantization'), ['--model', king_james, '--export', file, '--dtype', dtype])
  const computed = await compute(file, count)
  const difference = largestDifference(computed, expected)
  check(`${dtype}: the ids of a text`, String(computed.ids) === String(ourIds), `${ourIds.length} ids`)
  check(`${dtype}: ${maxNewTokens} greedy tokens`, computed.text === expected.text, computed.text.slice(0, 60) + '...')
  check(`${dtype}: probabilities within ${tolerance}`, difference < tolerance,
    `largest difference of ${count}: ${difference.toExponential(1)}`)
}
const wrong = await compute(withoutPermutation(join(scratch, 'float32.gguf')), count)
check('without the permutation of q and k, other tokens', wrong.text !== expected.text, wrong.text.slice(0, 60) + '...')

const qwen2 = withBiases(king_james)
const qwen2File = join(scratch, 'qwen2.gguf')
execFileSync(resolve(build, '16_quantization'), ['--model', qwen2, '--export', qwen2File, '--dtype', 'float32'])
const architecture = headerOf(readFileSync(qwen2File)).metadata['general.architecture']
const ofQwen2 = generate(qwen2)
const computed = await compute(qwen2File, ofQwen2.probabilities.length)
const difference = largestDifference(computed, ofQwen2)
check('qwen2: the architecture', architecture === 'qwen2', architecture)
check(`qwen2: ${maxNewTokens} greedy tokens`, computed.text === ofQwen2.text, computed.text.slice(0, 60) + '...')
check('qwen2: probabilities within 1e-4', difference < 1e-4,
  `largest difference of ${ofQwen2.probabilities.length}: ${difference.toExponential(1)}`)

// The fine-tuned model: base and adapter, as two files and as one.
const wordnet = fileURLToPath(new URL('../../assets/wordnet', import.meta.url))
const adapter = `${wordnet}_answers`
const files = Object.fromEntries(['base', 'adapter', 'merged'].map(name => [name, join(scratch, `${name}.gguf`)]))
const exporting = (...options) => execFileSync(resolve(build, '16_quantization'), ['--model', wordnet, '--dtype', 'float32', ...options])
exporting('--export', files.base)
exporting('--adapter', adapter, '--export', files.merged)
exporting('--adapter', adapter, '--export-adapter', files.adapter)
for (const question of ['What is 47 + 38?', 'Spell kitchen backward.', 'Which is larger, 31 or 13?']) {
  const lines = run('14_fine_tuning', '--ask', question)
  const ours = {
    text: lines.find(line => line.type === 'value' && line.name === 'answer').text,
    probabilities: lines.find(line => line.type === 'table').rows.map(row => Number(row[1]))
  }
  const chat = `<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n`
  for (const [name, file, lora] of [['adapter', files.base, files.adapter], ['merged', files.merged]]) {
    const theirs = await answer(file, chat, lora)
    const largest = largestDifference(theirs, ours)
    check(`${name}: ${question}`, theirs.text === ours.text && theirs.probabilities.length === ours.probabilities.length, theirs.text)
    check(`${name}: probabilities within 1e-3`, largest < 1e-3, `largest difference: ${largest.toExponential(1)}`)
  }
  const without = await answer(files.base, chat)
  check('without the adapter, another answer', without.text !== ours.text, without.text.slice(0, 60).replaceAll('\n', ' '))
}

// A model with random weights, and the vocabulary of king_james, from its config.json and the shapes of its tensors.
// scaleOf gives the width of the interval of a tensor's elements, and its middle.
function randomModel(name, config, shapes, scaleOf) {
  const folder = join(scratch, name)
  mkdirSync(folder)
  copyFileSync(join(king_james, 'tokenizer.json'), join(folder, 'tokenizer.json'))
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config))
  let state = 12345
  const uniform = () => (state = (Math.imul(1664525, state) + 1013904223) >>> 0) / 2 ** 32 - 0.5
  const header = {}
  const parts = []
  let end = 0
  for (const [tensor, shape] of shapes) {
    const [scale, offset] = scaleOf(tensor, shape)
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => offset + scale * uniform())
    header[tensor] = { dtype: 'F32', shape, data_offsets: [end, end += 4 * values.length] }
    parts.push(Buffer.from(values.buffer))
  }
  const text = Buffer.from(JSON.stringify(header))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(text.length))
  writeFileSync(join(folder, 'model.safetensors'), Buffer.concat([size, text, ...parts]))
  return folder
}

// More tokens than the window; weights with which one token is likely.
function randomGemma(type) {
  const [V, C, F, D] = [1024, 64, 96, 32]
  const L = type === 'gemma2' ? 4 : 7
  const config = {
    model_type: type, hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: 4,
    num_key_value_heads: 2, head_dim: D, vocab_size: V, max_position_embeddings: 64, rms_norm_eps: 1e-6,
    query_pre_attn_scalar: D, sliding_window: 8, hidden_activation: 'gelu_pytorch_tanh',
    ...(type === 'gemma2' ? { attn_logit_softcapping: 5, final_logit_softcapping: 30, rope_theta: 10000 }
      : { rope_theta: 1e6, rope_local_base_freq: 1e4, rope_scaling: { rope_type: 'linear', factor: 2 } })
  }
  const shapes = [['model.embed_tokens.weight', [V, C]], ['model.norm.weight', [C]]]
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    for (const [name, out, into] of [['self_attn.q_proj', 4 * D, C], ['self_attn.k_proj', 2 * D, C], ['self_attn.v_proj', 2 * D, C],
      ['self_attn.o_proj', C, 4 * D], ['mlp.gate_proj', F, C], ['mlp.up_proj', F, C], ['mlp.down_proj', C, F]])
      shapes.push([`${layer}${name}.weight`, [out, into]])
    for (const name of ['input_layernorm', 'pre_feedforward_layernorm', 'post_attention_layernorm', 'post_feedforward_layernorm'])
      shapes.push([`${layer}${name}.weight`, [C]])
    if (type !== 'gemma2') for (const name of ['q_norm', 'k_norm']) shapes.push([`${layer}self_attn.${name}.weight`, [D]])
  }
  return randomModel(type, config, shapes, (name, shape) => {
    if (name === 'model.embed_tokens.weight') return [2, 0]
    if (name === 'model.norm.weight') return [0.5, 0]
    if (shape.length === 2) return [6 / Math.sqrt(shape[1]), 0]
    return [1, /post_(attention|feedforward)_layernorm/.test(name) ? 2 : 0]
  })
}

// SmolLM3: the fourth layer has no RoPE. Granite: four multipliers. OLMo 2: norms after the sublayers and over all heads.
// OLMo 3: windows, and YaRN in the fourth layer. Ministral 3: YaRN and a temperature, which grows every 16 tokens.
// Phi-3 with LongRoPE, short and long lists: llama.cpp rounds the context of 64 up to 256.
function randomDense(name) {
  const type = name.split('_')[0]
  const swa = name === 'granite_swa'
  const [V, C, F, L] = [1024, 64, 96, 4]
  const D = ['olmo2', 'olmo3', 'phi3'].includes(type) ? 16 : 32
  const tied = type === 'gemma'
  const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 16, rope_theta: 10000 }
  const config = {
    model_type: swa ? name : type, hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: 4,
    num_key_value_heads: 2, head_dim: D, vocab_size: V, max_position_embeddings: 64, rms_norm_eps: 1e-6,
    rope_theta: 10000, tie_word_embeddings: tied,
    ...(swa ? { sliding_window: 8, layer_rope_theta: [10000, 10000, 0, 10000] } : {}),
    ...(type === 'granite' ? { embedding_multiplier: 3, attention_multiplier: 0.3, residual_multiplier: 0.4, logits_scaling: 0.5 } : {}),
    ...(type === 'olmo3' ? { sliding_window: 8, rope_parameters: { full_attention: yarn, sliding_attention: { rope_theta: 10000 } } } : {}),
    ...(type === 'ministral3' ? {
      rope_parameters: { ...yarn, beta_fast: 4, beta_slow: 0.5, mscale: 1, mscale_all_dim: name.endsWith('mscale') ? 0.4 : 1, llama_4_scaling_beta: 0.5 }
    } : {}),
    ...(name.includes('longrope') ? {
      max_position_embeddings: 512, original_max_position_embeddings: name.endsWith('long') ? 8 : 256, partial_rotary_factor: 0.75,
      rope_scaling: { type: 'longrope', short_factor: [1, 1.2, 1.5, 2, 3, 4], long_factor: [1.1, 2, 4, 8, 16, 30] }
    } : {})
  }
  const shapes = [['model.embed_tokens.weight', [V, C]], ['model.norm.weight', [C]]]
  if (!tied) shapes.push(['lm_head.weight', [V, C]])
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    const inputs = type === 'phi3' ? [['self_attn.qkv_proj', 8 * D, C], ['mlp.gate_up_proj', 2 * F, C]]
      : [['self_attn.q_proj', 4 * D, C], ['self_attn.k_proj', 2 * D, C], ['self_attn.v_proj', 2 * D, C], ['mlp.gate_proj', F, C], ['mlp.up_proj', F, C]]
    for (const [name, out, into] of [...inputs, ['self_attn.o_proj', C, 4 * D], ['mlp.down_proj', C, F]])
      shapes.push([`${layer}${name}.weight`, [out, into]])
    const norms = ['post_attention_layernorm', type.startsWith('olmo') ? 'post_feedforward_layernorm' : 'input_layernorm']
    for (const name of norms) shapes.push([`${layer}${name}.weight`, [C]])
    if (swa) shapes.push([`${layer}self_attn.sinks`, [4]])
    if (type.startsWith('olmo')) shapes.push([`${layer}self_attn.q_norm.weight`, [4 * D]], [`${layer}self_attn.k_norm.weight`, [2 * D]])
  }
  return randomModel(name, config, shapes, (name, shape) => {
    if (name === 'model.embed_tokens.weight' || name === 'lm_head.weight') return [2, 0]
    if (name === 'model.norm.weight') return [0.5, tied ? 0 : 1]
    if (shape.length === 2) return [6 / Math.sqrt(shape[1]), 0]
    return name.endsWith('.sinks') ? [2, 2] : [1, tied ? 0 : 1]
  })
}

// GPT-2: learned positions, LayerNorm, biases, Conv1D. Command R7B: parallel blocks, LayerNorm, no RoPE in the fourth layer.
function randomGpt2() {
  const [V, C, F, L, P] = [1024, 64, 96, 3, 64]
  const config = {
    model_type: 'gpt2', n_embd: C, n_inner: F, n_layer: L, n_head: 4, n_positions: P, vocab_size: V,
    layer_norm_epsilon: 1e-5, activation_function: 'gelu_new'
  }
  const shapes = [['transformer.wte.weight', [V, C]], ['transformer.wpe.weight', [P, C]]]
  const add = (name, ...shape) => shapes.push([`${name}.weight`, shape], [`${name}.bias`, [shape.at(-1)]])
  add('transformer.ln_f', C)
  for (let n = 0; n < L; ++n) {
    const layer = `transformer.h.${n}.`
    for (const [name, into, out] of [['attn.c_attn', C, 3 * C], ['attn.c_proj', C, C], ['mlp.c_fc', C, F], ['mlp.c_proj', F, C]])
      add(layer + name, into, out)
    for (const name of ['ln_1', 'ln_2']) add(layer + name, C)
  }
  return randomModel('gpt2', config, shapes, (name, shape) => {
    if (/wte|wpe/.test(name)) return [2, 0]
    if (shape.length === 2) return [6 / Math.sqrt(shape[0]), 0]
    return name.endsWith('.bias') ? [1, 0] : [0.5, 1]
  })
}

function randomCohere2() {
  const [V, C, F, L, D] = [1024, 64, 96, 4, 16]
  const config = {
    model_type: 'cohere2', hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: 4,
    num_key_value_heads: 2, vocab_size: V, max_position_embeddings: 64, layer_norm_eps: 1e-5, rope_theta: 10000,
    sliding_window: 8, logit_scale: 1.5
  }
  const shapes = [['model.embed_tokens.weight', [V, C]], ['model.norm.weight', [C]]]
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    for (const [name, out, into] of [['self_attn.q_proj', 4 * D, C], ['self_attn.k_proj', 2 * D, C], ['self_attn.v_proj', 2 * D, C],
      ['self_attn.o_proj', C, 4 * D], ['mlp.gate_proj', F, C], ['mlp.up_proj', F, C], ['mlp.down_proj', C, F]])
      shapes.push([`${layer}${name}.weight`, [out, into]])
    shapes.push([`${layer}input_layernorm.weight`, [C]])
  }
  return randomModel('cohere2', config, shapes, (name, shape) => {
    if (name === 'model.embed_tokens.weight') return [2, 0]
    if (shape.length === 2) return [6 / Math.sqrt(shape[1]), 0]
    return [1, 1]
  })
}

// StarCoder2: LayerNorm, biases everywhere, an MLP without a gate. GLM-4: four norms, RoPE of three quarters of each head in interleaved
// pairs, and biases of queries, keys and values, or none.
function randomStarcoder2() {
  const [V, C, F, L, D] = [1024, 64, 96, 4, 16]
  const config = {
    model_type: 'starcoder2', hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: 4,
    num_key_value_heads: 2, vocab_size: V, max_position_embeddings: 64, norm_epsilon: 1e-5, rope_theta: 10000, sliding_window: 64
  }
  const shapes = [['model.embed_tokens.weight', [V, C]]]
  const add = (name, ...shape) => shapes.push([`${name}.weight`, shape], [`${name}.bias`, [shape[0]]])
  add('model.norm', C)
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    for (const [name, out, into] of [['self_attn.q_proj', 4 * D, C], ['self_attn.k_proj', 2 * D, C], ['self_attn.v_proj', 2 * D, C],
      ['self_attn.o_proj', C, 4 * D], ['mlp.c_fc', F, C], ['mlp.c_proj', C, F]])
      add(layer + name, out, into)
    for (const name of ['input_layernorm', 'post_attention_layernorm']) add(layer + name, C)
  }
  return randomModel('starcoder2', config, shapes, (name, shape) => {
    if (name === 'model.embed_tokens.weight') return [2, 0]
    if (shape.length === 2) return [6 / Math.sqrt(shape[1]), 0]
    return name.endsWith('.bias') ? [name === 'model.norm.bias' ? 0.1 : 1, 0] : [1, 1]
  })
}

function randomGlm4(name) {
  const [V, C, F, L, D] = [1024, 64, 96, 4, 32]
  const biased = name === 'glm4'
  const config = {
    model_type: 'glm4', hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: 4, num_key_value_heads: 2, head_dim: D,
    vocab_size: V, max_position_embeddings: 64, rms_norm_eps: 1e-5, attention_bias: biased, tie_word_embeddings: false,
    rope_parameters: { rope_type: 'default', rope_theta: 10000, partial_rotary_factor: 0.75 }
  }
  const shapes = [['model.embed_tokens.weight', [V, C]], ['lm_head.weight', [V, C]], ['model.norm.weight', [C]]]
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    for (const [name, out, into] of [['self_attn.q_proj', 4 * D, C], ['self_attn.k_proj', 2 * D, C], ['self_attn.v_proj', 2 * D, C],
      ['self_attn.o_proj', C, 4 * D], ['mlp.gate_up_proj', 2 * F, C], ['mlp.down_proj', C, F]]) {
      shapes.push([`${layer}${name}.weight`, [out, into]])
      if (biased && /[qkv]_proj/.test(name)) shapes.push([`${layer}${name}.bias`, [out]])
    }
    for (const name of ['input_layernorm', 'post_self_attn_layernorm', 'post_attention_layernorm', 'post_mlp_layernorm'])
      shapes.push([`${layer}${name}.weight`, [C]])
  }
  return randomModel(name, config, shapes, (name, shape) => {
    if (/embed_tokens|lm_head/.test(name)) return [2, 0]
    if (name === 'model.norm.weight') return [0.5, 1]
    if (shape.length === 2) return [6 / Math.sqrt(shape[1]), 0]
    return [1, name.endsWith('.bias') ? 0 : 1]
  })
}

// Types with a mixture of experts. Llama 4: a dense layer before each mixture; the fourth layer has no RoPE.
function randomMixture(type) {
  const [V, C, F, D, E] = [1024, 64, 96, 32, 8]
  const L = 4
  const config = {
    model_type: type, hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: 4,
    num_key_value_heads: 2, head_dim: D, vocab_size: V, max_position_embeddings: 64, rms_norm_eps: 1e-6,
    tie_word_embeddings: false, num_experts_per_tok: type === 'llama4_text' ? 1 : 3, rope_theta: 10000,
    [type === 'qwen3_moe' ? 'num_experts' : 'num_local_experts']: E,
    ...({
      qwen3_moe: { moe_intermediate_size: F, norm_topk_prob: true },
      gpt_oss: {
        sliding_window: 8,
        rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 16, beta_fast: 32, beta_slow: 1, truncate: true }
      },
      llama4_text: {
        intermediate_size_mlp: 2 * F, interleave_moe_layer_step: 2,
        rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 1, original_max_position_embeddings: 64 }
      }
    }[type] ?? {})
  }
  const stacked = type === 'gpt_oss' || type === 'llama4_text'
  const shapes = [['model.embed_tokens.weight', [V, C]], ['model.norm.weight', [C]], ['lm_head.weight', [V, C]]]
  const add = (name, shape) => {
    shapes.push([`${name}.weight`, shape])
    if (type === 'gpt_oss' && shape.length === 2) shapes.push([`${name}.bias`, [shape[0]]])
  }
  const addMlp = (prefix, F, [gate, up, down] = ['gate_proj', 'up_proj', 'down_proj']) => {
    add(prefix + gate, [F, C])
    add(prefix + up, [F, C])
    add(prefix + down, [C, F])
  }
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    for (const [name, out, into] of [['q_proj', 4 * D, C], ['k_proj', 2 * D, C], ['v_proj', 2 * D, C], ['o_proj', C, 4 * D]])
      add(`${layer}self_attn.${name}`, [out, into])
    if (type === 'gpt_oss') shapes.push([`${layer}self_attn.sinks`, [4]])
    if (type === 'qwen3_moe') for (const name of ['q_norm', 'k_norm']) add(`${layer}self_attn.${name}`, [D])
    for (const name of ['input_layernorm', 'post_attention_layernorm']) add(layer + name, [C])
    const mlp = layer + ({ mixtral: 'block_sparse_moe.', llama4_text: 'feed_forward.' }[type] ?? 'mlp.')
    if (type === 'llama4_text' && n % 2 === 0) {
      addMlp(mlp, 2 * F)
      continue
    }
    add(mlp + (stacked ? 'router' : 'gate'), [E, C])
    if (type === 'llama4_text') addMlp(mlp + 'shared_expert.', F)
    if (!stacked)
      for (let e = 0; e < E; ++e) addMlp(`${mlp}experts.${e}.`, F, type === 'mixtral' ? ['w1', 'w3', 'w2'] : undefined)
    else {
      shapes.push([`${mlp}experts.gate_up_proj`, [E, C, 2 * F]], [`${mlp}experts.down_proj`, [E, F, C]])
      if (type === 'gpt_oss') shapes.push([`${mlp}experts.gate_up_proj_bias`, [E, 2 * F]], [`${mlp}experts.down_proj_bias`, [E, C]])
    }
  }
  return randomModel(type, config, shapes, (name, shape) => {
    if (name === 'model.embed_tokens.weight') return [2, 0]
    if (name === 'lm_head.weight') return [3, 0]
    if (shape.length === 1) return /norm/.test(name) ? [1, 1] : [2, 0]
    if (name.endsWith('_bias')) return [1, 0]
    return [5 / Math.sqrt(shape.at(shape.length === 3 ? 1 : -1)), 0]
  })
}

// Latent attention, with low-rank queries but in V2-Lite, YaRN, a dense layer and shared experts; V3 with groups.
function randomDeepseek(type) {
  const isGlm = type === 'glm4_moe_lite'
  const [V, C, F, H, E, R, Dn, Dr, Dv, Rq] = [1024, 64, 96, 4, 8, 48, 24, 16, isGlm ? 32 : 20, 40]
  const isLite = type.endsWith('v2_lite')
  const L = isLite ? 27 : 4
  const config = {
    model_type: type, hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: H,
    num_key_value_heads: H, vocab_size: V, max_position_embeddings: 64, rms_norm_eps: 1e-6, rope_theta: 10000,
    tie_word_embeddings: false, kv_lora_rank: R, q_lora_rank: isLite ? null : Rq, qk_nope_head_dim: Dn, qk_rope_head_dim: Dr, v_head_dim: Dv,
    moe_intermediate_size: F, n_routed_experts: E, num_experts_per_tok: 3, n_shared_experts: 2, first_k_dense_replace: 1,
    ...(isGlm ? { mlp_layer_types: ['dense', 'sparse', 'sparse', 'sparse'] }
      : { rope_scaling: { type: 'yarn', factor: 4, original_max_position_embeddings: 16, beta_fast: 32, beta_slow: 1, mscale: 0.7, mscale_all_dim: 0.7 } }),
    ...(type.startsWith('deepseek_v2') ? { routed_scaling_factor: 1.5 } : { n_group: type.endsWith('groups') ? 4 : 1, topk_group: type.endsWith('groups') ? 2 : 1 })
  }
  config.model_type = type.replace(/_groups$|(?<=v2)_lite$/, '')
  const shapes = [['model.embed_tokens.weight', [V, C]], ['model.norm.weight', [C]], ['lm_head.weight', [V, C]]]
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    const queries = isLite ? [['self_attn.q_proj', H * (Dn + Dr), C]] : [['self_attn.q_a_proj', Rq, C], ['self_attn.q_b_proj', H * (Dn + Dr), Rq]]
    const matrices = [...queries, ['self_attn.kv_a_proj_with_mqa', R + Dr, C],
      ['self_attn.kv_b_proj', H * (Dn + Dv), R], ['self_attn.o_proj', C, H * Dv]]
    const addMlp = (prefix, width) => matrices.push([`${prefix}gate_proj`, width, C], [`${prefix}up_proj`, width, C], [`${prefix}down_proj`, C, width])
    if (n === 0) addMlp('mlp.', F)
    else {
      matrices.push(['mlp.gate', E, C])
      addMlp('mlp.shared_experts.', 2 * F)
      for (let e = 0; e < E; ++e) addMlp(`mlp.experts.${e}.`, F)
      if (!type.startsWith('deepseek_v2')) shapes.push([`${layer}mlp.gate.e_score_correction_bias`, [E]])
    }
    for (const [name, out, into] of matrices) shapes.push([`${layer}${name}.weight`, [out, into]])
    for (const [name, size] of [['input_layernorm', C], ['post_attention_layernorm', C], ['self_attn.kv_a_layernorm', R], ...(isLite ? [] : [['self_attn.q_a_layernorm', Rq]])])
      shapes.push([`${layer}${name}.weight`, [size]])
  }
  return randomModel(type, config, shapes, (name, shape) => {
    if (name === 'model.embed_tokens.weight') return [2, 0]
    if (name === 'lm_head.weight') return [3, 0]
    if (shape.length === 1) return /norm/.test(name) ? [1, 1] : [0.5, 0]
    return [5 / Math.sqrt(shape[1]), 0]
  })
}

// Three layers of Gated DeltaNet to one of attention with an output gate; experts, and a shared one with a gate, or a dense MLP. Qwen3.5 has
// the projections of the DeltaNet apart, and six value heads here: their order in the file is not its own inverse.
function randomQwen3Next(type) {
  const fused = type === 'qwen3_next'
  const dense = type === 'qwen3_5_text'
  const [V, C, F, H, Hkv, D, Hk, Hv, Dk, E, L] = [1024, 64, 96, 4, 2, 16, 2, fused ? 4 : 6, 16, 8, 8]
  const config = {
    model_type: type, hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: H, num_key_value_heads: Hkv, head_dim: D,
    vocab_size: V, max_position_embeddings: 64, rms_norm_eps: 1e-6, rope_theta: 10000, partial_rotary_factor: 0.5, tie_word_embeddings: false,
    linear_num_key_heads: Hk, linear_num_value_heads: Hv, linear_key_head_dim: Dk, linear_value_head_dim: Dk, full_attention_interval: 4,
    ...dense ? {} : { num_experts: E, num_experts_per_tok: 3, moe_intermediate_size: F, shared_expert_intermediate_size: 64 }
  }
  const shapes = [['model.embed_tokens.weight', [V, C]], ['model.norm.weight', [C]], ['lm_head.weight', [V, C]]]
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    const matrices = dense ? [] : [['mlp.gate', E, C], ['mlp.shared_expert_gate', 1, C]]
    const vectors = [['input_layernorm.weight', C], ['post_attention_layernorm.weight', C]]
    const addMlp = (prefix, width) => matrices.push([`${prefix}gate_proj`, width, C], [`${prefix}up_proj`, width, C], [`${prefix}down_proj`, C, width])
    if (n % 4 === 3) {
      matrices.push(['self_attn.q_proj', 2 * H * D, C], ['self_attn.k_proj', Hkv * D, C], ['self_attn.v_proj', Hkv * D, C], ['self_attn.o_proj', C, H * D])
      vectors.push(['self_attn.q_norm.weight', D], ['self_attn.k_norm.weight', D])
    } else {
      matrices.push(['linear_attn.out_proj', C, Hv * Dk])
      if (fused) matrices.push(['linear_attn.in_proj_qkvz', 2 * (Hk + Hv) * Dk, C], ['linear_attn.in_proj_ba', 2 * Hv, C])
      else matrices.push(['linear_attn.in_proj_qkv', (2 * Hk + Hv) * Dk, C], ['linear_attn.in_proj_z', Hv * Dk, C], ['linear_attn.in_proj_b', Hv, C],
        ['linear_attn.in_proj_a', Hv, C])
      vectors.push(['linear_attn.norm.weight', Dk], ['linear_attn.A_log', Hv], ['linear_attn.dt_bias', Hv])
      shapes.push([`${layer}linear_attn.conv1d.weight`, [(2 * Hk + Hv) * Dk, 1, 4]])
    }
    addMlp(dense ? 'mlp.' : 'mlp.shared_expert.', dense ? F : 64)
    for (let e = 0; !dense && e < E; ++e) addMlp(`mlp.experts.${e}.`, F)
    for (const [name, out, into] of matrices) shapes.push([`${layer}${name}.weight`, [out, into]])
    for (const [name, size] of vectors) shapes.push([`${layer}${name}`, [size]])
  }
  return randomModel(type, config, shapes, (name, shape) => {
    if (name === 'model.embed_tokens.weight') return [2, 0]
    if (name === 'lm_head.weight') return [3, 0]
    if (shape.length === 1) return name.includes('linear_attn.norm') ? [1, 1] : [1, 0]
    return [(shape.length === 3 ? 2 : 5) / Math.sqrt(shape.at(-1)), 0]
  })
}

// LFM2: a convolution over three tokens in layers 0, 1 and 3, attention with a QK norm in layer 2; experts after a dense layer.
function randomLfm2(type) {
  const [V, C, F, H, Hkv, D, E, L] = [1024, 64, 96, 4, 2, 16, 8, 4]
  const moe = type === 'lfm2_moe'
  const config = {
    model_type: type, hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: H, num_key_value_heads: Hkv, vocab_size: V,
    max_position_embeddings: 64, norm_eps: 1e-5, rope_parameters: { rope_theta: 10000, rope_type: 'default' }, conv_L_cache: 3,
    layer_types: ['conv', 'conv', 'full_attention', 'conv'],
    ...moe ? { num_experts: E, num_experts_per_tok: 3, moe_intermediate_size: 80, num_dense_layers: 1 } : { block_auto_adjust_ff_dim: false }
  }
  const shapes = [['model.embed_tokens.weight', [V, C]], ['model.embedding_norm.weight', [C]]]
  for (let n = 0; n < L; ++n) {
    const layer = `model.layers.${n}.`
    const matrices = []
    const addMlp = (prefix, width) => matrices.push([`${prefix}.w1`, width, C], [`${prefix}.w3`, width, C], [`${prefix}.w2`, C, width])
    for (const name of ['operator_norm', 'ffn_norm']) shapes.push([`${layer}${name}.weight`, [C]])
    if (config.layer_types[n] === 'conv') {
      matrices.push(['conv.in_proj', 3 * C, C], ['conv.out_proj', C, C])
      shapes.push([`${layer}conv.conv.weight`, [C, 1, 3]])
    } else {
      for (const [name, heads] of [['q', H], ['k', Hkv], ['v', Hkv]]) matrices.push([`self_attn.${name}_proj`, heads * D, C])
      matrices.push(['self_attn.out_proj', C, H * D])
      for (const name of ['q', 'k']) shapes.push([`${layer}self_attn.${name}_layernorm.weight`, [D]])
    }
    if (moe && n > 0) {
      matrices.push(['feed_forward.gate', E, C])
      shapes.push([`${layer}feed_forward.expert_bias`, [E]])
      for (let e = 0; e < E; ++e) addMlp(`feed_forward.experts.${e}`, 80)
    } else {
      addMlp('feed_forward', F)
    }
    for (const [name, out, into] of matrices) shapes.push([`${layer}${name}.weight`, [out, into]])
  }
  return randomModel(type, config, shapes, (name, shape) => {
    if (name === 'model.embed_tokens.weight') return [2, 0]
    if (name === 'model.embedding_norm.weight') return [0.5, 1]
    if (name.endsWith('.expert_bias')) return [0.5, 0]
    if (shape.length === 3) return [2, 0]
    return shape.length === 2 ? [6 / Math.sqrt(shape[1]), 0] : [1, 1]
  })
}

// llama.cpp's greedy continuation of these ids, and the logits at each of its positions.
async function continueGreedily(file, ids, count) {
  const model = await llama.loadModel({ modelPath: file, useMmap: false })
  const context = await createContext(model, { contextSize: 64 })
  const sequence = context.getSequence()
  const all = [...ids]
  const logits = []
  let input = ids.map(id => [id])
  for (let i = 0; i < count; ++i) {
    input.at(-1)[1] = { generateNext: { logits: true } }
    const { next } = (await sequence.controlledEvaluate(input)).at(-1)
    logits.push(next.logits)
    const [best] = [...next.logits].sort((a, b) => b[1] - a[1])
    all.push(best[0])
    input = [[best[0]]]
  }
  await context.dispose()
  await model.dispose()
  return { all, logits }
}

// Windows, two RoPEs, soft caps, QK norm, four norms, mixtures: logits after 24 tokens with a window of 8.
for (const [program, type, folder] of [
  ['model', 'gpt2', randomGpt2()],
  ['model', 'cohere2', randomCohere2()],
  ...['gemma', 'smollm3', 'granite', 'granite_swa', 'olmo2', 'phi3', 'phi3_longrope', 'phi3_longrope_long', 'olmo3', 'ministral3', 'ministral3_mscale'].map(type => ['model', type, randomDense(type)]),
  ['model', 'starcoder2', randomStarcoder2()],
  ...['glm4', 'glm4_unbiased'].map(type => ['model', type, randomGlm4(type)]),
  ...['gemma2', 'gemma3_text'].map(type => ['17_long_context', type, randomGemma(type)]),
  ...['mixtral', 'qwen3_moe', 'gpt_oss', 'llama4_text'].map(type => ['18_experts', type, randomMixture(type)]),
  ...['deepseek_v2', 'deepseek_v2_lite', 'deepseek_v3', 'deepseek_v3_groups', 'glm4_moe_lite'].map(type => ['model', type, randomDeepseek(type)]),
  ...['qwen3_next', 'qwen3_5_text', 'qwen3_5_moe_text'].map(type => ['model', type, randomQwen3Next(type)]),
  ...['lfm2', 'lfm2_moe'].map(type => ['model', type, randomLfm2(type)])]) {
  const file = join(scratch, `${type}.gguf`)
  const quantized = join(scratch, `${type}_q8_0.gguf`)
  run(program, '--model', folder, '--gguf', file)
  run('model', '--model', folder, '--gguf', quantized, '--dtype', 'q8_0')
  const ids = Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 1000 + 3)
  const { all, logits } = await continueGreedily(file, ids, 16)
  const ours = run(program, '--model', folder, '--tokens', all.slice(0, -1).join(','))
    .find(line => line.type === 'tensor' && line.name === 'logits').values
  let largest = 0
  let highest = 0
  let likely = 0
  logits.forEach((map, i) => {
    const row = ours.slice((ids.length - 1 + i) * map.size, (ids.length + i) * map.size)
    for (const [id, logit] of map) {
      largest = Math.max(largest, Math.abs(logit - row[id]))
      highest = Math.max(highest, Math.abs(row[id]))
    }
    likely += softmax(map).get(all[ids.length + i]) / logits.length
  })
  const greedy = logits.every((_, i) => {
    const row = ours.slice((ids.length - 1 + i) * 1024, (ids.length + i) * 1024)
    return row.indexOf(Math.max(...row)) === all[ids.length + i]
  })
  check(`${type}: 16 greedy tokens`, greedy && likely > 0.3, `mean probability ${likely.toFixed(2)}: ${all.slice(24).join(' ')}`)
  check(`${type}: logits within 1e-3 of the largest`, largest < 1e-3 * highest, `${largest.toExponential(1)} of ${highest.toFixed(1)}`)

  // Matrices in q8_0, also the stacked ones of experts: the logits differ by the rounding of weights and activations.
  // (A token whose router logits are nearly equal may get another expert, so the median of several prefixes counts. Of groups
  // whose sums are nearly equal, random weights have too many, and 26 layers of experts have too many tokens like that; states pass
  // rounding on from token to token.)
  if (/groups|v2_lite|next|qwen3_5/.test(type)) continue
  const differences = []
  for (const length of [8, 12, 16, 20, 24]) {
    const [rounded] = (await continueGreedily(quantized, ids.slice(0, length), 1)).logits
    const row = ours.slice((length - 1) * rounded.size, length * rounded.size)
    differences.push(Math.max(...[...rounded].map(([id, logit]) => Math.abs(logit - row[id]))))
  }
  const median = differences.sort((a, b) => a - b)[2]
  check(`${type} in q8_0: logits within 10 % of the largest`, median < 0.1 * highest, `${differences.map(d => d.toFixed(2)).join(' ')} of ${highest.toFixed(1)}`)
}

// BERT and ModernBERT with random weights, and the pooling of sentence-transformers, if one is given. Windows of 4 tokens on either side in two
// of three layers, with a theta of their own.
function randomEncoder(name, modern, activation, pooling) {
  const [V, C, F, L] = [1024, 64, 96, modern ? 5 : 3]
  const common = {
    hidden_size: C, intermediate_size: F, num_hidden_layers: L, num_attention_heads: 4, vocab_size: V, max_position_embeddings: 64, pad_token_id: 0
  }
  const config = modern
    ? { ...common, model_type: 'modernbert', norm_eps: 1e-5, local_attention: 8, global_rope_theta: 160000, local_rope_theta: 100, hidden_activation: activation }
    : { ...common, model_type: 'bert', layer_norm_eps: 1e-12, type_vocab_size: 2, hidden_act: activation }
  const shapes = [[`embeddings.${modern ? 'tok' : 'word'}_embeddings.weight`, [V, C]]]
  const add = (name, ...shape) => {
    shapes.push([`${name}.weight`, shape])
    if (!modern) shapes.push([`${name}.bias`, [shape[0]]])
  }
  add(modern ? 'embeddings.norm' : 'embeddings.LayerNorm', C)
  if (!modern) shapes.push(['embeddings.position_embeddings.weight', [64, C]], ['embeddings.token_type_embeddings.weight', [2, C]])
  for (let n = 0; n < L; ++n)
    for (const [part, ...shape] of modern
      ? [...n > 0 ? [['attn_norm', C]] : [], ['attn.Wqkv', 3 * C, C], ['attn.Wo', C, C], ['mlp_norm', C], ['mlp.Wi', 2 * F, C], ['mlp.Wo', C, F]]
      : [...['self.query', 'self.key', 'self.value', 'output.dense'].map(part => [`attention.${part}`, C, C]), ['attention.output.LayerNorm', C],
          ['intermediate.dense', F, C], ['output.dense', C, F], ['output.LayerNorm', C]])
      add(`${modern ? 'layers' : 'encoder.layer'}.${n}.${part}`, ...shape)
  if (modern) add('final_norm', C)
  const folder = randomModel(name, config, shapes, (tensor, shape) => {
    if (tensor.includes('embeddings.weight')) return [2, 0]
    if (shape.length === 2) return [6 / Math.sqrt(shape[1]), 0]
    return tensor.endsWith('.bias') ? [0.5, 0] : [1, 1]
  })
  if (pooling) {
    mkdirSync(join(folder, '1_Pooling'))
    writeFileSync(join(folder, '1_Pooling/config.json'), JSON.stringify({ [`pooling_mode_${pooling}`]: true }))
  }
  return folder
}

// llama.cpp's vector for these ids: of the text, or, without pooling, of its last token.
async function embed(file, ids) {
  const model = await llama.loadModel({ modelPath: file, useMmap: false, defaultContextFlashAttention: false })
  const context = await model.createEmbeddingContext({ contextSize: 64, threads: 1 })
  const { vector } = await context.getEmbeddingFor([...ids])
  await context.dispose()
  await model.dispose()
  return vector
}

// llama.cpp approximates GELU with tanh, and takes that from a table of float16 numbers.
for (const [name, modern, activation, pooling, tolerance] of [
  ['bert', false, 'gelu_pytorch_tanh', 'cls_token', 2e-3], ['bert_mean', false, 'gelu_pytorch_tanh', 'mean_tokens', 2e-3],
  ['bert_gelu', false, 'gelu', 'cls_token', 1e-2], ['bert_tokens', false, 'gelu_pytorch_tanh', '', 2e-3],
  ['modernbert', true, 'gelu_pytorch_tanh', 'mean_tokens', 2e-3], ['modernbert_gelu', true, 'gelu', 'cls_token', 1e-2],
  ['modernbert_silu', true, 'silu', 'mean_tokens', 1e-5]]) {
  const folder = randomEncoder(name, modern, activation, pooling)
  const file = join(scratch, `${name}.gguf`)
  run('model', '--model', folder, '--gguf', file)
  const ids = Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 1000 + 3)
  const theirs = await embed(file, ids)
  const states = run('model', '--model', file, '--tokens', ids.join(','))
    .find(line => line.type === 'tensor' && line.name === 'last_hidden_state').values
  const row = t => states.slice(64 * t, 64 * (t + 1))
  const mean = row(0).map((_, c) => ids.reduce((sum, _, t) => sum + row(t)[c] / ids.length, 0))
  const ours = pooling === 'mean_tokens' ? mean : row(pooling ? 0 : ids.length - 1)
  const largest = Math.max(...ours.map((x, c) => Math.abs(x - theirs[c])))
  const highest = Math.max(...ours.map(Math.abs))
  check(`${name}: the vector of a text within ${tolerance} of its largest element`, theirs.length === 64 && largest < tolerance * highest,
    `${largest.toExponential(1)} of ${highest.toFixed(1)}`)
}

// Texts of the pages' words, and of random characters of many scripts. (llama.cpp differs in words of more than 100 characters, in
// control characters and in marks with a width of their own, such as the vowel signs of Hindi: it drops these with the accents.)
function textsForWordPiece() {
  const words = readFileSync(new URL('../../docs/25_encoders.md', import.meta.url), 'utf8').split(/\s+/).filter(word => word.length < 100)
  const ranges = [[0x20, 0x7e], [0xa1, 0x24f], [0x300, 0x36f], [0x391, 0x3c9], [0x410, 0x44f], [0x1e00, 0x1eff], [0x2010, 0x2027],
    [0x20a0, 0x20bf], [0x3041, 0x3096], [0x4e00, 0x4e7f], [0xac00, 0xac3f], [0xff01, 0xff5e], [0x1f600, 0x1f63f]]
  let state = 54321
  const below = n => Math.floor((state = (Math.imul(1664525, state) + 1013904223) >>> 0) / 2 ** 32 * n)
  const character = () => {
    const [first, last] = ranges[below(ranges.length)]
    return below(6) === 0 ? ' ' : String.fromCodePoint(first + below(last - first + 1))
  }
  const list = (count, next) => Array.from({ length: 1 + below(count) }, next)
  return Array.from({ length: 1000 }, (_, i) => i % 2 ? list(12, character).join('') : list(6, () => words[below(words.length)]).join(' '))
}

// BERT's tokenizers: the ids of texts, and their vectors.
for (const kind of ['bert_uncased', 'bert_cased']) {
  const folder = randomEncoder(kind, false, 'gelu_pytorch_tanh', 'mean_tokens')
  copyFileSync(fileURLToPath(new URL(`../fixtures/25_encoders/${kind}/tokenizer.json`, import.meta.url)), join(folder, 'tokenizer.json'))
  const file = join(scratch, `${kind}.gguf`)
  run('model', '--model', folder, '--gguf', file)
  const model = await llama.loadModel({ modelPath: file, useMmap: false, defaultContextFlashAttention: false })
  const context = await model.createEmbeddingContext({ contextSize: 64, threads: 1 })
  const texts = textsForWordPiece().filter(text => model.tokenize(text, true).length <= 62)
  const mismatches = []
  let largest = 0
  for (let begin = 0; begin < texts.length; begin += 100) {
    const some = texts.slice(begin, begin + 100)
    const lines = run('model', '--model', file, '--only', '2', ...some.flatMap(text => ['--text', text]))
    const values = name => lines.find(line => line.type === 'tensor' && line.name === name)
    const ids = values('input_ids'), mask = values('attention_mask').values, vectors = values('sentence_embedding').values
    const width = ids.values.length / some.length
    for (const [i, text] of some.entries()) {
      const ours = ids.values.slice(i * width, (i + 1) * width).filter((_, t) => mask[i * width + t] === 1)
      const theirs = [2, ...model.tokenize(text, true), 3] // node-llama-cpp puts no [SEP] after a text
      if (String(ours) !== String(theirs)) mismatches.push(text)
      if (i % 20 > 0) continue
      const { vector } = await context.getEmbeddingFor(theirs)
      const row = vectors.slice(64 * i, 64 * i + 64)
      largest = Math.max(largest, ...row.map((x, c) => Math.abs(x - vector[c]) / Math.max(...row.map(Math.abs))))
    }
  }
  check(`${kind}: the ids of texts`, texts.length > 900 && mismatches.length === 0, `${texts.length} texts, other ids for ${JSON.stringify(mismatches.slice(0, 3))}`)
  check(`${kind}: the vectors of texts within 2e-3 of their largest element`, largest < 2e-3, largest.toExponential(1))
  await context.dispose()
  await model.dispose()
}

// The encoder of a T5: heads that are not as wide as the hidden states, and texts beyond the distances with a bucket of their own.
function randomT5(name, feedForward) {
  const [V, C, F, H, D, L] = [1024, 64, 96, 2, 48, 3]
  const config = {
    architectures: ['T5EncoderModel'], model_type: 't5', d_model: C, d_ff: F, d_kv: D, num_heads: H, num_layers: L, vocab_size: V,
    feed_forward_proj: feedForward
  }
  const shapes = [['shared.weight', [V, C]], ['encoder.final_layer_norm.weight', [C]]]
  for (let n = 0; n < L; ++n) {
    const [attention, mlp] = [0, 1].map(part => `encoder.block.${n}.layer.${part}`)
    for (const part of ['q', 'k', 'v']) shapes.push([`${attention}.SelfAttention.${part}.weight`, [H * D, C]])
    shapes.push([`${attention}.SelfAttention.o.weight`, [C, H * D]], [`${attention}.layer_norm.weight`, [C]], [`${mlp}.layer_norm.weight`, [C]])
    if (n === 0) shapes.push([`${attention}.SelfAttention.relative_attention_bias.weight`, [32, H]])
    for (const part of feedForward === 'relu' ? ['wi'] : ['wi_0', 'wi_1']) shapes.push([`${mlp}.DenseReluDense.${part}.weight`, [F, C]])
    shapes.push([`${mlp}.DenseReluDense.wo.weight`, [C, F]])
  }
  return randomModel(name, config, shapes, (tensor, shape) => {
    if (shape.length === 1) return [1, 1]
    if (tensor.includes('relative')) return [6, 0]
    return [tensor.startsWith('shared') ? 2 : /[.][qk][.]/.test(tensor) ? 2 / Math.sqrt(shape[1]) : 6 / Math.sqrt(shape[1]), 0]
  })
}

for (const [name, feedForward, tolerance] of [['t5', 'relu', 1e-4], ['t5_gated', 'gated-gelu', 2e-3]]) {
  const file = join(scratch, `${name}.gguf`)
  run('model', '--model', randomT5(name, feedForward), '--gguf', file)
  const ids = Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 1000 + 3)
  const theirs = await embed(file, ids) // of the last token
  const ours = run('model', '--model', file, '--tokens', ids.join(','))
    .find(line => line.type === 'tensor' && line.name === 'last_hidden_state').values.slice(-64)
  const largest = Math.max(...ours.map((x, c) => Math.abs(x - theirs[c])))
  const highest = Math.max(...ours.map(Math.abs))
  check(`${name}: the vector of the last token within ${tolerance} of its largest element`, theirs.length === 64 && largest < tolerance * highest,
    `${largest.toExponential(1)} of ${highest.toFixed(1)}`)
}

process.exit(failures > 0 ? 1 : 0) // its threads would keep the process running
