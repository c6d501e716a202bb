// A model whose tokens have fixed probabilities, whatever came before: a grammar decides what it
// writes. Quotes and closing brackets are frequent, so that its texts end.
import { copyFileSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const frequencies = { '"': 100, '}': 20, ']': 20, ',': 5, '{': 1, '[': 1, '\\': 8, '<|endoftext|>': 50, '<|im_end|>': 50 }
for (const digit of '0123456789') frequencies[digit] = 4

// Writes a folder with the tokenizer and the chat template of another model. Returns its path.
export function writeRandomModel(from) {
  const folder = mkdtempSync(join(tmpdir(), 'random_model_'))
  for (const file of ['tokenizer.json', 'chat_template.jinja', 'generation_config.json']) copyFileSync(join(from, file), join(folder, file))
  const { vocab } = JSON.parse(readFileSync(join(from, 'tokenizer.json'))).model
  const config = JSON.parse(readFileSync(join(from, 'config.json')))
  const width = 8
  Object.assign(config, { hidden_size: width, intermediate_size: width, head_dim: width, num_hidden_layers: 1, num_attention_heads: 1,
    num_key_value_heads: 1, max_position_embeddings: 4096, tie_word_embeddings: false, torch_dtype: 'float32' })
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config))

  // The layer adds zeros, so every hidden state is normalized to ones: a logit is the sum of a row.
  const tensors = {}
  const add = (name, shape, value) => tensors[name] = { shape, values: Float32Array.from({ length: shape.reduce((a, b) => a * b) }, value) }
  const logits = new Float32Array(config.vocab_size)
  for (const [token, id] of Object.entries(vocab)) logits[id] = Math.log(frequencies[token] ?? 1)
  add('model.embed_tokens.weight', [config.vocab_size, width], () => 1)
  add('lm_head.weight', [config.vocab_size, width], (_, i) => logits[Math.floor(i / width)] / width)
  add('model.norm.weight', [width], () => 1)
  for (const norm of ['input', 'post_attention']) add(`model.layers.0.${norm}_layernorm.weight`, [width], () => 1)
  for (const matrix of ['self_attn.q', 'self_attn.k', 'self_attn.v', 'self_attn.o', 'mlp.gate', 'mlp.up', 'mlp.down'])
    add(`model.layers.0.${matrix}_proj.weight`, [width, width], () => 0)

  const header = {}
  let end = 0
  for (const [name, { shape, values }] of Object.entries(tensors)) header[name] = { dtype: 'F32', shape, data_offsets: [end, end += values.byteLength] }
  const text = Buffer.from(JSON.stringify(header)), length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(text.length))
  writeFileSync(join(folder, 'model.safetensors'), Buffer.concat([length, text, ...Object.values(tensors).map(({ values }) => Buffer.from(values.buffer))]))
  return folder
}
