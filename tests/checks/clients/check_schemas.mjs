// Checks the JSON schemas of ./learn serve: 40 of zod, 40 of pydantic and 20 written by hand, each
// with five answers, which ajv and zod must find valid. Prints what is refused and what is invalid.
// Exits with 1 if an answer is invalid, or if fewer than 95 % of zod's or of pydantic's schemas are
// accepted, and with 77 if the server or the packages are missing.
// Usage: node tests/checks/clients/check_schemas.mjs BUILD, after npm --prefix tests/checks/clients ci.
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startServer } from '../../support/serve_process.mjs'
import { writeRandomModel } from './random_model.mjs'

const path = name => fileURLToPath(new URL(name, import.meta.url))
const program = resolve(process.argv[2], 'serve')
for (const file of [program, path('node_modules/ajv')])
  if (!existsSync(file)) {
    console.log(`skipped: there is no ${file}`)
    process.exit(77)
  }
const { default: Ajv } = await import('ajv')
const { default: Ajv2020 } = await import('ajv/dist/2020.js')
const { default: Ajv4 } = await import('ajv-draft-04')
const { default: addFormats } = await import('ajv-formats')
const { z } = await import('zod')
const { zodModels } = await import('./schemas/zod_models.mjs')
setTimeout(() => { console.log('FAILED: not ready after 240 seconds'); process.exit(1) }, 240_000).unref()

function validator(schema, draft, formats = true) {
  const Draft = draft.includes('2020') ? Ajv2020 : draft.includes('draft-04') ? Ajv4 : Ajv
  const ajv = new Draft({ strict: false, logger: false, validateSchema: false, validateFormats: formats })
  if (formats) addFormats(ajv)
  return ajv.compile(schema)
}
const read = name => Object.entries(JSON.parse(readFileSync(path(`schemas/${name}`))))
// With zod, a pattern beside a format says what the format means.
const withoutSecondFormat = { override: ({ jsonSchema }) => { if (jsonSchema.pattern) delete jsonSchema.format } }
const cases = [
  ...Object.entries(zodModels).map(([name, model]) => {
    const schema = z.toJSONSchema(model), validate = validator(z.toJSONSchema(model, withoutSecondFormat), '2020')
    return { source: 'zod', name, schema, validate, format: validator(schema, '2020'),
      errors: value => validate(value) ? model.safeParse(value).error?.message : JSON.stringify(validate.errors) }
  }),
  ...read('pydantic.json').map(([name, schema]) => ({ source: 'pydantic', name, schema, validate: validator(schema, 'draft-07') })),
  ...read('handwritten.json').map(([name, { schema, may_be_refused: optional }]) => ({ source: 'handwritten', name, schema, optional,
    validate: validator(schema, schema.$schema ?? '2020') })),
]

const model = writeRandomModel(path('../../../assets/wordnet_calculator'))
process.on('exit', () => rmSync(model, { recursive: true }))
const server = await startServer(program, '--model', model, '--context-length', '4096', '--pages', '4096', '--max-waiting', '1024')
const id = (await (await fetch(`${server.url}/v1/models`)).json()).data[0].id

// Returns the answer, or why the schema is refused.
async function answer(schema, seed) {
  const response = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({
    model: id, temperature: 1, seed, messages: [{ role: 'user', content: 'Hi' }], response_format: { type: 'json_schema', json_schema: { name: 'schema', strict: true, schema } } }) })
  const { choices, error } = await response.json()
  if (error) return { refused: `${response.status} ${error.message.replace('response_format.json_schema.schema: json_schema: ', '')}` }
  return { text: choices[0].message.content, reason: choices[0].finish_reason }
}

const counts = {}
let failures = 0, cut = 0, answers = 0, notes = 0
for (const { source, name, schema, optional, validate, errors, format } of cases) {
  const count = counts[source] ??= { accepted: 0, refused: 0 }
  const results = await Promise.all([1, 2, 3, 4, 5].map(seed => answer(schema, seed)))
  const refused = results.find(result => result.refused)?.refused
  if (refused) {
    ++count.refused
    console.log(`refused: ${source}: ${name} (${refused})${optional ? `, which is allowed: ${optional}` : ''}`)
    continue
  }
  ++count.accepted
  for (const { text, reason } of results) {
    ++answers
    if (reason !== 'stop') {
      ++cut
      console.log(`cut: ${source}: ${name} (${text.length} characters: ${text.slice(0, 100)})`)
      continue
    }
    let why
    try {
      const value = JSON.parse(text)
      why = errors ? errors(value) : validate(value) ? undefined : JSON.stringify(validate.errors)
      if (!why && format && !format(value)) {
        ++notes
        console.log(`note: ${source}: ${name}: fits the pattern, and not the format of ajv (${text.slice(0, 200)})`)
      }
    } catch (error) {
      why = error.message
    }
    if (!why) continue
    ++failures
    console.log(`INVALID: ${source}: ${name} (${why.replace(/\s+/g, ' ').slice(0, 300)}: ${text.slice(0, 300)})`)
  }
}
for (const [source, { accepted, refused }] of Object.entries(counts)) {
  console.log(`${source}: ${accepted} accepted, ${refused} refused`)
  if (source !== 'handwritten' && accepted < 0.95 * (accepted + refused)) ++failures
}
console.log(`${answers} answers, ${cut} cut by the end of the context`)
if (cut > 0.05 * answers) ++failures
server.child.kill('SIGINT')
await server.ended
process.exit(failures ? 1 : 0)
