// Runs each program in Chromium (BROWSER=firefox: in Firefox), in a worker, and compares its events
// with those of the native program. Needs a built site and the native programs.
import { coarse, compareRuns, tolerance } from './events.mjs'
import { magnifiedPlaces } from './magnified.mjs'
import { browserName, commandText, launch, fail, runNatively, serve, site, slugs, words } from './site.mjs'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

const defaults = {
  '13_training': ['--steps', '10'], '14_fine_tuning': '--base-steps 3 --sft-steps 3 --grpo-steps 2'.split(' '),
  '15_fast': ['--no-timing'], '16_quantization': ['--no-timing'],
  '17_long_context': '--factor 4 --num-sequences 1'.split(' '),
  // A longer training magnifies the rounding errors until other pictures are taken for circles.
  '25_encoders': ['--steps', '20'], '27_vision': ['--steps', '10'],
}
const toleranceOf = slug => (['13_training', '14_fine_tuning'].includes(slug) ? 1e-4 : tolerance)

// Options that the pages speak of, and rejections.
const further = {
  '01_masking': ['--seq-len 4 --batch-size 1', '--seed 1 --seq-len 24', '--seq-len 0', '--max-position-embeddings 4'],
  '02_projections': ['--attention-bias', '--num-key-value-heads 16 --seed 1', '--num-key-value-heads 5'],
  '03_head_splitting': ['--num-key-value-heads 8', '--hidden-size 64 --head-dim 16', '--head-dim 129'],
  '04_rope': ['--rope-theta 1000000', '--rope-type linear --factor 4', '--rope-type llama3',
    '--query-position 10 --key-position 4', '--seq-len 4 --head-dim 16', '--head-dim 7', '--rope-type yarn'],
  '05_gqa': ['--num-key-value-heads 16', '--num-key-value-heads 1 --seq-len 6', '--attention-bias --head-dim 32',
    '--num-attention-heads 5'],
  '06_swiglu': ['--hidden-act gelu', '--hidden-act relu --intermediate-size 512',
    '--hidden-size 384 --intermediate-size 1536', '--hidden-act tanh'],
  '07_rmsnorm_vs_layernorm': ['--rms-norm-eps 0.01', '--hidden-size 1024', '--measure', '--rms-norm-eps 2'],
  '08_pre_vs_post_norm': ['--seq-len 4 --batch-size 1', '--norm-placement post-norm --num-hidden-layers 100',
    '--seed 1', '--norm-placement none'],
  '09_full_model': ['--tokens 5,5,5', '--model assets/king_james --tokens 103,66,148,195,127', '--tokens 1,-2'],
  '10_tokenizer': ['--encode "naïve café"', '--encode "Let there be light: and there was light."',
    '--vocab-size 500', '--vocab-size 65537'],
  '11_generation': ['--prompt "And the LORD said unto" --temperature 0 --max-new-tokens 40 --quiet',
    '--temperature 0 --repetition-penalty 1.3 --max-new-tokens 40', '--temperature 0 --max-new-tokens 40 --no-cache',
    '--inspect 10', '--measure', '--top-p 2'],
  '12_gradients': ['--seed 1', '--seed -1'],
  '14_fine_tuning': ['--ask "What is 20 + 31?"', '--ask "Spell kitchen."', '--lora-r 0'],
  '13_training': ['--steps 10 --seed 1 --num-hidden-layers 2', '--steps 10 --qk-norm --dtype bfloat16', '--steps x'],
  // (With blocks, the inputs are rounded, too: the processor decides which text follows.)
  '16_quantization': ['--no-timing --model assets/king_james --dtype bfloat16', '--dtype q2_k'],
  '17_long_context': ['--factor 2', '--factor 0'],
  '19_latent_attention': ['--only 4', '--seed 1'],
  '20_linear_attention': ['--only 4', '--seed 1'],
  '21_serving': ['--only 7 --num-pages 6', '--seed 1 --max-sequences 3 --page-size 8 --max-step-tokens 20', '--num-pages 9'],
  '22_speculation': ['--only 2 --draft-layers 3 --num-proposals 8', '--seed 1 --prompt "And the king said"', '--draft-layers 4'],
  '23_structured_output': ['--seed 1', '--schema true --text [12,', '--schema true --text ]'],
  '24_parallel': ['--only 2 --ranks 5', '--ranks 2', '--ranks 6'],
  'ask': ['--question "why divide by the root of D?" --scores', '--question "What is a KV cache?"', '--question xyzzy --scores --count 20'],
  '25_encoders': ['--steps 20 --seed 1', '--steps 20 --fill b_t', '--fill bat'],
  '26_encoder_decoder': ['--only 2', '--seed 1'],
  '27_vision': ['--only 1', '--steps 10 --seed 1'],
  '28_model_parallel': ['--only 5', '--seed 1'],
  '18_experts': ['--seed 1', '--num-experts 4'],
  '15_fast': ['--no-timing --max-new-tokens 20', '--no-timing --prompt "And God said"', '--max-new-tokens 0'],
}

