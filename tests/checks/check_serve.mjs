// Checks ./learn serve with OpenAI's own client and with signals. check_serve_http.mjs checks its HTTP.
// Prints one line per check. Exits with 1 if one fails, and with 77 if the server or the client is
// missing, or Node is too old for the client. Usage: node tests/checks/check_serve.mjs BUILD, after npm --prefix tests/checks/clients ci.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { sleep } from '../support/serve_process.mjs'
import { ask, check, checkAbort, exit, failure, long, metric, model, OpenAI, pagesFree, raw, start, until } from '../support/serve_checks.mjs'

async function conversation({ client, url }) {
  check('models are listed', (await client.models.list()).data[0].id === model)
  const sum = await client.chat.completions.create(ask('What is 47 + 38?'))
  check('chat', sum.choices[0].message.content === '47 + 38 = 85' && sum.choices[0].finish_reason === 'stop', sum.choices[0].message.content)
  check('usage', sum.usage.total_tokens === sum.usage.prompt_tokens + sum.usage.completion_tokens && sum.usage.completion_tokens > 5)
  const again = await client.chat.completions.create(ask('What is 47 + 38?', {
    messages: [{ role: 'user', content: 'What is 47 + 38?' }, sum.choices[0].message, { role: 'user', content: 'And 5 more?' }] }))
  check('an answer is sent back as it came', again.choices[0].message.content === '85 + 5 = 90', again.choices[0].message.content)

  const schema = { type: 'object', properties: { sum: { type: 'integer' }, unit: { enum: ['km', 'm'] } }, required: ['sum', 'unit'], additionalProperties: false }
  const object = await client.chat.completions.create(ask('What is 47 + 38?', {
    max_tokens: 100, response_format: { type: 'json_schema', json_schema: { name: 'sum', strict: true, schema } } }))
  const { sum: number, unit } = JSON.parse(object.choices[0].message.content)
  check('the answer follows a JSON schema', Number.isInteger(number) && ['km', 'm'].includes(unit) && object.choices[0].finish_reason === 'stop', object.choices[0].message.content)
  const any = await client.chat.completions.create(ask('Spell kitchen.', { max_tokens: 200, response_format: { type: 'json_object' } }))
  check('an answer is a JSON object, or the beginning of one', any.choices[0].message.content.startsWith('{'), any.choices[0].message.content)

  const stream = await client.chat.completions.create(ask('Spell kitchen.', { stream: true, stream_options: { include_usage: true } }))
  let text = '', usage, reason, parts = 0
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? ''
    reason = chunk.choices[0]?.finish_reason ?? reason
    usage = chunk.usage ?? usage
    ++parts
  }
  const whole = (await client.chat.completions.create(ask('Spell kitchen.'))).choices[0].message.content
  check('a stream adds up to the answer', text === whole && reason === 'stop' && parts > 4 && usage?.completion_tokens > 5, text)

  const sample = more => client.completions.create({ model, prompt: 'The', max_tokens: 20, n: 2, ...more })
  const texts = async more => (await sample(more)).choices.map(choice => choice.text)
  const [first, second, other] = [await texts({ seed: 7 }), await texts({ seed: 7 }), await texts({ seed: 8 })]
  check('n = 2 gives two answers', first.length === 2 && first[0] !== first[1])
  check('equal seeds give equal answers, others do not', `${first}` === `${second}` && `${first}` !== `${other}`)
  check('max_tokens', (await sample({ n: 1, max_tokens: 3 })).usage.completion_tokens <= 3)

  const stopped = await client.chat.completions.create(ask('What is 47 + 38?', { stop: ['38 ='] }))
  check('a stop string across tokens', stopped.choices[0].message.content === '47 + ' && stopped.choices[0].finish_reason === 'stop')
  const logprobs = (await client.chat.completions.create(ask('What is 2 + 2?', { logprobs: true, top_logprobs: 3 }))).choices[0].logprobs.content
  check('log-probabilities', logprobs.every(({ token, logprob, top_logprobs: top }) => top.length === 3 && top[0].token === token &&
    top[0].logprob === logprob && logprob <= 0 && top[1].logprob <= logprob))
  const old = (await sample({ n: 1, logprobs: 2 })).choices[0].logprobs
  check('log-probabilities of completions', old.tokens.length === old.token_logprobs.length && old.text_offset[0] === 0 && Object.keys(old.top_logprobs[0]).length === 2)
  check('health', (await (await fetch(`${url}/health`)).json()).status === 'ok')
  const page = await (await fetch(url)).text()
  check('the page loads nothing from elsewhere', page.includes('<!doctype html>') && !/(src|href)="(?!data:)|https?:|@import/.test(page))
}

