// Finds the events of a run that an excerpt of its output shows. The comparison of lines is that
// of tests/checks/check_docs.py, which checks that each excerpt is true.
import type { LiveEvent } from './events'
import { printedLines, type PrintedLine } from './printed'

export interface Remark {
  part: number // index of the printed line of the event
  text: string
}

export interface Match {
  events: number[] // indices of the events, in order
  remarks: Map<number, Remark[]> // by index of the event: what the excerpt adds after "<-"
  missing: string[] // lines of the excerpt that the run does not print
}

const number = /[-−]?\d+\.?\d*(?:e[-+]?\d+)?/g
const relativeTolerance = 2e-4

function sameNumber(expected: string, actual: string): boolean {
  const [a, b] = [expected, actual].map(text => Number(text.replace('−', '-')))
  const [digits, exponent] = expected.split('e')
  const decimals = digits.split('.')[1]?.length
  const lastDigit = decimals ? 10 ** (Number(exponent ?? 0) - decimals) : 0
  return Math.abs(a - b) <= Math.max(lastDigit * 1.000001, relativeTolerance * Math.max(1, Math.abs(b)))
}

function samePiece(expected: string, actual: string, compareNumbers: boolean): boolean {
  const texts = (line: string) => line.split(number).map(text => text.replace(/\s+/g, ' ')).join('\0')
  if (texts(expected) !== texts(actual)) return false
  const numbers = (line: string) => line.match(number) ?? []
  const others = numbers(actual)
  return !compareNumbers || numbers(expected).every((text, i) => sameNumber(text, others[i]))
}

// "..." in an expected line stands for any text, except for the dots of a summarized tensor.
export function sameLine(expected: string, actual: string, compareNumbers = true): boolean {
  const dotsOfTensor = expected.trim().startsWith('...,') || expected.includes(', ...,')
  if (!expected.includes('...') || dotsOfTensor) return samePiece(expected, actual, compareNumbers)
  return expected.split('...').every(part => actual.includes(part))
}

// The lines must occur in order, with gaps where the excerpt has a line of dots. A line that does
// not occur is left out. Without compareNumbers, numbers match any others.
export function matchExcerpt(excerpt: readonly string[], lines: readonly PrintedLine[],
                             compareNumbers = true): Match {
  const match: Match = { events: [], remarks: new Map(), missing: [] }
  let position = 0
  let gap = false
  for (const line of excerpt) {
    if (line === '...') {
      gap = true
      continue
    }
    const [expected, remark] = line.split(/\s+<- /)
    const same = (printed: PrintedLine) => sameLine(expected.trimEnd(), printed.text, compareNumbers)
    const end = gap ? lines.length : Math.min(position + 1, lines.length)
    let found = position
    while (found < end && !same(lines[found])) ++found
    if (found === end) {
      if (expected.trim()) match.missing.push(line)
      gap = true
      continue
    }
    const { event, part } = lines[found]
    if (expected.trim() && match.events.at(-1) !== event) match.events.push(event)
    if (remark) match.remarks.set(event, [...(match.remarks.get(event) ?? []), { part, text: remark }])
    position = found + 1
    gap = false
  }
  return match
}

// A name for each event that is the same in runs with other options: a tensor's own name, which
// is unique; for others the title of the step, in which numbers may differ, and a count in it.
export function eventKeys(events: readonly LiveEvent[]): string[] {
  const counts = new Map<string, number>()
  let step = ''
  return events.map((event) => {
    if (event.type === 'step') step = event.title.replace(/\d[\d.,]*/g, '#')
    const name = 'name' in event ? event.name : ''
    const key = event.type === 'tensor' ? `tensor ${name}` : [event.type, step, name].join(' | ')
    const count = counts.get(key) ?? 0
    counts.set(key, count + 1)
    return count === 0 ? key : `${key} | ${count}`
  })
}

// The step that each of these events belongs to, before it.
function withSteps(indices: readonly number[], events: readonly LiveEvent[]): number[] {
  const isStep = (event: LiveEvent) => event.type === 'step'
  const steps = indices.map(index => events.slice(0, index + 1).findLastIndex(isStep)).filter(index => index >= 0)
  return [...new Set([...steps, ...indices])].sort((a, b) => a - b)
}

// What a cell shows: the keys of its events in the run that its excerpt was taken from.
export interface CellKeys {
  keys: string[]
  remarks: Map<string, Remark[]>
  isComplete: boolean // the run has printed every line of the excerpt
}

export function cellKeys(excerpt: readonly string[], events: readonly LiveEvent[],
                         compareNumbers = true): CellKeys {
  const names = eventKeys(events)
  const match = matchExcerpt(excerpt, printedLines(events), compareNumbers)
  // Values with the same name are told apart by the titles of their steps.
  const values = match.events.map(index => events[index]).filter(event => event.type === 'value')
  const isAmbiguous = new Set(values.map(({ name }) => name)).size < values.length
  const shown = isAmbiguous ? withSteps(match.events, events) : match.events
  return {
    keys: shown.map(index => names[index]),
    remarks: new Map([...match.remarks].map(([index, remarks]) => [names[index], remarks])),
    isComplete: match.missing.length === 0,
  }
}
