// Checks the HTTP of ./learn serve: who may ask, limits, methods, and connections that behave badly.
// Prints one line per check; exits as check_serve.mjs does. Usage: node tests/checks/check_serve_http.mjs BUILD
import { spawnSync } from 'node:child_process'
import { connect } from 'node:net'
import { sleep } from '../support/serve_process.mjs'
import { ask, check, checkAbort, exit, failure, long, metric, model, pagesFree, post, program, raw, start } from '../support/serve_checks.mjs'

// The bytes of a request. A header that is undefined is left out, an array is sent several times.
function http(line, headers = {}, body = '') {
  const all = { Host: 'localhost', Authorization: 'Bearer key', 'Content-Type': 'application/json', ...(body && { 'Content-Length': Buffer.byteLength(body) }), ...headers }
  const lines = Object.entries(all).flatMap(([name, value]) => value === undefined ? [] : [value].flat().map(each => `${name}: ${each}\r\n`))
  return `${/HTTP/.test(line) ? line : `${line} HTTP/1.1`}\r\n${lines.join('')}\r\n${body}`
}
const completion = (more = {}) => JSON.stringify({ model, prompt: 'The', max_tokens: 2, ...more })
const postJson = (headers, body = completion()) => http('POST /v1/completions', headers, body)
const statusOf = answer => Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1])
const headerOf = (answer, name) => new RegExp(`^${name}: (.*?)\r?$`, 'im').exec(answer.split('\r\n\r\n')[0])?.[1]
// Empty unless the body is JSON.
function jsonOf(answer) {
  try {
    return JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4))
  } catch {
    return {}
  }
}

// Each row: a title, the bytes of a request (or an array with pauses), and the status. Errors are JSON.
async function statuses(server, rows) {
  for (const [title, bytes, wanted] of rows) {
    const began = performance.now(), answer = await Promise.race([raw(server, ...[bytes].flat()), sleep(4000).then(() => '')])
    const isJson = wanted < 400 || /^HEAD|^TRACE/.test(bytes) || jsonOf(answer).error?.message.length > 0
    check(`${wanted} of ${title}`, statusOf(answer) === wanted && isJson, `${statusOf(answer)}, ${Math.round(performance.now() - began)} ms`)
  }
}

async function hosts(withKey) {
  const server = await start()
  const from = host => http('GET /v1/models', { Host: host })
  const accepted = ['localhost', 'LocalHost:8080', 'localhost.', 'localhost.:80', `127.0.0.1:${server.port}`, '[::1]:9', '[::1]', 'localhost:']
  const refused = ['attacker.example', `attacker.example:${server.port}`, 'localhost.attacker.example', 'localhost:80@attacker.example', '127.0.0.1.nip.io', '::1', '[::1', '.', 'xlocalhost']
  await statuses(server, [
    ...accepted.map(host => [`Host ${host}`, from(host), 200]),
    ...refused.map(host => [`Host ${host}`, from(host), 403]),
    ['no Host', http('GET /v1/models HTTP/1.0', { Host: undefined }), 200],
    ['two Hosts, one of them strange', from(['localhost', 'attacker.example']), 403],
    ['a strange Host of the page', http('GET /', { Host: 'attacker.example' }), 403],
    ['a strange Host of an answer', postJson({ Host: 'attacker.example' }), 403]])
  const { error = { message: '' } } = jsonOf(await raw(server, from('attacker.example')))
  check('403 names the accepted hosts and --api-key', /localhost, 127\.0\.0\.1, \[::1\]/.test(error.message) && error.message.includes('--api-key'), error.message)
  await statuses(withKey, [['any Host, with a key', from('attacker.example'), 200]])
  server.child.kill('SIGINT')
}