// The model has not been trained on this tool: the grammar alone makes its calls valid.
const tools = [{ type: 'function', function: { name: 'calculator', description: 'Computes sums.', strict: true, parameters: {
  type: 'object', properties: { expression: { type: 'string', maxLength: 20 } }, required: ['expression'], additionalProperties: false } } }]
const only_calculator = { type: 'function', function: { name: 'calculator' } }
const is_call = ({ id, type, function: { name, arguments: text } }) =>
  id.startsWith('call_') && type === 'function' && name === 'calculator' && typeof JSON.parse(text).expression === 'string'

async function toolCalls({ client }) {
  const create = more => client.chat.completions.create(ask('What is 345 + 218?', { tools, ...more }))
  const required = { tool_choice: 'required', parallel_tool_calls: false }
  const { choices: [{ message, finish_reason: reason }], usage } = await create(required)
  check('a required tool is called', reason === 'tool_calls' && message.content === null && message.tool_calls.length === 1 && is_call(message.tool_calls[0]) &&
    usage.completion_tokens > 10, JSON.stringify(message.tool_calls))
  const named = (await create({ tool_choice: only_calculator, stop: ['\n', 'name'], n: 2, logprobs: true })).choices
  check('a tool that is named is called, whatever stops a text', named.every(choice => choice.finish_reason === 'tool_calls' && is_call(choice.message.tool_calls[0]) &&
    choice.logprobs.content.map(({ token }) => token).join('').includes('</tool_call>')) && named[0].message.tool_calls[0].id !== named[1].message.tool_calls[0].id)

  const deltas = []
  let reason_of_stream
  for await (const { choices: [choice] } of await create({ ...required, stream: true })) {
    deltas.push(choice.delta)
    reason_of_stream = choice.finish_reason ?? reason_of_stream
  }
  const parts = deltas.flatMap(delta => delta.tool_calls ?? [])
  check('a call is streamed: first its name, then its arguments', is_call(parts[0].function.arguments === '' && { ...parts[0], function: { ...parts[0].function,
    arguments: parts.slice(1).map(part => part.function.arguments).join('') } }) && parts.slice(1).every(part => part.index === 0 && !part.id) &&
    parts.length > 2 && reason_of_stream === 'tool_calls', `${parts.length} parts`)
  check('no part of it is content', deltas.every(delta => !delta.content) && deltas.every(delta => (delta.tool_calls ?? []).length < 2))

  const result = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: '563' }
  const conversation = [{ role: 'user', content: 'What is 345 + 218?' }, message, result]
  const last = (await create({ messages: conversation })).choices[0]
  check('the result of a call is read', last.finish_reason !== 'length' && (last.message.content?.length > 0 || is_call(last.message.tool_calls[0])), JSON.stringify(last.message))
  const free = (await create({ messages: ask('Spell kitchen.').messages })).choices[0].message
  const without = (await client.chat.completions.create(ask('Spell kitchen.'))).choices[0].message
  check('an answer without a call is that without tools', free.content === without.content && !free.tool_calls, free.content)

  const executed = []
  const runnable = [{ type: 'function', function: { ...tools[0].function, parse: JSON.parse, function: given => { executed.push(given); return '563' } } }]
  const runner = client.chat.completions.runTools(ask('What is 345 + 218?', { tools: runnable, tool_choice: only_calculator }))
  await runner.done()
  check('runTools executes the call', executed.length === 1 && typeof executed[0].expression === 'string' && runner.messages.at(-1).role === 'tool')
  const content = await client.chat.completions.runTools(ask('What is 345 + 218?', { tools: runnable })).finalContent()
  check('runTools goes on until there is an answer', content.length > 0, content)

  const wrong = more => failure(create(more))
  const f = (name, more = {}) => ({ type: 'function', function: { name, ...more } })
  const expected = [
    [{ tools: [f('a b')] }, '400 tools[0].function.name'],
    [{ tools: [f('a'), f('a')] }, '400 tools[1].function.name'],
    [{ tools: [f('a', { strict: true, parameters: { type: 'object', properties: { x: { not: { const: 1 } } } } })] }, '400 tools[0].function.parameters'],
    [{ tool_choice: f('shell') }, '400 tool_choice.function.name'],
    [{ tools: undefined, tool_choice: 'required' }, '400 tool_choice'],
    [{ response_format: { type: 'json_object' } }, '400 response_format unsupported_parameter'],
    [{ messages: conversation.slice(0, 2) }, '400 messages'],
    [{ messages: [conversation[0], result] }, '400 messages[1].tool_call_id'],
    [{ messages: [conversation[0], { ...message, tool_calls: [{ ...message.tool_calls[0], function: { name: 'calculator', arguments: '{' } }] }, result] },
      '400 messages[1].tool_calls[0].function.arguments'],
  ]
  for (const [more, error] of expected) {
    const actual = await wrong(more)
    check(`400 of ${error.slice(4)}`, actual === error, actual)
  }
}

