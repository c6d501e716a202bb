// What the live cells of a page show, and its comparison with the native program's events.
import { coarse, compareTexts, isTiming, nameOf, printShows, tolerance, toNumber } from './events.mjs'

// In the page: the content of each live cell.
export function readCells() {
  const textOf = element => element?.textContent.trim() ?? ''
  const all = (element, selector) => [...element.querySelectorAll(selector)]
  const withoutRemarks = (element) => {
    const copy = element.cloneNode(true)
    for (const remark of copy.querySelectorAll('.remark')) remark.remove()
    return textOf(copy)
  }
  const rowsOf = (table, selector) => all(table, 'tbody tr')
    .map(row => all(row, selector).filter(cell => !cell.classList.contains('remark')).map(textOf))

  return all(document, '.live-cell').map(cell => ({
    command: textOf(cell.querySelector('.command')).replace(/^\$ */, '').replace(/ *copied$/, ''),
    status: cell.dataset.status,
    message: textOf(cell.querySelector('.message')),
    hasEvents: cell.querySelector('.events') !== null,
    isOutdated: cell.querySelector('.events.outdated') !== null,
    excerpt: all(cell, '.excerpt code').map(textOf).join('\n').split('\n'),
    tensors: all(cell, '.events .tensor').map(tensor => ({
      name: tensor.dataset.name,
      shape: textOf(tensor.querySelector('.shape')),
      index: all(tensor, '.stepper .index').map(textOf).map(Number),
      hasNumbers: tensor.querySelector('.cell') !== null,
      hasPicture: tensor.querySelector('canvas') !== null,
      printed: textOf(tensor.querySelector('pre.summary')),
      matrices: all(tensor, '.matrix').map(matrix => ({
        index: textOf(matrix.querySelector('.position')).match(/\d+/g)?.map(Number),
        rows: rowsOf(matrix, '.cell'),
      })),
    })),
    values: all(cell, '.events .value').map(value => [
      textOf(value.querySelector('dt')), withoutRemarks(value.querySelector('dd')),
    ]),
    tables: all(cell, '.events > .scroll table').map(table => ({
      headings: all(table, 'thead th, thead td').map(textOf),
      rows: rowsOf(table, 'td'),
    })),
    steps: all(cell, '.events > .step').map(textOf),
    texts: all(cell, '.events > .text').map(textOf),
    generated: all(cell, '.events > .generated').map(textOf),
  }))
}

const trimmed = text => text.trim().replace(/\s+/g, ' ')

// The index of a matrix among the leading axes, of which those of length 1 have no stepper.
function offsetOf({ shape }, tensor, matrix) {
  const leading = shape.slice(0, -2)
  const steppers = [...tensor.index]
  const index = matrix.index ?? leading.map(length => (length > 1 ? steppers.shift() ?? 0 : 0))
  const number = leading.reduce((sum, length, axis) => sum * length + index[axis], 0)
  return number * shape.slice(-2).reduce((product, length) => product * length, 1)
}

function compareTensor(tensor, event) {
  const shape = `(${event.shape.join(', ')}${event.shape.length === 1 ? ',' : ''})`
  if (tensor.shape !== shape) return `has the shape ${tensor.shape} instead of ${shape}`
  if (!event.values) return compareTexts(event.printed, tensor.printed, tolerance, true)
  if (!tensor.hasNumbers && !tensor.hasPicture) return 'has neither numbers nor a picture'

  const columns = event.shape.at(-1)
  const numRows = event.shape.length > 1 ? event.shape.at(-2) : 1
  const largest = Math.max(1, ...event.values.map(toNumber).filter(Number.isFinite).map(Math.abs))
  const texts = tensor.matrices.flatMap(matrix => matrix.rows.flat())
  const isShown = printShows(texts, tolerance * largest)
  for (const matrix of tensor.hasNumbers ? tensor.matrices : []) {
    if (matrix.rows.length !== numRows) return `has ${matrix.rows.length} rows instead of ${numRows}`
    const offset = offsetOf(event, tensor, matrix)
    for (const [r, row] of matrix.rows.entries()) {
      const c = row.findIndex((text, c) => !isShown(text, toNumber(event.values[offset + r * columns + c])))
      if (c >= 0) return `shows ${row[c]} at row ${r}, column ${c} instead of ${event.values[offset + r * columns + c]}`
    }
  }
  return null
}

