// The lines that a program prints with --json, as common/output/events.hpp describes them.

export interface OptionEvent {
  type: 'option'
  name: string // "--seq-len"
  kind: 'integer' | 'number' | 'choice' | 'text' | 'path' | 'folder' | 'ids' | 'flag'
  low?: number
  high?: number
  choices?: string[]
  default?: string
  help: string
}

export interface StepEvent {
  type: 'step'
  number: number
  title: string
}

export interface TextEvent {
  type: 'text'
  text: string
}

export interface ValueEvent {
  type: 'value'
  name: string
  text: string
}

export interface TensorEvent {
  type: 'tensor'
  name: string
  shape: number[]
  values?: number[] // row-major; left out for large tensors
  rows?: string[]
  columns?: string[] // the names of the first columns
  printed: string
}

export interface TableEvent {
  type: 'table'
  headings: string[]
  rows: string[][]
}

export interface GeneratedEvent {
  type: 'generated'
  text: string
}

export interface ProgressEvent {
  type: 'progress'
  text: string
}

interface FigurePanel {
  type: 'figure'
  name: string
  panel: number
  panels: number
  title: string
}

export interface HeatmapPanel extends FigurePanel {
  kind: 'heatmap'
  x_label: string
  y_label: string
  num_rows: number
  num_columns: number
  values: number[]
  x_names: string[]
  y_names: string[]
  low: number // of the color scale; equal to high: that of the values
  high: number
}

export interface LinesPanel extends FigurePanel {
  kind: 'lines'
  x_label: string
  y_label: string
  labels: string[]
  styles: ('line' | 'points' | 'reference' | 'area')[]
  x: number[][]
  y: number[][]
  log_x: boolean
  log_y: boolean
  same_scale: boolean
  low: number // of the y axis; equal to high: automatic
  high: number
}

export interface BarsPanel extends FigurePanel {
  kind: 'bars'
  y_label: string
  names: string[]
  labels: string[]
  values: number[][]
  highest: number
}

export type FigureEvent = HeatmapPanel | LinesPanel | BarsPanel

export type LiveEvent =
  | OptionEvent
  | StepEvent
  | TextEvent
  | ValueEvent
  | TensorEvent
  | TableEvent
  | GeneratedEvent
  | ProgressEvent
  | FigureEvent

// The members of which each type needs a value.
const required: Record<LiveEvent['type'], string[]> = {
  option: ['name', 'kind', 'help'],
  step: ['number', 'title'],
  text: ['text'],
  value: ['name', 'text'],
  tensor: ['name', 'shape', 'printed'],
  table: ['headings', 'rows'],
  generated: ['text'],
  progress: ['text'],
  figure: ['name', 'panel', 'panels', 'kind'],
}

// JSON has no numbers for infinities and NaN; they are the strings "inf", "-inf" and "nan".
function toNumber(value: unknown): number {
  if (typeof value === 'number') return value
  if (value === 'inf') return Infinity
  if (value === '-inf') return -Infinity
  if (value === 'nan') return NaN
  throw new Error(`not a number: ${JSON.stringify(value)}`)
}

function toNumbers(values: unknown): unknown {
  if (!Array.isArray(values)) return values
  return values.map(value => (Array.isArray(value) ? toNumbers(value) : toNumber(value)))
}

// Throws an Error for a line that is no event of a known type.
export function parseEvent(line: string): LiveEvent {
  let event: Record<string, unknown>
  try {
    event = JSON.parse(line)
  } catch {
    throw new Error(`not an event: ${line.slice(0, 80)}`)
  }
  const members = required[event?.type as LiveEvent['type']]
  if (!members) throw new Error(`unknown event type ${JSON.stringify(event?.type)}`)
  const missing = members.find(member => event[member] === undefined)
  if (missing) throw new Error(`an event of type ${event.type} without ${missing}`)
  if (event.type === 'tensor' || event.type === 'figure') {
    for (const member of ['values', 'x', 'y']) {
      if (event[member] !== undefined) event[member] = toNumbers(event[member])
    }
  }
  return event as unknown as LiveEvent
}

// Generated text arrives in pieces; the result has one event for each uninterrupted text.
export function joinGenerated(events: readonly LiveEvent[]): LiveEvent[] {
  const joined: LiveEvent[] = []
  for (const event of events) {
    const last = joined.at(-1)
    if (event.type === 'generated' && last?.type === 'generated') {
      joined[joined.length - 1] = { type: 'generated', text: last.text + event.text }
    } else if (event.type !== 'progress') {
      joined.push(event)
    }
  }
  return joined
}
