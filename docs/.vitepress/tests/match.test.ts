import { describe, expect, test } from 'vitest'
import type { LiveEvent } from '../live/events'
import { cellKeys, eventKeys, matchExcerpt, sameLine } from '../live/match'
import { printedLines } from '../live/printed'

const run: LiveEvent[] = [
  { type: 'step', number: 1, title: 'Scores of 4 keys' },
  { type: 'tensor', name: 'scores', shape: [1, 4], values: [2, 1, 0.5, 3], printed: '{{ 2. ,  1. ,  0.5,  3. }}' },
  { type: 'value', name: 'largest difference', text: '2.88655' },
  { type: 'step', number: 2, title: 'Converted' },
  { type: 'value', name: 'largest difference', text: '2.38419e-07' },
  { type: 'table', headings: ['model', 'MiB'], rows: [['king_james', '0.25'], ['Llama', '2048']] },
  { type: 'text', text: 'A text that is longer than eighty characters, so that the program prints it on two lines.' },
  { type: 'generated', text: 'And the\nLORD\n' },
]
const lines = printedLines(run)

describe('printed lines', () => {
  test('equal what the program prints', () => {
    expect(lines.map(({ text }) => text)).toEqual([
      '',
      '── 1. Scores of 4 keys ──',
      'scores: (1, 4)',
      '{{ 2. ,  1. ,  0.5,  3. }}',
      'largest difference: 2.88655',
      '',
      '── 2. Converted ──',
      'largest difference: 2.38419e-07',
      'model        MiB',
      'king_james  0.25',
      'Llama       2048',
      'A text that is longer than eighty characters, so that the program prints it on',
      'two lines.',
      'And the',
      'LORD',
    ])
  })

  test('only the first matrix of a large tensor with four axes is printed', () => {
    const [heading] = printedLines([{ type: 'tensor', name: 'q', shape: [2, 16, 10, 8], printed: '{}' }])
    expect(heading.text).toBe('q: (2, 16, 10, 8), of which (0, 0):')
  })
})

describe('lines', () => {
  test.each([
    ['std: 0.560739', 'std: 0.560740', true],
    ['std: 0.56', 'std: 0.58', false],
    ['tokens: 128', 'tokens: 129', false],
    ['tokens: 16384', 'tokens: 16385', true],
    ['a   1', 'a 1', true],
    ['a −1', 'a -1', true],
    ['And the ...', 'And the LORD', true],
    ['{ 1., ..., 2.}', '{ 1., 5., 2.}', false],
    ['{ 1.,  0.}', '{ 1.,  1.}', false],
    ['── 15. Weights ──', '── 16. Weights ──', false],
  ])('%s | %s', (expected, actual, same) => expect(sameLine(expected, actual)).toBe(same))

  test('of run times, the numbers are not compared', () => {
    expect(sameLine('float32  2.40  81', 'float32  7.91  12', false)).toBe(true)
  })
})

describe('excerpts', () => {
  const shown = (...excerpt: string[]) => matchExcerpt(excerpt, lines)

  test('the events of the lines, in order', () => {
    expect(shown('...', 'scores: (1, 4)', '{{ 2. ,  1. ,  0.5,  3. }}', '...', 'Llama       2048', '...'))
      .toMatchObject({ events: [1, 5], missing: [] })
  })

  test('without dots, the next line must follow', () => {
    expect(shown('...', 'scores: (1, 4)', 'largest difference: 2.88655').missing)
      .toEqual(['largest difference: 2.88655'])
  })

  test('the second of two equal names', () => {
    expect(shown('...', 'largest difference: 2.38419e-07').events).toEqual([4])
  })

  test('remarks after an arrow belong to their line', () => {
    const { remarks } = shown('...', '{{ 2. ,  1. ,  0.5,  3. }}    <- the largest is 3')
    expect(remarks).toEqual(new Map([[1, [{ part: 1, text: 'the largest is 3' }]]]))
  })

  test('a line that is not there is reported, and the rest is found', () => {
    expect(shown('...', 'nothing', 'And the')).toMatchObject({ events: [7], missing: ['nothing'] })
  })
})

test('keys stay the same when numbers change', () => {
  const longer = run.map(event => (event.type === 'step' ? { ...event, title: event.title.replace('4', '6') } : event))
  expect(eventKeys(longer)).toEqual(eventKeys(run))
  expect(new Set(eventKeys(run)).size).toBe(run.length)
})

test('a cell names the steps of values with the same name', () => {
  const { keys } = cellKeys(['...', 'largest difference: 2.88655', '...', 'largest difference: 2.38419e-07'], run)
  expect(keys.map(key => key.split(' ')[0])).toEqual(['step', 'value', 'step', 'value'])
})