async function errors({ client, url, port }) {
  const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'other', maxRetries: 0 })
  const create = more => client.chat.completions.create(ask('Hi', more))
  const post = (body, headers = {}) => fetch(`${url}/v1/completions`, { method: 'POST', body, headers: { Authorization: 'Bearer key', 'Content-Type': 'application/json', ...headers } })
  const expected = [
    ['401', await failure(stranger.models.list()), '401 invalid_api_key'],
    ['401 of a large body', await failure(stranger.chat.completions.create(ask('x'.repeat(900_000)))), '401 invalid_api_key'],
    ['404 of a model', await failure(create({ model: 'gpt' })), '404 model model_not_found'],
    ['404 of an endpoint', await failure(client.images.generate({ model, prompt: 'x' })), '404'],
    ['400 of a field', await failure(create({ temperature: 5 })), '400 temperature'],
    ['400 of an unknown field', await failure(create({ foo: 5 })), '400 foo unknown_parameter'],
    ['400 of tools of a text', await failure(client.completions.create({ model, prompt: 'The', tools })), '400 tools unsupported_parameter'],
    ['400 of response_format', await failure(create({ response_format: { type: 'xml' } })), '400 response_format'],
    ['400 of a long prompt', await failure(client.chat.completions.create(ask('word '.repeat(300)))), '400 messages context_length_exceeded'],
    ['413', await failure(client.chat.completions.create(ask('x'.repeat(2_000_000)))), '413'],
    ['400 of text that is no JSON', (await post('{')).status, 400],
    ['400 of JSON that is too deep', (await post('{"prompt":' + '['.repeat(500_000) + ']'.repeat(500_000) + '}')).status, 400],
    ['415', (await post('{}', { 'Content-Type': 'text/plain' })).status, 415],
    ['415 of a compressed body', (await post('{}', { 'Content-Encoding': 'gzip' })).status, 415],
    ['200 of a whole answer, whatever Range says', (await post(`{"model": "${model}", "prompt": "The", "max_tokens": 1}`, { Range: 'bytes=99999-', 'Content-Encoding': 'identity' })).status, 200],
    ['400 of 60,000 biases, at once', await failure(create({ logit_bias: Object.fromEntries(Array.from({ length: 60_000 }, (_, i) => [i, 0])) })), '400 logit_bias'],
    ['200 of neutral numbers, however they are written', (await post(`{"model": "${model}", "prompt": "The", "max_tokens": 1, "best_of": 1.0, "frequency_penalty": -0.0}`)).status, 200],
  ]
  for (const [title, actual, wanted] of expected) check(title, actual === wanted, actual)
}

// One sequence after the other, so that a request takes long. Its tokens are counted without an
// abort first.
async function clientsThatGoAway() {
  const server = await start('--max-sequences', '1')
  const { client } = server
  const request = more => long({ seed: 7, ...more })
  const { usage: { completion_tokens: all } } = await client.completions.create(request())
  const controllers = [new AbortController(), new AbortController()]
  await checkAbort(server, all, 'an abort of a stream', async () => {
    const stream = await client.completions.create(request({ stream: true }), { signal: controllers[0].signal })
    for await (const _ of stream) { controllers[0].abort(); break }
  })
  await checkAbort(server, all, 'an abort of a whole answer', async firstToken => {
    client.completions.create(request(), { signal: controllers[1].signal }).catch(() => {})
    await firstToken()
    controllers[1].abort()
  })
  const script = `fetch('${server.url}/v1/completions', { method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: ${JSON.stringify(JSON.stringify(request({ stream: true })))} })
    .then(async response => { await response.body.getReader().read(); process.kill(process.pid, 'SIGKILL') })`
  await checkAbort(server, all, 'a killed client', () => new Promise(done => spawn(process.execPath, ['-e', script]).on('exit', done)))
  server.child.kill('SIGINT')
}

