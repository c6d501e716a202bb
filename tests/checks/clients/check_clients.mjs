// Checks ./learn serve with the clients of OpenAI, LangChain, Vercel (ai) and Hugging Face: chats,
// streams, agents that call a calculator, and answers that follow a schema of zod. Prints one line
// per check. Exits with 1 if one fails, and with 77 if the server or the clients are missing, or
// Node is too old for them.
// Usage: node tests/checks/clients/check_clients.mjs BUILD, after npm --prefix tests/checks/clients ci.
import { fileURLToPath } from 'node:url'
import { programForClients, startServer } from '../../support/serve_process.mjs'

const program = programForClients(process.argv[2], fileURLToPath(new URL('node_modules/ai', import.meta.url)))
const { default: OpenAI } = await import('openai')
const { zodFunction, zodResponseFormat, zodTextFormat } = await import('openai/helpers/zod')
const { ChatOpenAI } = await import('@langchain/openai')
const { AIMessage, HumanMessage, SystemMessage } = await import('@langchain/core/messages')
const { tool: langchainTool } = await import('@langchain/core/tools')
const { generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool: vercelTool, ToolLoopAgent } = await import('ai')
const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible')
const { createOpenAI } = await import('@ai-sdk/openai')
const { InferenceClient } = await import('@huggingface/inference')
const { z } = await import('zod')

globalThis.AI_SDK_LOG_WARNINGS = false

const model = 'wordnet_calculator'
const server = await startServer(program, '--model', fileURLToPath(new URL(`../../../assets/${model}`, import.meta.url)))
const baseURL = `${server.url}/v1`

let failures = 0
// What the server sent last, whatever the client makes of it.
let response
async function recordingFetch(url, options) {
  const answer = await fetch(url, options)
  response = answer.clone().text().catch(() => '')
  return answer
}
// Runs a check: it passes if the promise gives what is expected, or something that the function accepts.
async function check(title, create, expected) {
  let passed = false, detail
  response = undefined
  try {
    const value = await create()
    passed = typeof expected === 'function' ? expected(value) : value === expected
    detail = JSON.stringify(value) ?? 'undefined'
  } catch (error) {
    const body = await response
    detail = body?.startsWith('{"error"') ? JSON.parse(body).error.message : `${error.name}: ${error.message}`
  }
  console.log(`${passed ? 'passed' : 'FAILED'}: ${title} (${detail.replace(/\s+/g, ' ').slice(0, 300)})`)
  if (!passed) ++failures
}

const sum = 'What is 345 + 218?', result = '345 + 218 = 563'
const spelling = 'Spell kitchen.', spelled = /^kitchen is spelled /
const isSpelled = text => spelled.test(text)
const brief = 'Be brief.', stopped = 'kitchen is spelled'

// The calculator, which the model has been trained to call. It counts its calls.
let calls = 0
const name = 'calculator', description = 'Computes sums.', parameters = z.object({ expression: z.string() })
function calculator({ expression }) {
  ++calls
  const [left, right] = expression.split('+')
  return String(Number(left) + Number(right))
}
// An agent must call the calculator once, and answer with its result.
function checkAgent(title, create) {
  calls = 0
  return check(title, async () => ({ answer: await create(), calls }), ({ answer, calls }) => answer === result && calls === 1)
}

