// Checks the JSON schemas of ./learn serve: 40 of zod, 40 of pydantic and 20 written by hand, each
// with 20 answers, which ajv and zod must find valid. Prints what is refused and what is invalid.
// Exits with 1 if an answer is invalid, or if fewer than 95 % of zod's or of pydantic's schemas are
// accepted, and with 77 if the server or the packages are missing, or Node is too old.
// Usage: node tests/checks/clients/check_schemas.mjs BUILD, after npm --prefix tests/checks/clients ci.
import { readFileSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { programForClients, startServer } from '../../support/serve_process.mjs'
import { writeRandomModel } from './random_model.mjs'

const path = name => fileURLToPath(new URL(name, import.meta.url))
const program = programForClients(process.argv[2], path('node_modules/ajv'))
const { default: Ajv } = await import('ajv')
const { default: Ajv2020 } = await import('ajv/dist/2020.js')
const { default: Ajv4 } = await import('ajv-draft-04')
const { default: addFormats } = await import('ajv-formats')
const { z } = await import('zod')
const { zodModels } = await import('./schemas/zod_models.mjs')

function validator(schema, draft) {
  const Draft = draft.includes('2020') ? Ajv2020 : draft.includes('draft-04') ? Ajv4 : Ajv
  const ajv = new Draft({ strict: false, logger: false, validateSchema: false })
  addFormats(ajv)
  return ajv.compile(schema)
}
const read = name => Object.entries(JSON.parse(readFileSync(path(`schemas/${name}`))))
// With zod, a pattern beside a format says what the format means.
const withoutSecondFormat = { override: ({ jsonSchema }) => { if (jsonSchema.pattern) delete jsonSchema.format } }
const cases = [
  ...Object.entries(zodModels).map(([name, model]) => {
    const schema = z.toJSONSchema(model)
    return { source: 'zod', name, model, schema, validate: validator(z.toJSONSchema(model, withoutSecondFormat), '2020'), format: validator(schema, '2020') }
  }),
  ...read('pydantic.json').map(([name, schema]) => ({ source: 'pydantic', name, schema, validate: validator(schema, 'draft-07') })),
  ...read('handwritten.json').map(([name, { schema, may_be_refused: optional }]) => ({ source: 'handwritten', name, schema, optional,
    validate: validator(schema, schema.$schema ?? '2020') })),
]

const folder = writeRandomModel(path('../../../assets/wordnet_calculator'))
process.on('exit', () => rmSync(folder, { recursive: true }))
const server = await startServer(program, '--model', folder, '--context-length', '4096', '--pages', '4096')
const id = (await (await fetch(`${server.url}/v1/models`)).json()).data[0].id

// Returns four answers, or why the schema is refused.
async function answersTo(schema, seed, temperature) {
  const response = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({
    model: id, temperature, n: 4, seed, messages: [{ role: 'user', content: 'Hi' }], response_format: { type: 'json_schema', json_schema: { name: 'schema', strict: true, schema } } }) })
  const { choices, error } = await response.json()
  if (error) return { refused: `${response.status} ${error.message.replace('response_format.json_schema.schema: json_schema: ', '')}` }
  return { texts: choices.map(({ message, finish_reason: reason }) => ({ text: message.content, reason })) }
}

// Why a whole answer is invalid.
function flaw(text, { validate, model }) {
  try {
    const value = JSON.parse(text)
    return validate(value) ? model?.safeParse(value).error?.message : JSON.stringify(validate.errors)
  } catch (error) {
    return error.message
  }
}

let failures = 0
const line = (title, { source, name }, detail = '') => console.log(`${title}: ${source}: ${name}${detail && ` (${detail.replace(/\s+/g, ' ').slice(0, 400)})`}`)
const counts = { zod: { accepted: 0, refused: 0 }, pydantic: { accepted: 0, refused: 0 }, handwritten: { accepted: 0, refused: 0 } }
let all = 0, cut = 0
for (const [index, one] of cases.entries()) {
  const results = await Promise.all([1, 1, 1, 2, 2].map((temperature, i) => answersTo(one.schema, 1000 * index + 100 * i, temperature)))
  const refused = results.find(result => result.refused)?.refused
  ++counts[one.source][refused ? 'refused' : 'accepted']
  if (refused) {
    line(one.optional ? 'refused, as it may be' : 'refused', one, refused)
    continue
  }
  const answers = results.flatMap(({ texts }) => texts)
  const whole = answers.filter(({ reason }) => reason === 'stop').map(({ text }) => ({ text, why: flaw(text, one) }))
  all += answers.length
  cut += answers.length - whole.length
  const invalid = whole.filter(({ why }) => why)
  failures += invalid.length
  if (invalid.length) line('FAILED', one, `${invalid.length} of ${whole.length} answers are invalid: ${invalid[0].text.slice(0, 150)}: ${invalid[0].why}`)
  else line('passed', one, `${whole.length} answers: ${whole[0]?.text.slice(0, 100)}`)
  const other = one.format && whole.filter(({ text, why }) => !why && !one.format(JSON.parse(text)))
  if (other?.length) line('note', one, `${other.length} answers fit the pattern, and not ajv's format: ${other[0].text}`)
  if (whole.length < answers.length) line('note', one, `${answers.length - whole.length} answers are cut by the end of the context`)
}

function check(title, passed) {
  console.log(`${passed ? 'passed' : 'FAILED'}: ${title}`)
  if (!passed) ++failures
}
for (const [source, { accepted, refused }] of Object.entries(counts))
  check(`${source}: ${accepted} accepted, ${refused} refused`, source === 'handwritten' || accepted >= 0.95 * (accepted + refused))
check(`${cut} of ${all} answers are cut by the end of the context`, cut <= 0.02 * all)
server.child.kill('SIGINT')
await server.ended
process.exit(failures ? 1 : 0)