async function origins(without) {
  const server = await start('--allow-origin', 'http://a.example:5173,https://b.example', '--allow-origin', 'app://c', '--api-key', 'key')
  const preflight = (origin, more = {}) => http('OPTIONS /v1/chat/completions', { Origin: origin, Authorization: undefined, 'Content-Type': undefined, 'Access-Control-Request-Method': 'POST', ...more })
  const allowed = answer => headerOf(answer, 'Access-Control-Allow-Origin')
  for (const origin of ['http://a.example:5173', 'https://b.example', 'app://c']) {
    const answer = await raw(server, preflight(origin, { 'Access-Control-Request-Headers': 'x-stainless-os, authorization', 'Access-Control-Request-Private-Network': 'true' }))
    check(`a preflight from ${origin}`, statusOf(answer) === 204 && allowed(answer) === origin && headerOf(answer, 'Vary') === 'Origin' && /POST/.test(headerOf(answer, 'Access-Control-Allow-Methods')) &&
      headerOf(answer, 'Access-Control-Allow-Headers') === 'x-stainless-os, authorization' && headerOf(answer, 'Access-Control-Allow-Private-Network') === 'true' && headerOf(answer, 'Access-Control-Max-Age') > 0)
  }
  const plain = await raw(server, preflight('app://c'))
  check('a preflight that asks for no headers', headerOf(plain, 'Access-Control-Allow-Headers') === 'Authorization, Content-Type' && !/Private/.test(plain))
  const stranger = await raw(server, preflight('https://evil.example'))
  check('a preflight from elsewhere', !/Access-Control/.test(stranger) && headerOf(stranger, 'Vary') === 'Origin')
  await statuses(server, [['OPTIONS of an unknown path', http('OPTIONS /v2'), 404]])

  const Origin = 'https://b.example'
  for (const [title, bytes, status] of [['an answer', postJson({ Origin }), 200], ['a stream', postJson({ Origin }, completion({ stream: true })), 200], ['401', postJson({ Origin, Authorization: 'Bearer no' }), 401],
    ['400', postJson({ Origin }, '{'), 400], ['404', http('GET /v2', { Origin }), 404], ['bytes that are no request', 'GET\r\n\r\n', 400]]) {
    const answer = await raw(server, bytes)
    check(`the origin of ${title}`, statusOf(answer) === status && headerOf(answer, 'Vary') === 'Origin' && (status === 400 && !/b\.example/.test(bytes) || allowed(answer) === Origin), status)
  }
  check('no origin', !/Access-Control/.test(await raw(server, postJson())))
  server.child.kill('SIGINT')

  const all = await start('--allow-origin', '*')
  const answer = await raw(all, http('GET /v1/models', { Origin: 'https://any.example' }))
  check('--allow-origin *', allowed(answer) === '*' && /Retry-After/.test(headerOf(answer, 'Access-Control-Expose-Headers')))
  await statuses(all, [['a strange Host, with --allow-origin', preflight('https://any.example', { Host: 'attacker.example' }), 403]])
  all.child.kill('SIGINT')

  const refused = await raw(without, preflight('https://b.example'))
  check('405 of OPTIONS without --allow-origin', statusOf(refused) === 405 && !/Access-Control|Vary/.test(refused) && headerOf(refused, 'Allow') === 'GET, HEAD, POST')
}

// Errors of the command line: one line, and exit code 2.
function commandLine() {
  const wrong = [...['https://a.example/', 'https://a.example/x', 'a.example', 'https://', 'null', '', 'https://*.example', 'https://a b'].map(origin => ['--allow-origin', origin]),
    ['--api-key', ''], ['--api-key', 'a b'], ['--api-key', 'a%41'], ['--api-key', 'ä'], ['--host', ''], ['--host', 'no.such.host.invalid']]
  for (const options of wrong) {
    const { status, stderr } = spawnSync(program, ['--port', '0', ...options], { timeout: 20_000, encoding: 'utf8' })
    check(`exit code 2 of ${options.join(' ')}`, status === 2 && stderr.trim().split('\n').length === 1, stderr.trim())
  }
}