// Objects as programs ask for them. The texts have a maximum, since the model does not know when to end.
const card = z.object({ kind: z.literal('card'), digits: z.int().min(0).max(9999) })
const cash = z.object({ kind: z.literal('cash'), coin: z.string().max(4) })
const shapes = {
  'an integer': z.object({ answer: z.int() }),
  'an integer with bounds': z.object({ stars: z.int().min(1).max(5) }),
  'a number with bounds': z.object({ share: z.number().min(0).max(1) }),
  'a nullable text': z.object({ unit: z.string().max(4).nullable() }),
  'an enum': z.object({ color: z.enum(['red', 'green']) }),
  'a list': z.object({ sizes: z.array(z.int().min(0).max(99)).max(3) }),
  'a discriminated union': z.object({ paid: z.discriminatedUnion('kind', [card, cash]) }),
  'a record': z.object({ ages: z.record(z.string().max(4), z.int().min(0).max(99)) }),
  'an optional field': z.object({ more: z.string().max(4).nullish(), last: z.boolean() }),
  'a literal': z.object({ version: z.literal(2) }),
  'several fields': z.object({ id: z.int().positive(), tags: z.array(z.enum(['new', 'old'])).max(2), note: z.string().max(6).nullable() }),
}
// Samples until an answer is not cut by the end of the context: a number may have many digits.
async function whole(create) {
  for (let seed = 1; ; ++seed)
    try {
      const value = await create(seed)
      if (value !== undefined) return value
      throw new Error('there is no object')
    } catch (error) {
      if (seed === 20 || !/"finish_reason":"length"|"max_output_tokens"/.test(await response)) throw error
    }
}
// Each shape is read by zod, with the client's method.
async function checkShapes(title, create, names = Object.keys(shapes)) {
  for (const name of names)
    await check(`${title}: ${name}`, () => whole(seed => create(shapes[name], seed)), value => shapes[name].safeParse(value).success)
}

async function openai() {
  const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0, fetch: recordingFetch })
  const completions = client.chat.completions
  const ask = (content, more = {}) => ({ model, temperature: 0, messages: [{ role: 'user', content }], ...more })
  const text = completion => completion.choices[0].message.content
  await check('openai: chat', async () => text(await completions.create(ask(spelling))), isSpelled)
  await check('openai: developer message, named user, text in parts', async () => text(await completions.create(ask('', { messages: [
    { role: 'developer', content: brief }, { role: 'user', name: 'anna', content: [{ type: 'text', text: spelling }] }] }))), isSpelled)
  await check('openai: stream', () => completions.stream(ask(spelling, { stream_options: { include_usage: true } })).finalContent(), isSpelled)
  await check('openai: usage of a stream', async () => {
    const stream = await completions.create(ask(spelling, { stream: true, stream_options: { include_usage: true } }))
    const usages = []
    for await (const { usage } of stream) usages.push(usage)
    return usages
  }, usages => usages.pop().total_tokens > 20 && usages.every(usage => usage === null))

  const usual = { top_p: 0.9, stop: [' k'], max_tokens: 50, seed: 1, n: 1, frequency_penalty: 0, presence_penalty: 0, user: 'anna', store: false }
  await check('openai: usual options', async () => text(await completions.create(ask(spelling, usual))), stopped)

  const tools = [zodFunction({ name, description, parameters, function: calculator })]
  await checkAgent('openai: runTools', () => completions.runTools(ask(sum, { tools })).finalContent())
  await checkAgent('openai: runTools, streamed', () => completions.runTools(ask(sum, { tools, stream: true })).finalContent())
  await checkAgent('openai: runTools with a system message', () => completions.runTools(ask(sum, { tools, messages: [
    { role: 'system', content: brief }, { role: 'user', name: 'anna', content: sum }] })).finalContent())
  const callOf = completion => completion.choices[0].message.tool_calls?.[0].function.parsed_arguments
  const isCall = call => call?.expression === '345 + 218'
  await check('openai: parse with zodFunction', async () => callOf(await completions.parse(ask(sum, { tools: [zodFunction({ name, parameters })] }))), isCall)
  await check('openai: stream with zodFunction', async () => callOf(await completions.stream(ask(sum, { tools: [zodFunction({ name, parameters })] })).finalChatCompletion()), isCall)

  const call = { id: 'call_1', type: 'function', function: { name: 'now', arguments: '' } }
  await check('openai: a call without arguments', async () => text(await completions.create(ask('', { messages: [{ role: 'user', content: 'What is the time?' },
    { role: 'assistant', content: null, tool_calls: [call] }, { role: 'tool', tool_call_id: 'call_1', content: [{ type: 'text', text: '563' }] }] }))), content => content.length > 0)

  const respond = (input, more = {}) => ({ model, temperature: 0, input, ...more })
  const said = ({ output }) => output.flatMap(item => item.content ?? []).map(part => part.text).join('')
  await check('openai: responses', async () => (await client.responses.create(respond(spelling, { instructions: brief }))).output_text, isSpelled)
  await check('openai: responses, streamed', async () => said(await client.responses.stream(respond(spelling)).finalResponse()), isSpelled)
  const flat = [{ type: 'function', name, parameters: z.toJSONSchema(parameters), strict: true }]
  for (const streamed of [false, true])
    await check(`openai: responses with tools${streamed ? ', streamed' : ''}`, async () => {
      const input = [{ role: 'user', content: sum }]
      const ask = request => streamed ? client.responses.stream(request).finalResponse() : client.responses.create(request)
      const { output } = await ask(respond(input, { tools: flat }))
      const { call_id, arguments: text } = output.find(({ type }) => type === 'function_call')
      input.push(...output, { type: 'function_call_output', call_id, output: calculator(JSON.parse(text)) })
      return said(await ask(respond(input, { tools: flat })))
    }, result)
  await check('openai: responses.parse', async () => (await client.responses.parse(respond(sum, { text: { format: zodTextFormat(shapes['an enum'], 'shape') } }))).output_parsed,
    value => shapes['an enum'].safeParse(value).success)

  const formatted = (shape, seed) => ask(sum, { seed, temperature: 1, response_format: zodResponseFormat(shape, 'shape') })
  await checkShapes('openai: parse', async (shape, seed) => (await completions.parse(formatted(shape, seed))).choices[0].message.parsed)
  await check('openai: a parsed answer is sent back', async () => {
    const { message } = (await completions.parse(ask(sum, { response_format: zodResponseFormat(shapes['an enum'], 'shape') }))).choices[0]
    return text(await completions.create(ask('', { messages: [{ role: 'user', content: sum }, message, { role: 'user', content: spelling }] })))
  }, isSpelled)
  await checkShapes('openai: stream', async (shape, seed) => (await completions.stream(formatted(shape, seed)).finalChatCompletion()).choices[0].message.parsed, ['several fields'])
  await checkShapes('openai: a required zodFunction', async (shape, seed) => callOf(await completions.parse(ask(sum, {
    seed, temperature: 1, tool_choice: 'required', tools: [zodFunction({ name: 'answer', parameters: shape })] }))))
}

