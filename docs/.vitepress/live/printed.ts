// Events as the lines that the program prints without --json (common/output/show.cpp).
import type { LiveEvent, TableEvent } from './events'

export interface PrintedLine {
  text: string
  event: number // index of its event
  part: number // index of the line among those of the event
}

// Wraps at 80 bytes, as say() does.
function wrapped(text: string): string[] {
  const length = (word: string) => new TextEncoder().encode(word).length
  const lines: string[] = []
  let line = ''
  for (const word of text.split(/\s+/).filter(Boolean)) {
    if (line && length(line) + 1 + length(word) > 80) {
      lines.push(line)
      line = ''
    }
    line += (line ? ' ' : '') + word
  }
  return [...lines, line]
}

export function isNumericColumn(table: TableEvent, column: number): boolean {
  return table.rows.every((row) => {
    const cell = row[column]
    return /^[0-9.,+\-e%>]*$/.test(cell) || cell === 'inf' || cell === '-inf'
  })
}

function tableLines(table: TableEvent): string[] {
  const rows = [table.headings, ...table.rows]
  const length = (text: string) => [...text].length
  const widths = table.headings.map((_, column) => Math.max(...rows.map(row => length(row[column]))))
  const numeric = table.headings.map((_, column) => isNumericColumn(table, column))
  const padded = (cell: string, column: number) => {
    const padding = ' '.repeat(widths[column] - length(cell))
    return numeric[column] ? padding + cell : cell + padding
  }
  return rows.map(row => row.map(padded).join('  ').trimEnd())
}

export function tensorHeading(name: string, shape: readonly number[]): string {
  const comma = shape.length === 1 ? ',' : ''
  return `${name}: (${shape.join(', ')}${comma})`
}

function linesOf(event: LiveEvent): string[] {
  switch (event.type) {
    case 'step':
      return ['', `── ${event.number}. ${event.title} ──`]
    case 'text':
      return wrapped(event.text)
    case 'value':
      return `${event.name}: ${event.text}`.split('\n')
    case 'tensor': {
      // Of a large tensor with four axes, only the first matrix is printed.
      const size = event.shape.reduce((product, length) => product * length, 1)
      const partly = event.shape.length === 4 && size > 250 ? ', of which (0, 0):' : ''
      return [tensorHeading(event.name, event.shape) + partly, ...event.printed.split('\n')]
    }
    case 'table':
      return tableLines(event)
    case 'generated':
      return event.text.replace(/\n$/, '').split('\n')
    default:
      return []
  }
}

export function printedLines(events: readonly LiveEvent[]): PrintedLine[] {
  return events.flatMap((event, index) =>
    linesOf(event).map((text, part) => ({ text: text.trimEnd(), event: index, part })))
}
