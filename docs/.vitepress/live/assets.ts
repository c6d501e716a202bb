// The files that each program reads, in assets/ and in the folder /assets of a program's file system.
const words = ['words/tokens.txt', 'words/words.safetensors']
const tokenizer = ['king_james/tokenizer.json']
const model = ['king_james/config.json', 'king_james/model.safetensors', ...tokenizer]
const names = ['data/names.txt']
const wordnet = ['config.json', 'generation_config.json', 'model.safetensors', 'tokenizer.json'].map(file => `wordnet/${file}`)
const calculator = ['config.json', 'model.safetensors', 'tokenizer.json'].map(file => `wordnet_calculator/${file}`)
const answers = [
  ...wordnet,
  ...['adapter_config.json', 'adapter_model.safetensors', 'bad_words.txt', 'chat_template.jinja'].map(file => `wordnet_answers/${file}`),
]

const assetsOf: Record<string, string[]> = {
  '01_masking': words,
  '02_projections': words,
  '03_head_splitting': words,
  '04_rope': words,
  '05_gqa': words,
  '06_swiglu': words,
  '07_rmsnorm_vs_layernorm': words,
  '08_pre_vs_post_norm': words,
  '09_full_model': [...words, ...model],
  '10_tokenizer': [...names, ...tokenizer],
  '11_generation': model,
  '12_gradients': model,
  '13_training': names,
  '15_fast': model,
  '16_quantization': [...model, 'data/apocrypha.txt'],
  '17_long_context': [...model, 'data/king_james_held_out.txt'],
  '18_experts': [...tokenizer, ...['config.json', 'model.safetensors'].map(file => `king_james_experts/${file}`),
    'data/king_james_held_out.txt'],
  '19_latent_attention': [],
  '20_linear_attention': [],
  '21_serving': model,
  '22_speculation': [...model, 'king_james_mtp/model.safetensors'],
  '23_structured_output': [...wordnet, ...calculator],
  '24_parallel': [],
  '25_encoders': [...names, 'name_encoder/fill.safetensors', 'name_encoder/search.safetensors'],
  '26_encoder_decoder': ['data/king_james_held_out.txt'],
  '27_vision': [],
  '28_model_parallel': [],
  'walk': model,
  'ask': ['config.json', 'model.safetensors', 'tokenizer.json'].map(file => `ask_encoder/${file}`), // and the pages
}

export function assetPaths(slug: string, args: string[]): string[] {
  if (slug === '14_fine_tuning') return args.includes('--ask') ? answers : []
  if (slug === '21_serving' && args.includes('--requests')) return [] // the scheduler alone, without a model
  if (slug === '23_structured_output' && args.includes('--schema')) return wordnet
  return assetsOf[slug] ?? []
}