function compareTable(table, event, limit, isMeasured) {
  if (table.rows.length !== event.rows.length) return `has ${table.rows.length} rows instead of ${event.rows.length}`
  if (isMeasured) return null
  return event.rows.flat().map((text, i) => compareTexts(trimmed(text), trimmed(table.rows.flat()[i] ?? ''), limit))
    .find(Boolean) ?? null
}

// The first comparison without a difference decides; otherwise the first difference is returned.
function anyOf(kind, name, candidates, compare) {
  if (candidates.length === 0) return [`${kind} ${name}: the native program has none of this name`]
  const differences = candidates.map(compare)
  return differences.includes(null) ? [] : [`${kind} ${name}: ${differences[0]}`]
}

// Each event with the step that it belongs to.
function withSteps(lines) {
  let step = ''
  return lines.map(line => JSON.parse(line)).map((event) => {
    if (event.type === 'step') step = event.title
    return { ...event, step }
  })
}

function compareText(kind, text, expected) {
  const isSame = other => compareTexts(trimmed(other), trimmed(text), tolerance) === null
  return expected.some(isSame) ? [] : [`${kind} "${text.slice(0, 80)}": the native program does not print this`]
}

// What the cell shows that the native program does not print, and what its excerpt has and the
// cell lacks. Of a run that measures the machine, only names, headings and rows are compared.
// Events at magnified places (magnified.mjs) may differ by 1 %.
export function compareCell(cell, native, magnified = []) {
  const isMeasured = cell.command === './learn 15'
  const events = withSteps(native.lines)
  const ofType = type => events.filter(event => event.type === type)
  const limitOf = (event) => {
    if (isTiming([event.step, event.name, ...event.headings ?? []].join('\n'))) return Infinity
    return magnified.some(place => place.startsWith(`${event.step}: ${nameOf(event)},`)) ? coarse : tolerance
  }
  const generated = ofType('generated').map(({ text }) => text).join('')
  const named = [...ofType('tensor'), ...ofType('value')].map(({ name }) => name.trim())
  const shown = new Set([...cell.tensors.map(({ name }) => name.trim()), ...cell.values.map(([name]) => name)])
  const wanted = cell.excerpt.map(line => line.split(': ')[0].trim()).filter(name => named.includes(name))
  return [
    ...wanted.filter(name => !shown.has(name)).map(name => `does not show ${name} of its excerpt`),
    ...cell.tensors.flatMap(tensor => anyOf('tensor', tensor.name,
      ofType('tensor').filter(({ name }) => name === tensor.name), event => compareTensor(tensor, event))),
    ...cell.values.flatMap(([name, text]) => anyOf('value', name,
      ofType('value').filter(event => event.name.trim() === name),
      event => (isMeasured ? null : compareTexts(trimmed(event.text), trimmed(text), limitOf(event))))),
    ...cell.tables.flatMap(table => anyOf('table', table.headings.join(' | '),
      ofType('table').filter(({ headings }) => headings.map(trimmed).join() === table.headings.map(trimmed).join()),
      event => compareTable(table, event, limitOf(event), isMeasured))),
    ...cell.steps.flatMap(text => compareText('step', text, ofType('step').map(({ number, title }) => `${number}. ${title}`))),
    ...cell.texts.flatMap(text => compareText('text', text, ofType('text').map(({ text }) => text))),
    ...cell.generated.filter(text => !trimmed(generated).includes(trimmed(text)))
      .map(text => `generated "${text.slice(0, 80)}": the native program generates another text`),
  ]
}