async function langchain() {
  const create = more => new ChatOpenAI({ model, temperature: 0, apiKey: 'none', maxRetries: 0, configuration: { baseURL, fetch: recordingFetch }, ...more })
  const chat = create()
  const added = async stream => {
    let all
    for await (const chunk of stream) all = all?.concat(chunk) ?? chunk
    return all
  }
  const invoke = (runnable, messages) => runnable.invoke(messages)
  const stream = async (runnable, messages) => added(await runnable.stream(messages))
  await check('langchain: chat', async () => (await chat.invoke(spelling)).content, isSpelled)
  await check('langchain: system message', async () => (await chat.invoke([new SystemMessage(brief), new HumanMessage(spelling)])).content, isSpelled)
  await check('langchain: named human message', async () => (await chat.invoke([new HumanMessage({ content: spelling, name: 'anna' })])).content, isSpelled)
  await check('langchain: named answer', async () => (await chat.invoke([new HumanMessage('Hi'), new AIMessage({ content: 'Hello', name: 'bob' }), new HumanMessage(spelling)])).content, isSpelled)
  await check('langchain: text in parts', async () => (await chat.invoke([new HumanMessage({ content: [{ type: 'text', text: spelling }] })])).content, isSpelled)
  const usual = { topP: 0.9, stop: [' k'], maxTokens: 50, frequencyPenalty: 0, presencePenalty: 0, n: 1, user: 'anna', logprobs: true, topLogprobs: 2 }
  await check('langchain: usual options', async () => (await create(usual).invoke(spelling, { seed: 1 })).content, stopped)
  await check('langchain: batch', async () => (await chat.batch([spelling, spelling])).map(message => message.content), texts => texts.length === 2 && texts.every(isSpelled))
  await check('langchain: stream', async () => (await stream(chat, spelling)).content, isSpelled)
  await check('langchain: usage of a stream', async () => (await stream(chat, spelling)).usage_metadata, usage => usage?.total_tokens > 20)

  const calculatorTool = langchainTool(calculator, { name, description, schema: parameters })
  async function agent(answerOf, runnable, messages = [new HumanMessage(sum)]) {
    for (;;) {
      const message = await answerOf(runnable, messages)
      if (!message.tool_calls.length) return message.content
      messages.push(message)
      for (const call of message.tool_calls) messages.push(await calculatorTool.invoke(call))
    }
  }
  const withTools = chat.bindTools([calculatorTool])
  await checkAgent('langchain: agent', () => agent(invoke, withTools))
  await checkAgent('langchain: agent, streamed', () => agent(stream, withTools))
  await check('langchain: the conversation goes on', async () => {
    const messages = [new HumanMessage(sum)]
    await agent(invoke, withTools, messages)
    return (await withTools.invoke([...messages, new AIMessage(result), new HumanMessage(spelling)])).content
  }, isSpelled)
  await checkAgent('langchain: agent with a strict tool', () => agent(invoke, chat.bindTools([calculatorTool], { strict: true })))
  await checkAgent('langchain: agent with system and named human message', () => agent(invoke, withTools, [
    new SystemMessage(brief), new HumanMessage({ content: sum, name: 'anna' })]))

  for (const method of ['jsonSchema', 'functionCalling'])
    await checkShapes(`langchain: ${method}`, (shape, seed) => create({ temperature: 1, modelKwargs: { seed } }).withStructuredOutput(shape, { method, name: 'shape' }).invoke(sum))
  await check('langchain: jsonMode', () => whole(seed => create({ temperature: 1, modelKwargs: { seed } }).withStructuredOutput(z.looseObject({}), { method: 'jsonMode' }).invoke(sum)),
    value => typeof value === 'object')
}

