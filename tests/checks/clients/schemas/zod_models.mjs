// Models of zod as programs have them, by name. check_schemas.mjs makes JSON schemas of them.
import { z } from 'zod'

const address = z.object({ street: z.string(), city: z.string(), zip: z.string().regex(/^\d{5}$/) })
const node = z.object({ name: z.string(), get children() { return z.array(node) } })
const expression = z.object({ operator: z.enum(['+', '-', '*']), left: z.number(), get right() { return z.union([z.number(), expression]) } })
const author = z.object({ name: z.string(), get books() { return z.array(book).max(2) } })
const book = z.object({ title: z.string(), get author() { return author.nullable() } })

export const zodModels = {
  answer: z.object({ answer: z.int() }),
  rating: z.object({ stars: z.number().int().min(1).max(5), comment: z.string().max(200) }),
  probability: z.object({ share: z.number().min(0).max(1), certain: z.boolean() }),
  user: z.object({ id: z.uuid(), name: z.string().min(1).max(50), email: z.email(), age: z.int().min(0).max(150).optional() }),
  link: z.object({ url: z.url(), title: z.string() }),
  event: z.object({ title: z.string(), day: z.iso.date(), start: z.iso.datetime() }),
  meeting: z.object({ start: z.iso.time(), minutes: z.int().multipleOf(15).min(15).max(240) }),
  product: z.object({ code: z.string().regex(/^[A-Z]{2}-\d{4}$/), price: z.number().positive(), stock: z.int().nonnegative() }),
  color: z.object({ hex: z.string().regex(/^#[0-9a-f]{6}$/i), name: z.enum(['red', 'green', 'blue']) }),
  classification: z.object({ label: z.enum(['positive', 'neutral', 'negative']), reason: z.string() }),
  version: z.object({ version: z.literal(2), format: z.literal('json'), fast: z.literal(true) }),
  literals: z.object({ size: z.literal([1, 2, 'large', null]) }),
  identifier: z.object({ id: z.union([z.string(), z.int()]) }),
  payment: z.object({ payment: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('card'), number: z.string().regex(/^\d{16}$/) }),
    z.object({ kind: z.literal('cash'), amount: z.number().nonnegative() }),
    z.object({ kind: z.literal('voucher'), code: z.string().length(8) })]) }),
  result: z.object({ result: z.discriminatedUnion('ok', [
    z.object({ ok: z.literal(true), value: z.number() }), z.object({ ok: z.literal(false), error: z.string() })]) }),
  ages: z.object({ ages: z.record(z.string(), z.int()) }),
  votes: z.object({ votes: z.record(z.enum(['yes', 'no', 'abstain']), z.int().min(0)) }),
  partial: z.object({ seen: z.partialRecord(z.enum(['home', 'shop']), z.boolean()) }),
  point: z.object({ point: z.tuple([z.number(), z.number()]), labels: z.tuple([z.string(), z.int()]) }),
  command: z.object({ command: z.tuple([z.string().max(10)]).rest(z.int()) }),
  profile: z.object({ nick: z.string().optional(), bio: z.string().nullable(), site: z.string().nullish() }),
  settings: z.object({ theme: z.enum(['dark', 'light']).default('dark'), size: z.int().default(12), beta: z.boolean().default(false) }),
  customer: z.object({ name: z.string(), home: address, work: address.optional() }),
  tree: node,
  sum: expression,
  library: book,
  merged: z.object({ merged: z.intersection(z.object({ a: z.int() }), z.object({ b: z.string().max(5) })) }),
  extended: address.extend({ country: z.string().length(2) }).omit({ zip: true }).partial(),
  tags: z.object({ tags: z.array(z.string().max(10)).min(1).max(3), matrix: z.array(z.array(z.int()).length(2)).length(2) }),
  words: z.object({ word: z.string().min(3).max(8), all: z.array(z.string().min(1)).nonempty() }),
  strict: z.strictObject({ a: z.string(), b: z.boolean().optional() }),
  loose: z.looseObject({ name: z.string() }),
  catchall: z.object({ name: z.string() }).catchall(z.int()),
  described: z.object({ city: z.string().describe('The name of the city'), degrees: z.number().meta({ title: 'Temperature', unit: '°C', examples: [21.5] }) }).describe('The weather'),
  numbers: z.object({ even: z.int().multipleOf(2), above: z.number().gt(0).lt(100), negative: z.number().negative(), int32: z.int32(), uint32: z.uint32(), float32: z.float32() }),
  extraction: z.object({ people: z.array(z.object({ name: z.string(), role: z.enum(['author', 'editor']).nullable(), born: z.int().min(1000).max(2100).nullable() })), count: z.int().nonnegative() }),
  steps: z.object({ steps: z.array(z.object({ explanation: z.string(), output: z.string() })).max(3), final_answer: z.string() }),
  network: z.object({ address: z.ipv4(), mail: z.string().email().optional(), token: z.string().startsWith('sk-').max(20) }),
  anything: z.object({ name: z.string(), data: z.unknown(), more: z.json() }),
  readonly: z.object({ list: z.array(z.int()).readonly(), flag: z.boolean().optional(), nothing: z.null(), trimmed: z.string().trim().toLowerCase() }).readonly(),
}
