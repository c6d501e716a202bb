// How long a short request waits for its first token while others are served, and the speed of a
// mixed load. Several builds take turns. Usage: node tests/time/serve_fairness.mjs MODEL ROUNDS SERVE...
// MODEL: a file with the sizes of Mini-LLM; SERVE: programs, such as build/serve.
import { sleep, startServer } from '../support/serve_process.mjs'

const [model, rounds, ...programs] = process.argv.slice(2)
let seed = 1
const random = count => (seed = (seed * 48271) % 2147483647) % count
const prompt = length => Array.from({ length }, () => 300 + random(31000))

// Seconds until the first token, and all new tokens.
async function request(server, length, max_tokens, n = 1) {
  const began = performance.now()
  const body = { prompt: prompt(length), max_tokens, n, stream: true, stream_options: { include_usage: true } }
  const response = await fetch(`${server.url}/v1/completions`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ model: server.model, ...body }) })
  if (!response.ok) throw Error(await response.text())
  let first, text = ''
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    if (/"text":"[^"]/.test(text += part)) first ??= (performance.now() - began) / 1000
  }
  return { first, tokens: Number(/"completion_tokens":(\d+)/.exec(text)[1]) }
}

// The first token of a short request 0.1 s after the others.
async function firstAfter(server, others) {
  const running = others()
  await sleep(100)
  const { first } = await request(server, 20, 8)
  await Promise.all(running)
  return first
}

// New tokens per second of 48 requests from 12 clients.
async function mixedLoad(server) {
  const left = Array.from({ length: 48 }, (_, i) => [20 + random(400), 16 + random(80), i % 4 === 0 ? 4 : 1])
  const began = performance.now()
  let tokens = 0
  const client = async () => {
    while (left.length > 0) {
      const answer = await request(server, ...left.pop())
      tokens += answer.tokens
    }
  }
  await Promise.all(Array.from({ length: 12 }, client))
  return tokens * 1000 / (performance.now() - began)
}

const median = values => values.sort((a, b) => a - b)[values.length >> 1]
const measured = programs.map(() => ({ alone: [], long: [], many: [], speed: [] }))
for (let round = 0; round < Number(rounds); ++round)
  for (const [i, program] of programs.entries()) {
    seed = round + 1
    const server = await startServer(program, '--model', model)
    server.model = (await (await fetch(`${server.url}/v1/models`)).json()).data[0].id
    measured[i].alone.push((await request(server, 20, 8)).first)
    measured[i].long.push(await firstAfter(server, () => [request(server, 1900, 8)]))
    measured[i].many.push(await firstAfter(server, () => Array.from({ length: 8 }, () => request(server, 20, 64, 16))))
    measured[i].speed.push(await mixedLoad(server))
    server.child.kill('SIGINT')
    await server.ended
  }
for (const [i, { alone, long, many, speed }] of measured.entries()) {
  console.log(`${programs[i]}: seconds to the first token, median of ${rounds}`)
  console.log(`  alone ${median(alone).toFixed(2)}, after a prompt of 1,900 tokens ${median(long).toFixed(2)},`,
    `after 8 requests for 16 answers ${median(many).toFixed(2)}; mixed load ${median(speed).toFixed(0)} tokens per second`)
}
