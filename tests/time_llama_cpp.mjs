// Times llama.cpp for ./learn bench, which calls this: a prefill of 512 tokens, and a decode step
// after 0, 256 and 1024 tokens. Prints seconds as JSON. Needs Node 20 and the npm package
// node-llama-cpp.
// Usage: node tests/time_llama_cpp.mjs FOLDER MODEL.gguf, with node_modules in the folder.
import { availableParallelism } from 'node:os'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const [folder, file] = process.argv.slice(2)
const library = resolve(folder, 'node_modules/node-llama-cpp/dist/index.js')
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(library))
const threads = availableParallelism()
const llama = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.error, maxThreads: threads })
const model = await llama.loadModel({ modelPath: resolve(file), useMmap: false })
const context = await model.createContext({ contextSize: 2048, batchSize: 512, threads })
const sequence = context.getSequence()

const ids = count => Array.from({ length: count }, (_, i) => (i * 7919) % 32000)
const evaluate = ids => sequence.evaluateWithoutGeneratingNewTokens(ids)

// The fastest call of at least 0.6 seconds and five calls. (Our own benchmarks take means of 0.1
// seconds; a mean of this library's calls would include the time that JavaScript needs.)
async function fastestSeconds(prepare, run) {
  let fastest = Infinity
  for (let total = 0, count = 0; total < 0.6 || count < 5; ++count) {
    await prepare(count % 40 === 0)
    const begin = performance.now()
    await run()
    const seconds = (performance.now() - begin) / 1000
    total += seconds
    fastest = Math.min(fastest, seconds)
  }
  return fastest
}

const times = { 'prefill 512': await fastestSeconds(() => sequence.clearHistory(), () => evaluate(ids(512))) }
for (const position of [0, 256, 1024]) {
  // Up to 40 steps follow one another, so they are a few positions further on.
  const prepare = async (isFirst) => {
    if (!isFirst && position > 0) return
    await sequence.clearHistory()
    if (position > 0) await evaluate(ids(position))
  }
  times[`decode at ${position}`] = await fastestSeconds(prepare, () => evaluate([1]))
}
console.log(JSON.stringify(times))
process.exit(0) // its threads would keep the process running
