#!/usr/bin/env bash
# zod 4.6.7 writes two keywords for one check, a pattern of its own and a format, and they do not mean the
# same to ajv-formats 3.0.1: of z.email(), x@a-.com matches the pattern and is no email of ajv's; of
# z.iso.duration(), PT1.5S matches and is no duration. So a value that zod's own parser accepts is not valid
# against the schema that zod wrote for it. Whoever generates from such a schema must satisfy both keywords;
# whoever takes one of them for the other generates values that one side refuses.
#
# Needs npm and Node. Prints a line for each value; fails if zod and ajv agree on all of them.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts zod@4.6.7 ajv@8.20.0 ajv-formats@3.0.1
cat >compare.cjs <<'END'
const { z } = require('zod')
const Ajv = require('ajv/dist/2020').default
const addFormats = require('ajv-formats').default
const ajv = addFormats(new Ajv({ strict: false }))
let num_different = 0
for (const [name, type, values] of [
  ['email', z.email(), ['a.b@c.de', 'x@a-.com', 'x@a--.b-.com']],
  ['duration', z.iso.duration(), ['PT1S', 'PT1.5S', 'P1DT0,5S']]]) {
  const schema = z.toJSONSchema(type)
  const validate = ajv.compile(schema)
  for (const value of values) {
    const by_zod = type.safeParse(value).success, by_ajv = validate(value)
    const failed = by_ajv ? '' : ` (keyword ${validate.errors.map(error => error.keyword).join(', ')})`
    console.log(`${name} ${value}: zod ${by_zod}, ajv with zod's schema ${by_ajv}${failed}`)
    num_different += by_zod !== by_ajv
  }
}
process.exit(num_different === 4 ? 0 : 1)
END
node compare.cjs
