// What the checks of ./learn serve share. Exits with 77 if the server or OpenAI's client is missing,
// or Node is too old for the client.
import { connect } from 'node:net'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { programForClients, sleep, startServer } from './serve_process.mjs'

const library = fileURLToPath(new URL('../checks/clients/node_modules/openai/index.mjs', import.meta.url))
export const program = programForClients(process.argv[2], library)
export const { default: OpenAI } = await import(pathToFileURL(library))

let failures = 0
export function check(title, passed, detail = '') {
  console.log(`${passed ? 'passed' : 'FAILED'}: ${title}${detail === '' ? '' : ` (${detail})`}`)
  if (!passed) ++failures
}
export const exit = () => process.exit(failures ? 1 : 0)

// With the adapter of chapter 14, unless the options name a model: it answers without calls.
const adapter = fileURLToPath(new URL('../../assets/wordnet_answers', import.meta.url))
export async function start(...options) {
  const chosen = options.includes('--model') ? options : ['--adapter', adapter, ...options]
  const server = await startServer(program, ...chosen)
  server.client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'key', maxRetries: 0 })
  return server
}

export async function metric(server, name) {
  const text = await (await fetch(`${server.url}/metrics`, { headers: { Authorization: 'Bearer key' } })).text()
  return Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)[1])
}
// Waits until an asynchronous condition holds; gives up after 20 seconds.
export async function until(condition) {
  const began = performance.now()
  while (!await condition()) {
    if (performance.now() - began > 20_000) throw Error(`20 seconds have passed until ${condition}`)
    await sleep(1)
  }
}
// Waits until no page is used; returns how long that took.
export async function pagesFree(server) {
  const began = performance.now()
  while (performance.now() - began < 5000) {
    if (await metric(server, 'llm_pages_used') === 0 && await metric(server, 'llm_requests_running') === 0) return Math.round(performance.now() - began)
    await sleep(5)
  }
  return Infinity
}
// abort() makes the client of a request go away, which would generate so many tokens.
export async function checkAbort(server, numTokens, title, abort) {
  const generated = () => metric(server, 'llm_generated_tokens_total')
  const before = await generated()
  await abort(() => until(async () => await generated() !== before))
  const free = await pagesFree(server), tokens = await generated() - before
  check(`${title} frees its pages`, free < 500 && tokens > 0 && tokens < numTokens / 2, `${free} ms, ${tokens} of ${numTokens} tokens`)
}

export const model = 'wordnet_answers'
export const ask = (content, more = {}) => ({ model, messages: [{ role: 'user', content }], temperature: 0, ...more })
// Answers that do not end early: a text is continued up to the end of the context.
export const long = (more = {}) => ({ model, prompt: 'The', max_tokens: 240, n: 16, temperature: 2, ...more })
export async function failure(promise) {
  try {
    await promise
    return 'accepted'
  } catch (error) {
    return `${error.status} ${error.param ?? ''} ${error.code ?? ''}`.trim().replace(/ +/g, ' ')
  }
}

// A raw connection: what the server sends until it closes. A part is bytes, a pause in milliseconds,
// or null, which closes the sending side.
export function raw(server, ...parts) {
  return new Promise(done => {
    let text = ''
    const socket = connect({ port: server.port, host: new URL(server.url).hostname.replace(/[[\]]/g, ''), allowHalfOpen: true }, async () => {
      for (const part of parts) {
        if (typeof part === 'number') await sleep(part)
        else if (part === null) socket.end()
        else if (!socket.destroyed) socket.write(part)
      }
    })
    socket.on('data', data => text += data)
    socket.on('error', () => {})
    socket.on('end', () => socket.destroy())
    socket.on('close', () => done(text))
  })
}
export const post = (body, more = '') => `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key\r\nContent-Type: application/json\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
