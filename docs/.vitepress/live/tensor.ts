// A tensor as matrices with the texts of their cells.
import type { TensorEvent } from './events'

export interface MatrixView {
  index: number[] // of the leading axes
  offset: number // of the first element
}

export interface TensorLayout {
  rows: number
  columns: number
  leading: number[] // the lengths of the leading axes
  matrices: MatrixView[]
}

export function layoutOf(shape: readonly number[]): TensorLayout {
  const columns = shape.at(-1) ?? 1
  const rows = shape.length > 1 ? shape[shape.length - 2] : 1
  const leading = shape.slice(0, -2)
  const count = leading.reduce((product, length) => product * length, 1)
  const matrices = Array.from({ length: count }, (_, number) => {
    const index: number[] = []
    let rest = number
    for (const length of [...leading].reverse()) {
      index.unshift(rest % length)
      rest = Math.floor(rest / length)
    }
    return { index, offset: number * rows * columns }
  })
  return { rows, columns, leading, matrices }
}

// The printed numbers; null if the print is a summary.
function printedNumbers(tensor: TensorEvent): string[] | null {
  if (tensor.rows) return null
  const numbers = tensor.printed.match(/[^\s{},]+/g) ?? []
  return numbers.length === tensor.values?.length ? numbers.map(text => text.replace(/\.$/, '')) : null
}

// Digits after the decimal point in the print.
function printedDecimals(tensor: TensorEvent): number {
  const numbers = tensor.printed.match(/\.\d+/g) ?? []
  return Math.max(0, ...numbers.map(text => text.length - 1))
}

function withDecimals(value: number, decimals: number): string {
  if (Number.isNaN(value)) return 'nan'
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf'
  const text = value.toFixed(decimals)
  return Number(text) === 0 ? text.replace('-', '') : text
}

// The text of each element, with the digits that the program prints.
export function cellTexts(tensor: TensorEvent): string[] {
  const values = tensor.values ?? []
  const printed = printedNumbers(tensor)
  if (printed) return printed
  if (tensor.rows) return values.map(value => withDecimals(value, 2))
  if (tensor.printed.includes('e')) return values.map(value => value.toPrecision(4))
  return values.map(value => withDecimals(value, printedDecimals(tensor)))
}

// More digits, for the reading of a single element.
export function exactText(value: number): string {
  return Number.isFinite(value) ? String(Number(value.toPrecision(6))) : withDecimals(value, 0)
}

// Ids and positions, which are printed without a decimal point.
export function isWholeNumbers(tensor: TensorEvent): boolean {
  return !tensor.rows && !/[.]\s*\d|\d[.]|inf|nan/.test(tensor.printed.replaceAll('...', ''))
}