async function lengths(server) {
  const withLength = (value, more = {}, body = completion()) => postJson({ 'Content-Length': value, ...more }, body)
  const head = length => http('POST /v1/completions', { 'Content-Length': length })
  const size = completion().length
  await statuses(server, [
    ['a gzip body', postJson({ 'Content-Encoding': 'gzip' }), 415], ['a Brotli body', postJson({ 'Content-Encoding': ['identity', 'br'] }), 415], ['an identity body', postJson({ 'Content-Encoding': 'Identity' }), 200],
    ['a chunked body', postJson({ 'Content-Length': undefined, 'Transfer-Encoding': 'chunked' }, 'ffffffffffff\r\n'), 411], ['both lengths', withLength(0, { 'Transfer-Encoding': 'chunked' }), 411],
    ['a chunked GET', http('GET /v1/models', { 'Transfer-Encoding': 'chunked' }), 411], ['no length', withLength(undefined), 411],
    ['two lengths', withLength([size, size + 1]), 400], ['two lengths, the longer first', withLength([size + 1, size]), 400], ['the same length twice', withLength([size, size]), 200],
    ...['abc', '-1', '+5', '0x10', '5, 5', '1e3', '5 5', '１'].map(length => [`the length ${length}`, withLength(length), 400]),
    ['a GET with the length abc', http('GET /v1/models', { 'Content-Length': 'abc' }), 400],
    ['the head of 2 MB', head(2_000_000), 413], ['a length of 2^64 + 1', head('18446744073709551617'), 413], ['a byte more than the limit', head(2 ** 20 + 1), 413],
    ['2 MB and a pause', [head(2_000_000), 'x'.repeat(500_000), 300, 'x'.repeat(1_500_000)], 413],
    ['the largest body', postJson({}, completion().padEnd(2 ** 20)), 200]])
  const began = performance.now()
  await raw(server, head(2_000_000), 100, null)
  check('413 comes at once', performance.now() - began < 1000, `${Math.round(performance.now() - began)} ms`)
  check('413 of the client', await failure(server.client.chat.completions.create(ask('x'.repeat(2_000_000)))) === '413')
  for (const [length, wanted] of [[2_000_000, 413], [completion().length, 200]]) {
    const answer = raw(server, http('POST /v1/completions', { 'Content-Length': length, Expect: '100-continue' }), 300, length < 1000 ? completion() : null)
    const text = await answer
    check(`${wanted} with Expect: 100-continue`, wanted === 413 ? statusOf(text) === 413 : text.startsWith('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 '), text.split('\r\n')[0])
  }
  const second = await raw(server, http('GET /health', { 'Content-Length': 400 }) + http('GET /v1/models'), 100, http('GET /v1/models').padEnd(400))
  check('a body after a GET is no request', second.split('HTTP/1.1').length === 2 && !second.includes(model), second.split('\r\n')[0])
}

async function keys(server) {
  const models = Authorization => http('GET /v1/models', { Authorization })
  await statuses(server, [
    ...['bearer key', 'BEARER key', 'Bearer   key'].map(given => [given, models(given), 200]),
    ...['Bearer ', 'Bearer', 'Bearer ke', 'Bearer keyx', 'Bearer key x', 'Bearer KEY', 'Basic key', 'key', 'Bearerkey', ' ', undefined].map(given => [`the key ${given}`, models(given), 401]),
    ['the metrics', http('GET /metrics'), 200], ['the metrics without a key', http('GET /metrics', { Authorization: undefined }), 401],
    ['the metrics with a shorter key', http('GET /metrics', { Authorization: 'Bearer k' }), 401], ['an answer without a key', postJson({ Authorization: undefined }), 401],
    ['a large body without a key', [http('POST /v1/completions', { Authorization: undefined, 'Content-Length': 900_000 }), 'x'.repeat(900_000)], 401],
    ['the page without a key', http('GET /', { Authorization: undefined }), 200], ['the health without a key', http('GET /health', { Authorization: undefined }), 200]])
  check('401 says how to authenticate', headerOf(await raw(server, models('no')), 'WWW-Authenticate') === 'Bearer')
}