async function vercel() {
  const tools = { calculator: vercelTool({ description, inputSchema: parameters, execute: calculator }) }
  const providers = { 'ai, openai-compatible': createOpenAICompatible({ name: 'learn', baseURL, apiKey: 'none', supportsStructuredOutputs: true, includeUsage: true, fetch: recordingFetch })(model),
    'ai, openai': createOpenAI({ baseURL, apiKey: 'none', fetch: recordingFetch }).chat(model),
    'ai, responses': createOpenAI({ baseURL, apiKey: 'none', fetch: recordingFetch })(model) }
  for (const [title, model] of Object.entries(providers)) {
    // The server stores no answers for later requests.
    const settings = { model, temperature: 0, maxRetries: 0, providerOptions: { openai: { store: false } } }
    const sampled = (shape, seed) => ({ ...settings, temperature: 1, seed, prompt: sum, schema: shape })
    const quiet = { onError() {} }
    await check(`${title}: generateText`, async () => (await generateText({ ...settings, prompt: spelling })).text, isSpelled)
    await check(`${title}: usual options`, async () => (await generateText({ ...settings, prompt: spelling, topP: 0.9, stopSequences: [' k'],
      maxOutputTokens: 50, seed: 1, frequencyPenalty: 0, presencePenalty: 0 })).text, title === 'ai, responses' ? isSpelled : stopped)  // which has no stop strings
    await check(`${title}: system message, text in parts`, async () => (await generateText({ ...settings, system: brief, messages: [
      { role: 'user', content: [{ type: 'text', text: 'Spell ' }, { type: 'text', text: 'kitchen.' }] }] })).text, isSpelled)
    await check(`${title}: streamText`, () => streamText({ ...settings, ...quiet, prompt: spelling }).text, isSpelled)
    await check(`${title}: usage of a stream`, () => streamText({ ...settings, ...quiet, prompt: spelling }).usage, usage => usage.totalTokens > 20)
    await checkAgent(`${title}: generateText with tools`, async () => (await generateText({ ...settings, tools, prompt: sum, stopWhen: stepCountIs(3) })).text)
    await checkAgent(`${title}: streamText with tools`, () => streamText({ ...settings, ...quiet, tools, prompt: sum, stopWhen: stepCountIs(3) }).text)
    await check(`${title}: the conversation goes on`, async () => {
      const { response: { messages } } = await generateText({ ...settings, tools, prompt: sum, stopWhen: stepCountIs(3) })
      return (await generateText({ ...settings, tools, messages: [{ role: 'user', content: sum }, ...messages, { role: 'user', content: spelling }] })).text
    }, isSpelled)
    await checkAgent(`${title}: ToolLoopAgent`, async () => (await new ToolLoopAgent({ ...settings, tools, instructions: brief }).generate({ prompt: sum })).text)
    await check(`${title}: a required tool`, async () => (await generateText({ ...settings, tools, toolChoice: 'required', prompt: sum })).toolResults[0].output, '563')
    await checkShapes(`${title}: generateObject`, async (shape, seed) => (await generateObject(sampled(shape, seed))).object)
    await checkShapes(`${title}: streamObject`, async (shape, seed) => {
      const { partialObjectStream, object } = streamObject({ ...sampled(shape, seed), ...quiet })
      object.catch(() => {})
      for await (const _ of partialObjectStream);
      return object
    }, ['several fields'])
    await checkShapes(`${title}: Output.object`, async (shape, seed) => {
      const { schema, ...more } = sampled(shape, seed)
      return (await generateText({ ...more, output: Output.object({ schema }) })).output
    }, ['several fields'])
    const options = ['red', 'green']
    await check(`${title}: Output.choice`, async () => (await generateText({ ...settings, prompt: sum, output: Output.choice({ options }) })).output, choice => options.includes(choice))
  }
}

