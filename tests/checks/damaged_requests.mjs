// Sends 2,000 damaged requests to ./learn serve, from a fixed seed: none may get past the key, the hosts
// or the limit of a body, or end the server. Usage: node tests/checks/damaged_requests.mjs BUILD [SEED]
import { check, exit, model, raw, start } from '../support/serve_checks.mjs'
import { sleep } from '../support/serve_process.mjs'

// mulberry32
let state = Number(process.argv[3] ?? 77)
function random(count) {
  state = state + 0x6D2B79F5 | 0
  let t = Math.imul(state ^ state >>> 15, 1 | state)
  t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t
  return ((t ^ t >>> 14) >>> 0) % count
}
const pick = list => list[random(list.length)]

const limit = 2000
const completion = JSON.stringify({ model, prompt: 'The', max_tokens: 1 })
const chat = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 1, stream: true })
// A request is an array: its first line, then its headers. The body is apart.
const targets = [['POST /v1/completions', completion], ['POST /v1/chat/completions', chat], ['POST /v1/completions', completion.padEnd(limit + 1)], ['GET /v1/models', ''],
  [`GET /v1/models/${model}`, ''], ['GET /v1/chat/completions', ''], ['DELETE /v1/chat/completions/x', ''], ['OPTIONS /v1/models', ''], ['HEAD /metrics', '']]
const values = {
  Host: ['attacker.example', 'localhost', '127.0.0.1:1', '[::1]', '', 'localhost.', 'localhost:80@x', '%6cocalhost', 'a'.repeat(3000)],
  Authorization: ['Bearer key', 'Bearer ke', 'Bearer keyy', 'Bearer ', 'bearer  key', 'Basic key', 'Bearer key\0', 'Bearer %6bey', 'key'],
  'Content-Length': ['0', '1', '-1', '+5', '0x10', '5, 5', '99999999999999999999', '18446744073709551617', '2001', '4294967297', 'abc', ''],
  'Transfer-Encoding': ['chunked', 'identity', 'gzip, chunked', 'Chunked '], 'Content-Encoding': ['gzip', 'br', 'identity', 'deflate'],
  'Content-Type': ['application/json', 'text/plain', 'multipart/form-data; boundary=x', 'application/x-www-form-urlencoded', 'application/jsonp'],
  Connection: ['close', 'keep-alive', 'Upgrade'], Expect: ['100-continue', '200-ok'], Range: ['bytes=0-1', 'bytes=5-', 'bytes=x'], Origin: ['https://a.example', 'null'],
}
const junk = ['\r', '\n', '\0', '\r\n', ':', ' ', '\t', '%', '"', '{', '\\', '\x80', '\xff', 'A'.repeat(9000)]
const spoil = text => { const at = random(text.length + 1); return text.slice(0, at) + pick([...junk, '']) + text.slice(at + random(3)) }

const damage = [
  ({ lines }) => { const at = random(lines.length); lines[at] = spoil(lines[at]) },
  ({ lines }) => { lines.splice(random(lines.length), 1) },
  ({ lines }) => { lines.push(pick(lines)) },
  ({ lines }) => { const name = pick(Object.keys(values)); lines.push(`${name}: ${pick(values[name])}`) },
  ({ lines }) => { const name = pick(Object.keys(values)), at = lines.findIndex(line => line.startsWith(name)); if (at > 0) lines[at] = `${name}: ${pick(values[name])}` },
  ({ lines }) => { lines[0] = lines[0]?.replace(/^\w+/, pick(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT', 'PRI', 'BREW', ''])) },
  ({ lines }) => { lines[0] = lines[0]?.replace(/HTTP.*/, pick(['HTTP/1.0', 'HTTP/2.0', 'HTTP/0.9', 'http/1.1', ''])) },
  request => { request.body = spoil(request.body) },
  request => { request.body = request.body.slice(0, random(request.body.length + 1)) },
  request => { request.body += completion.repeat(random(100)) },
]
function damaged() {
  const [line, body] = pick(targets)
  const lines = [`${line} HTTP/1.1`, 'Host: localhost', 'Authorization: Bearer key', 'Content-Type: application/json']
  if (body) lines.push(`Content-Length: ${body.length}`)
  const request = { lines, body }
  for (let i = random(4); i >= 0; --i) pick(damage)(request)
  return `${request.lines.join('\r\n')}\r\n\r\n${request.body}`
}

// Does the answer show what needs the key, and does the request have what it needs for that?
const shows = answer => /HTTP\/1\.1 200/.test(answer) && /"object":|^llm_/m.test(answer)
// httplib skips lines that do not end with CRLF, and decodes %XX.
const headers = (bytes, name) => bytes.split('\r\n\r\n')[0].concat('\r\n').split('\n').filter(line => line.endsWith('\r'))
  .map(line => new RegExp(`^${name}:[ \t]*([^]*?)[ \t]*\r$`, 'i').exec(line)?.[1]).filter(value => value !== undefined)
  .map(value => value.replace(/%([0-7][\da-f])/gi, (_, hex) => String.fromCharCode(parseInt(hex, 16))))
const hasKey = bytes => headers(bytes, 'Authorization').some(value => /^bearer +key$/i.test(value) && value.endsWith('key'))
const hasHost = bytes => headers(bytes, 'Host').every(value => value === '' || /^(localhost|127\.0\.0\.1|\[::1\])\.?(:\d*)?$/i.test(value))
const isLarge = bytes => headers(bytes, 'Content-Length').some(value => Number(value) > limit)

const servers = [await start('--api-key', 'key', '--max-body-bytes', String(limit), '--allow-origin', 'https://a.example'), await start('--max-body-bytes', String(limit))]
const began = performance.now(), counts = {}, past = { key: [], host: [], limit: [] }
let number = 0, unanswered = 0
async function client() {
  while (number < 2000) {
    const server = servers[++number % 2], bytes = damaged()
    const answer = await Promise.race([raw(server, Buffer.from(bytes, 'latin1'), null), sleep(8000)])
    const status = /^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 'none'
    counts[status] = (counts[status] ?? 0) + 1
    if (answer === undefined) ++unanswered
    if (!shows(answer ?? '')) continue
    if (server === servers[0] && !hasKey(bytes)) past.key.push(bytes)
    if (server === servers[1] && !hasHost(bytes)) past.host.push(bytes)
    if (isLarge(bytes)) past.limit.push(bytes)
  }
}
await Promise.all(Array.from({ length: 32 }, client))
const seconds = (performance.now() - began) / 1000
check('2,000 damaged requests take less than 20 seconds', seconds < 20, `${seconds.toFixed(1)} s, ${JSON.stringify(counts)}`)
check('each connection ends', unanswered === 0, unanswered)
check('some requests are answered, most are not', counts[200] > 100 && counts[200] < 1000)
for (const [name, list] of Object.entries(past)) check(`none gets past the ${name}`, list.length === 0, list.length ? JSON.stringify(list[0].slice(0, 300)) : '')
for (const server of servers) {
  check('the server answers a request', (await server.client.completions.create({ model, prompt: 'The', max_tokens: 1 })).choices.length === 1)
  server.child.kill('SIGINT')
  check('and ends', await server.ended === 0)
}
exit()