async function typesAndMethods(server) {
  await statuses(server, [
    ...['application/json', 'Application/JSON', 'application/json; charset=utf-8', 'application/json ;charset=utf-8'].map(type => [`the type ${type}`, postJson({ 'Content-Type': type }), 200]),
    ...['application/jsonp', 'application/json5', 'text/plain', 'text/plain; application/json', 'application/x-www-form-urlencoded', undefined].map(type => [`the type ${type}`, postJson({ 'Content-Type': type }), 415]),
    ...['/', '/health', '/metrics', '/v1/models', `/v1/models/${model}`, '/v1/chat/completions'].map(path => [`HEAD ${path}`, http(`HEAD ${path}`), 200]),
    ['HEAD of an unknown path', http('HEAD /v2'), 404], ['an unknown path', http('GET /v1'), 404], ['an unknown path with ranges', http('GET /v1', { Range: 'bytes=0-1,3-4,6-' }), 404], ['POST of an unknown path', http('POST /v1/x', {}, '{}'), 404], ['/v1/models/', http('GET /v1/models/'), 404],
    ['a long path', http(`GET /v1/models/${'a'.repeat(8000)}`), 404], ['an unknown method', http('BREW /'), 400]])
  for (const [line, allow] of [['POST /', 'GET, HEAD'], ['DELETE /v1/models', 'GET, HEAD'], ['GET /v1/completions', 'POST'], ['HEAD /v1/completions', 'POST'], ['PUT /v1/chat/completions', 'GET, HEAD, POST'], ['TRACE /health', 'GET, HEAD'],
    ['PATCH /v1/chat/completions/x', 'GET, HEAD, POST, DELETE'], ['DELETE /v1/chat/completions/x/messages', 'GET, HEAD'], [`DELETE /v1/models/${model}`, 'GET, HEAD'], ['POST /metrics', 'GET, HEAD']]) {
    const answer = await raw(server, /^(POST|PUT|PATCH)/.test(line) ? http(line, {}, '{}') : http(line))
    check(`405 of ${line}`, statusOf(answer) === 405 && headerOf(answer, 'Allow') === allow && (line.startsWith('HEAD') || jsonOf(answer).error?.type === 'invalid_request_error'), statusOf(answer))
  }
}