async function huggingface() {
  const client = new InferenceClient('hf_none', { endpointUrl: baseURL, fetch: recordingFetch })
  const ask = (content, more = {}) => ({ model, temperature: 0, messages: [{ role: 'user', content }], ...more })
  const invoke = async request => (await client.chatCompletion(request)).choices[0].message
  // Adds the parts of a message as OpenAI's guide does: the calls keep their index.
  async function stream(request) {
    const message = { role: 'assistant', content: '' }
    for await (const { choices: [choice] } of client.chatCompletionStream(request)) {
      message.content += choice?.delta.content ?? ''
      for (const part of choice?.delta.tool_calls ?? []) {
        message.tool_calls ??= []
        if (message.tool_calls[part.index]) message.tool_calls[part.index].function.arguments += part.function.arguments
        else message.tool_calls[part.index] = part
      }
    }
    return message
  }
  const tools = [{ type: 'function', function: { name, description, parameters: z.toJSONSchema(parameters) } }]
  async function agent(answerOf, more = {}) {
    const messages = [...more.messages ?? [], ...ask(sum).messages]
    for (;;) {
      const message = await answerOf(ask(sum, { tools, ...more, messages }))
      if (!message.tool_calls?.length) return message.content
      messages.push(message)
      for (const call of message.tool_calls)
        messages.push({ role: 'tool', tool_call_id: call.id, content: calculator(JSON.parse(call.function.arguments)) })
    }
  }
  await check('huggingface: chat', async () => (await invoke(ask(spelling))).content, isSpelled)
  const usual = { top_p: 0.9, stop: [' k'], max_tokens: 50, seed: 1, frequency_penalty: 0, presence_penalty: 0 }
  await check('huggingface: usual options', async () => (await invoke(ask(spelling, usual))).content, stopped)
  await check('huggingface: stream', async () => (await stream(ask(spelling))).content, isSpelled)
  await checkAgent('huggingface: agent', () => agent(invoke))
  await checkAgent('huggingface: agent, streamed', () => agent(stream))
  await checkAgent('huggingface: agent with a system message and tool_choice', () => agent(invoke, { tool_choice: 'auto', messages: [{ role: 'system', content: brief }] }))
  await checkShapes('huggingface: json_schema', async (shape, seed) => JSON.parse((await invoke(ask(sum, { seed, temperature: 1, response_format:
    { type: 'json_schema', json_schema: { name: 'shape', strict: true, schema: z.toJSONSchema(shape) } } }))).content))
}

for (const client of [openai, langchain, vercel, huggingface]) await client()
server.child.kill('SIGINT')
await check('Ctrl-C ends the server', () => server.ended, 0)
process.exit(failures ? 1 : 0)