const workerSource = `
  onmessage = async ({ data: { script, args, files } }) => {
    const lines = []
    const errors = []
    try {
      const { default: createProgram } = await import(script)
      await createProgram({
        arguments: args,
        print: line => lines.push(line),
        printErr: line => errors.push(line),
        preRun: [({ FS }) => {
          for (const { path, content } of files) {
            FS.mkdirTree(path.slice(0, path.lastIndexOf('/')))
            FS.writeFile(path, content)
          }
        }],
        onExit: code => postMessage({ code, lines, error: errors.join('\\n') }),
      })
    } catch (error) {
      postMessage({ code: null, lines, error: String(error) })
    }
  }`

// In the page: loads the assets once, and offers runProgram().
async function prepare({ source, paths }) {
  const files = await Promise.all(paths.map(async (path) => {
    const response = await fetch(`/programs${path}`)
    return { path, content: new Uint8Array(await response.arrayBuffer()) }
  }))
  const address = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }))
  window.runProgram = (slug, args) => new Promise((done) => {
    const worker = new Worker(address, { type: 'module' })
    worker.onmessage = ({ data }) => {
      worker.terminate()
      done(data)
    }
    worker.onerror = event => done({ code: null, lines: [], error: event.message })
    worker.postMessage({ script: `${location.origin}/programs/${slug}.js`, args, files })
  })
}

const began = Date.now()
const programs = join(site, 'programs')
if (!existsSync(programs)) fail(`${programs} is missing: ./learn site --build makes it`)
// All that programs read: programs/assets and programs/docs of the site are /assets and /docs of a program.
const filesIn = folder => readdirSync(join(programs, folder), { withFileTypes: true })
  .flatMap(entry => (entry.isDirectory() ? filesIn(`${folder}/${entry.name}`) : [`/${folder}/${entry.name}`]))
const paths = ['assets', 'docs'].flatMap(filesIn)

const server = await serve({ '/': site })
const browser = await launch()
const page = await browser.newPage()
await page.route('**/empty', route => route.fulfill({ contentType: 'text/html', body: '' }))
await page.goto(`${server.origin}/empty`)
await page.evaluate(prepare, { source: workerSource, paths })

// One line for each difference.
async function check(command) {
  const [native, actual] = await Promise.all([
    runNatively(command),
    page.evaluate(([slug, args]) => window.runProgram(slug, args),
      [command.slug, [...command.args, '--json', '--plots', 'none']]),
  ])
  const differences = compareRuns(native, actual, toleranceOf(command.slug))
  if (differences.length === 0) return []
  const magnified = await magnifiedPlaces(command, native, toleranceOf(command.slug))
  const gross = compareRuns(native, actual, coarse).map(({ place }) => place)
  return differences.filter(({ place }) => gross.includes(place) || !magnified.includes(place))
    .map(({ place, detail }) => `${place}: ${detail}`)
}

// Three commands at a time: each waits for its native program, and then for the browser.
const commands = [...slugs, 'walk', 'ask'].filter(slug => !process.argv[2] || slug.startsWith(process.argv[2]))
  .flatMap(slug => [defaults[slug] ?? [], ...(further[slug] ?? []).map(words)].map(args => ({ slug, args })))
const numRuns = commands.length
let numDifferences = 0
async function checkRemaining(remaining) {
  for (let command = remaining.shift(); command; command = remaining.shift()) {
    const differences = await check(command)
    for (const difference of differences) console.log(`${commandText(command)}: ${difference}`)
    numDifferences += differences.length
  }
}
const remaining = [...commands]
await Promise.all([0, 1, 2].map(() => checkRemaining(remaining)))
await browser.close()
server.close()

const seconds = Math.round((Date.now() - began) / 1000)
console.log(`${numRuns} runs in ${browserName} and natively: ${numDifferences} differences (${seconds} s)`)
process.exitCode = numDifferences > 0 ? 1 : 0