// Clients of HTTP/1.0, and those that close their sending side when they have asked.
async function oldClients(server) {
  const stream = (version, headers = {}) => http(`POST /v1/completions HTTP/${version}`, headers, completion({ stream: true, max_tokens: 20 }))
  const isStream = (text, chunked) => /text\/event-stream/.test(text) && /^data: \{/m.test(text) && text.endsWith(chunked ? 'data: [DONE]\n\n\r\n0\r\n\r\n' : 'data: [DONE]\n\n') && /chunked/.test(text) === chunked
  check('a stream of HTTP/1.0 has no chunks', isStream(await raw(server, stream('1.0', { Host: undefined })), false))
  check('that of HTTP/1.1 has', isStream(await raw(server, stream('1.1')), true))
  for (const version of ['1.0', '1.1']) for (const Connection of ['close', undefined]) {
    const title = `HTTP/${version}${Connection ? ' with Connection: close' : ''}, half closed`
    const whole = await raw(server, http(`POST /v1/completions HTTP/${version}`, { Connection }, completion({ max_tokens: 100 })), null)
    const last = whole.slice(whole.lastIndexOf('HTTP/1.1 '))
    check(`a whole answer of ${title}`, statusOf(last) === 200 && jsonOf(last).choices?.length === 1 && (version === '1.1' || last === whole), whole.split('\r\n')[0])
    check(`a stream of ${title}`, isStream(await raw(server, stream(version, { Connection }), null), version === '1.1'))
    check(`a stream of ${title} a little later`, isStream(await raw(server, stream(version, { Connection }), 15, null), version === '1.1'))
    check(`the models of ${title}`, jsonOf(await raw(server, http(`GET /v1/models HTTP/${version}`, { Connection }), null)).data?.length === 1)
    check(`HEAD of ${title}`, (await raw(server, http(`HEAD /v1/models HTTP/${version}`, { Connection }), null)).endsWith('\r\n\r\n'))
    check(`401 of ${title}`, statusOf(await raw(server, http(`GET /v1/models HTTP/${version}`, { Connection, Authorization: undefined }), null)) === 401)
  }
}

// Clients that close both sides, while a long answer is generated. Its tokens are counted without an
// abort first.
async function abortedClients() {
  const server = await start('--max-sequences', '1')
  const request = long({ seed: 7 })
  const { usage: { completion_tokens: all } } = await server.client.completions.create(request)
  for (const [title, headers, stream] of [['a whole answer', {}, false], ['a whole answer with Connection: close', { Connection: 'close' }, false], ['a stream', {}, true], ['a stream with Connection: close', { Connection: 'close' }, true]]) {
    await checkAbort(server, all, `an abort of ${title}`, async firstToken => {
      const socket = connect(server.port, '127.0.0.1', () => socket.write(postJson(headers, JSON.stringify({ ...request, stream }))))
      await firstToken()
      socket.destroy()
    })
  }
  server.child.kill('SIGINT')
}

// Bytes that are no request, half of one, or a request that arrives slowly.
async function badConnections(server) {
  const many = ['\r\n\r\n', 'GET\r\n\r\n', '\0'.repeat(10_000), 'x'.repeat(100_000), 'GET / HTTP/1.1\r\nRange: bytes=' + '0-0,'.repeat(1900) + '0-0\r\n\r\n',
    'GET / HTTP/1.1\r\n' + 'A: b\r\n'.repeat(50_000) + '\r\n', `GET /${'a'.repeat(8000)} HTTP/1.1\r\n\r\n`, post('{"model": "\\ud800"}'),
    http('POST /v1/completions', { 'Transfer-Encoding': 'chunked' }) + 'ffffffffffff\r\n', http('POST /v1/completions', { 'Content-Length': -1 }) + '{}']
  const waiting = many.map(bytes => Promise.race([raw(server, bytes), sleep(1500)]))
  // Connected, and silent; half a head; half a body; a byte now and then, up to half a head.
  const half = [raw(server), raw(server, 'GET /v1/mod'), raw(server, post('{"model": "x"}').slice(0, -4)),
    raw(server, ...Array.from('GET /health HTTP/1.1\r\nHost: slow', c => [c, 150]).flat())]
  const began = performance.now()
  check('half-open and slow clients stop no one', (await server.client.chat.completions.create(ask('What is 1 + 1?'))).choices.length === 1, `${Math.round(performance.now() - began)} ms`)
  await Promise.all(waiting)
  check('bytes that are no request crash nothing', (await fetch(`${server.url}/health`)).ok)
  return Promise.all(half).then(() => check('half requests end', performance.now() - began < 14_000, `${Math.round(performance.now() - began)} ms`))
}

// If all connections are taken, the server ends those that have been silent for a second (connections.hpp).
// Until another client is answered, that and half a second may pass, in milliseconds.
const maxWait = 1500

// More half-open clients than connections. They connect again when they are ended.
async function crowd(server) {
  const kinds = [[], ['GET /v1/mod'], [post('{"model": "x"}').slice(0, -4)], [http('POST /v1/completions', { 'Content-Length': 2_000_000 })]]
  let isOver = false
  const sockets = new Set()
  const open = i => {
    const socket = connect(server.port, '127.0.0.1', () => kinds[i % 4].forEach(bytes => socket.write(bytes)))
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => { sockets.delete(socket); if (!isOver) open(i) }).resume()
  }
  const answer = server.client.completions.create(long({ n: 1, max_tokens: 200 }))  // long before the crowd, silent since
  for (let i = 0; i < 300; ++i) open(i)
  await sleep(300)
  let slowest = 0, answered = 0
  for (let i = 0; i < 20; ++i) {
    const began = performance.now()
    if (statusOf(await raw(server, http('GET /v1/models'))) === 200) ++answered
    slowest = Math.max(slowest, performance.now() - began)
    await sleep(50)
  }
  check('300 half-open clients keep no one out', answered === 20 && slowest < maxWait, `${Math.round(slowest)} ms at most`)
  check('requests that are complete are not ended', (await failure(answer)) === 'accepted')
  isOver = true
  sockets.forEach(socket => socket.destroy())
}