async function manyClients(server) {
  const question = i => `What is ${i % 50} + ${i % 7}?`
  const create = i => server.client.chat.completions.create(ask(question(i))).then(answer => answer.choices[0].message.content)
  const alone = []
  for (let i = 0; i < 20; ++i) alone.push(await create(i))
  const began = performance.now()
  const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => create(i % 20)))
  check('200 connections at once get the answers of each alone', answers.every((answer, i) => answer === alone[i % 20]), `${Math.round(performance.now() - began)} ms`)

  const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`))[1]) / 1024
  const requests = async count => { for (let i = 0; i < count; i += 10) await Promise.all(Array.from({ length: 10 }, (_, k) => create(i + k))) }
  await requests(500)
  const before = memory()
  await requests(500)
  check('500 short requests leave the memory as it was', memory() - before < 4, `${before.toFixed(1)} MB, ${(memory() - before).toFixed(1)} more`)
}

async function limits() {
  const server = await start('--max-waiting', '16', '--max-sequences', '1', '--time-limit', '1', '--max-prompt-tokens', '100')
  const { client } = server
  // Each has 16 sequences, which run one after the other: more than a second of work.
  let cut
  const requests = []
  for (const waiting of [1, 17, 0]) {
    requests.push(failure(client.completions.create(long()).then(answer => cut ??= answer)))
    await until(async () => await metric(server, 'llm_requests_waiting') >= waiting)
  }
  const response = await fetch(`${server.url}/v1/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(long()) })
  check('429 says when to try again', response.status === 429 && response.headers.get('Retry-After') === '1')
  const results = await Promise.all(requests)
  // The second may get its first token when the first has ended, just before its own end.
  check('the time limit ends requests', /^accepted,(accepted|408 timeout),429 too_many_requests$/.test(results), results.join(', '))
  check('a limit is the reason of these ends', cut?.choices.some(({ finish_reason: reason }) => reason === 'length') && cut.usage.completion_tokens < 16 * 230, cut?.usage.completion_tokens)
  const long_prompt = await failure(client.completions.create({ model, prompt: 'a b '.repeat(60) }))
  check('--max-prompt-tokens', long_prompt === '400 prompt context_length_exceeded', long_prompt)
  await pagesFree(server)
  server.child.kill('SIGTERM')
  check('SIGTERM ends the server', await server.ended === 0)
}

// Ctrl-C while answers are generated: with time they finish, without it they are canceled.
async function signals() {
  for (const seconds of [30, 0]) {
    const server = await start('--stop-seconds', String(seconds), '--max-sequences', '1')
    const idle = raw(server, 'GET /')  // must not keep the server
    const answers = Array.from({ length: 6 }, () => failure(server.client.completions.create(long())))
    await until(async () => await metric(server, 'llm_requests_running') > 0)
    const began = performance.now()
    server.child.kill('SIGINT')
    const [results, code] = [await Promise.all(answers), await server.ended]
    await idle
    const time = Math.round(performance.now() - began)
    if (seconds) check('Ctrl-C lets answers finish', results.every(result => result === 'accepted') && code === 0 && time < 31_000 && server.log.includes('0 were canceled'), `${time} ms`)
    else check('Ctrl-C cancels what has no time', results.includes('503') && code === 0 && time < 2000 && /Stopping: \d+ sequences/.test(server.log), `${time} ms: ${results}`)
  }
}

const server = await start('--api-key', 'key', '--max-waiting', '256')
await conversation(server)
await toolCalls(server)
await errors(server)
await clientsThatGoAway()
await manyClients(server)
await limits()
await signals()
check('the server still runs, and holds no page', await pagesFree(server) < 1000)
server.child.kill('SIGINT')
check('Ctrl-C ends an idle server', await server.ended === 0)
exit()
