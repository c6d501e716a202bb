import { describe, expect, test } from 'vitest'
import type { TensorEvent } from '../live/events'
import { colorOf, cssColor, rangeOf, textColorOn } from '../live/palette'
import { cellTexts, isWholeNumbers, layoutOf } from '../live/tensor'

const tensor = (shape: number[], values: number[], printed: string, names: Partial<TensorEvent> = {}): TensorEvent =>
  ({ type: 'tensor', name: 't', shape, values, printed, ...names })

describe('layout', () => {
  test('a vector is one row', () => {
    expect(layoutOf([4])).toEqual({ rows: 1, columns: 4, leading: [], matrices: [{ index: [], offset: 0 }] })
  })

  test('the leading axes count matrices', () => {
    const { rows, columns, matrices } = layoutOf([2, 3, 4, 5])
    expect([rows, columns, matrices.length]).toEqual([4, 5, 6])
    expect(matrices[4]).toEqual({ index: [1, 1], offset: 80 })
  })
})

describe('the texts of the cells', () => {
  test('are those of the print', () => {
    expect(cellTexts(tensor([1, 3], [0.7310586, 0.26894143, 0], '{{ 0.7311,  0.2689,  0.    }}')))
      .toEqual(['0.7311', '0.2689', '0'])
    expect(cellTexts(tensor([1, 2], [1, -Infinity], '{{  1., -inf}}'))).toEqual(['1', '-inf'])
  })

  test('of a table have two decimals, and no negative zero', () => {
    const named = { rows: ['And'], columns: ['the', 'LORD'] }
    expect(cellTexts(tensor([1, 2], [-0.001, 2.3476], '      the  LORD\nAnd  0.00  2.35', named))).toEqual(['0.00', '2.35'])
  })

  test('of a summary have as many decimals as the numbers in it', () => {
    expect(cellTexts(tensor([5], [0.12345, 1, 2, 3, 4], '{ 0.123,  1.   , ...,  4.   }')))
      .toEqual(['0.123', '1.000', '2.000', '3.000', '4.000'])
  })
})

test('ids are printed without a decimal point', () => {
  expect(isWholeNumbers(tensor([1, 3], [103, 66, 148], '{{103,  66, 148}}'))).toBe(true)
  expect(isWholeNumbers(tensor([1, 3], [2, 1, 3], '{{ 2., ...,  3.}}'))).toBe(false)
})

describe('colors', () => {
  const range = rangeOf([1, -Infinity, 3, NaN])

  test('the range is that of the finite values', () => expect(range).toEqual({ low: 1, high: 3 }))

  test('from the first color of viridis to the last; gray for masked cells', () => {
    expect(cssColor(colorOf(1, range)!)).toBe('rgb(68 1 84)')
    expect(cssColor(colorOf(3, range)!)).toBe('rgb(253 231 37)')
    expect(colorOf(-Infinity, range)).toBeNull()
  })

  test('white text on dark colors, black on light ones', () => {
    expect(textColorOn(colorOf(1, range)!)).toBe('#fff')
    expect(textColorOn(colorOf(3, range)!)).toBe('#000')
  })
})