// A server with one thread. A half-open client is ended if another one waits. A client that waits for the
// thread has sent all, and is not ended.
async function oneConnection() {
  const server = await start('--max-connections', '1', '--max-sequences', '1')
  await raw(server, http('GET /health'))
  await sleep(50)
  const half = raw(server, 'GET /v1/mod')
  await sleep(50)
  const began = performance.now()
  const health = await raw(server, http('GET /health'))
  check('a half-open client does not keep the only thread', statusOf(health) === 200 && performance.now() - began < maxWait, `${Math.round(performance.now() - began)} ms`)
  await half
  const busy = Promise.all([0, 1, 2, 3].map(() => failure(server.client.completions.create(long()))))
  await sleep(100)
  const before = performance.now(), waiting = await raw(server, http('GET /v1/models'))
  check('a request that waits for a thread is answered', statusOf(waiting) === 200 && (await busy).every(result => result === 'accepted'), `${Math.round(performance.now() - before)} ms`)
  const crowd = await Promise.all(Array.from({ length: 400 }, () => raw(server, postJson())))
  const answered = crowd.filter(answer => statusOf(answer) === 200).length
  check('400 requests that wait for one thread are answered', answered === 400, answered)
  const { status } = spawnSync(program, ['--port', String(server.port)], { timeout: 20_000 })
  check('two servers do not share a port', status === 2, status)
  server.child.kill('SIGINT')
}

// Every call of OpenAI's client on models and completions.
async function wholeApi({ client }) {
  const { models, chat: { completions } } = client
  check('a model', (await models.retrieve(model)).id === model)
  const expected = [
    ['no such model', () => models.retrieve('org/a b'), '404 model model_not_found'], ['models are not deleted', () => (models.delete ?? models.del).call(models, model), '405'],
    ['no stored answer', () => completions.retrieve('x'), '404'], ['none to change', () => completions.update('x', { metadata: { a: 'b' } }), '404'],
    ['none to delete', () => (completions.delete ?? completions.del).call(completions, 'x'), '404'], ['no messages of it', () => completions.messages.list('x'), '404']]
  for (const [title, call, wanted] of expected) {
    const actual = await failure(call())
    check(title, actual === wanted, actual)
  }
  const list = await completions.list()
  check('the list of stored answers is empty', list.data.length === 0 && !list.hasNextPage())
  const { first_id: first, last_id: last, has_more: more } = await completions.list().asResponse().then(response => response.json())
  check('it has the fields of a page', first === null && last === null && more === false)
}

// The address that is printed, and whether only this machine can reach it, so that Host is checked.
async function addresses() {
  const rows = [['127.0.0.1', 'http://127.0.0.1:', true], ['localhost', 'http://localhost:', true], ['::1', 'http://[::1]:', true], ['127.1.2.3', 'http://127.1.2.3:', true],
    ['0.0.0.0', 'http://127.0.0.1:', false], ['::', 'http://[::1]:', false]]
  for (const [host, url, isLoopback] of rows) {
    const server = await start('--host', host)
    await sleep(50)
    const answer = server.url && await (await fetch(`${server.url}/v1/models`)).json()
    check(`--host ${host}`, server.url?.startsWith(url) && answer.data[0].id === model && server.log.includes(`${server.url}/v1\n`) && /name of this one/.test(server.log) !== isLoopback, server.url ?? server.log)
    await statuses(server, [['a strange Host there', http('GET /health', { Host: 'attacker.example' }), isLoopback ? 403 : 200]])
    server.child.kill('SIGINT')
  }
}

const server = await start('--api-key', 'key')
commandLine()
const bad = badConnections(server)
await hosts(server)
await origins(server)
await lengths(server)
await keys(server)
await typesAndMethods(server)
await oldClients(server)
await wholeApi(server)
await addresses()
await bad.then(half => half)
await abortedClients()
await oneConnection()
await crowd(server)
check('the server still runs, and holds no page', await pagesFree(server) < 1000)
server.child.kill('SIGINT')
check('Ctrl-C ends an idle server', await server.ended === 0)
exit()
