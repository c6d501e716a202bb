// Compares the events of two runs with the same arguments (common/output/events.hpp). Numbers may
// differ by the tolerance of all tests: 1e-5, relative to the largest element above 1.
export const tolerance = 1e-5

// For numbers in which rounding errors are magnified. Only with it may integers differ.
export const coarse = 1e-2

// Lengths of time and what is computed from them differ from run to run.
export const isTiming = text => /milliseconds|microseconds|run time|tokens\/s|tokens per second|GFLOP\/s|GB\/s|^Time /.test(text)

// The speed and the time left in the report of a training run.
const withoutSpeed = text => text.replace(/[\d,]+ tokens\/s, [\d:]+ left/g, '')

const numberPattern = /[-−]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?/g

// Infinities and NaN are strings.
export function toNumber(value) {
  if (typeof value === 'number') return value
  return { 'inf': Infinity, '-inf': -Infinity, 'nan': NaN, '-nan': NaN }[value]
}

function compareNumbers(a, b, allowed) {
  if (a.length !== b.length) return `${a.length} numbers natively, ${b.length} in the browser`
  const expected = a.map(toNumber)
  const actual = b.map(toNumber)
  const largest = expected.reduce((sum, x) => (Number.isFinite(x) ? Math.max(sum, Math.abs(x)) : sum), 1)
  const limit = allowed * largest
  const at = expected.findIndex((x, i) => !Object.is(x, actual[i]) && !(Math.abs(x - actual[i]) <= limit))
  return at < 0 ? null : `element ${at} is ${a[at]} natively, ${b[at]} in the browser (${limit.toPrecision(2)} allowed)`
}

// One unit of the last printed digit; integers have none. In a tensor, all have the same number of
// decimals, of which zeros at the end are left out.
function unitOf(text, decimalsOfAll) {
  const [digits, exponent] = text.split('e')
  const decimals = Math.max(digits.split('.')[1]?.length ?? 0, decimalsOfAll)
  return decimals === 0 && exponent === undefined ? 0 : 10 ** (Number(exponent ?? 0) - decimals)
}

const decimalsOf = text => Math.max(0, ...(text.match(/\.\d+/g) ?? []).map(digits => digits.length - 1))

// Texts that are equal apart from the rounding of their numbers.
export function compareTexts(textNatively, textInBrowser, allowed, isTensor) {
  const [a, b] = [textNatively, textInBrowser].map(withoutSpeed)
  if (a === b) return null
  const difference = `"${a}" natively, "${b}" in the browser`
  const space = isTensor ? '' : ' '
  const parts = text => text.split(numberPattern).map(part => part.replace(/\s+/g, space)).join('#')
  if (parts(a) !== parts(b)) return difference
  const others = b.match(numberPattern) ?? []
  const valueOf = text => Number(text.replace('−', '-').replaceAll(',', ''))
  const decimals = isTensor ? decimalsOf(a) : 0
  const isClose = (text, i) => {
    const unit = unitOf(text, decimals)
    const limit = unit === 0 && allowed < coarse ? 0 : unit * 1.001 + allowed * Math.max(1, Math.abs(valueOf(text)))
    return Math.abs(valueOf(text) - valueOf(others[i])) <= limit
  }
  return (a.match(numberPattern) ?? []).every(isClose) ? null : difference
}

// Whether texts show values to their printed digits, and the values may differ by `allowed`.
export function printShows(texts, allowed) {
  const decimals = decimalsOf(texts.join(' '))
  return (text, value) => {
    if (!Number.isFinite(value)) return text === String(value).replace('Infinity', 'inf').replace('NaN', 'nan')
    return Math.abs(Number(text) - value) <= 0.5001 * unitOf(text, decimals) + allowed
  }
}

function compareMember(a, b, allowed, isTensor) {
  if (Array.isArray(a) && Array.isArray(b)) {
    if (a.length !== b.length) return `${a.length} elements natively, ${b.length} in the browser`
    if (a.some(x => Array.isArray(x))) {
      return a.map((x, i) => compareMember(x, b[i], allowed, isTensor)).find(Boolean) ?? null
    }
    if (a.every(x => toNumber(x) !== undefined)) return compareNumbers(a, b, allowed)
    return a.map((x, i) => compareMember(x, b[i], allowed, isTensor)).find(Boolean) ?? null
  }
  if (typeof a === 'number' && typeof b === 'number') return compareNumbers([a], [b], allowed)
  if (typeof a === 'string' && typeof b === 'string') return compareTexts(a, b, allowed, isTensor)
  return Object.is(a, b) ? null : `${JSON.stringify(a)} natively, ${JSON.stringify(b)} in the browser`
}

// What an event is called in the place of a difference.
export const nameOf = event => [event.type, event.name ?? event.title].filter(Boolean).join(' ')

// Progress lines come at times, and their speeds differ.
const eventsOf = lines => lines.map(line => JSON.parse(line)).filter(({ type }) => type !== 'progress')

// Where two runs differ, and how.
export function compareRuns(native, browser, allowed = tolerance) {
  if (native.code !== browser.code || native.error !== browser.error) {
    const detail = `${native.code} "${native.error}" natively, ${browser.code} "${browser.error}" in the browser`
    return [{ place: 'exit code', detail }]
  }
  const expected = eventsOf(native.lines)
  const actual = eventsOf(browser.lines)
  const differences = []
  let step = ''
  for (const [i, a] of expected.entries()) {
    const b = actual[i]
    if (!b || nameOf(a) !== nameOf(b)) {
      const detail = `${nameOf(a)} natively, ${b ? nameOf(b) : 'missing'} in the browser`
      return [...differences, { place: `event ${i}`, detail }]
    }
    if (a.type === 'step') step = a.title
    const limit = isTiming([step, a.name, a.title, a.y_label, ...(a.headings ?? [])].join('\n')) ? Infinity : allowed
    for (const member of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const detail = compareMember(a[member], b[member], limit, a.type === 'tensor')
      if (detail) differences.push({ place: `${step}: ${nameOf(a)}, ${member}`, detail })
    }
  }
  if (actual.length > expected.length) differences.push({ place: 'end', detail: nameOf(actual[expected.length]) })
  return differences
}
