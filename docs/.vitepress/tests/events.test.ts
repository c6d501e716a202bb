import { expect, test } from 'vitest'
import { joinGenerated, parseEvent } from '../live/events'

test('numbers that JSON does not have', () => {
  const event = parseEvent('{"type":"tensor","name":"m","shape":[3],"values":[1.5,"-inf","nan"],"printed":"{}"}')
  expect(event).toMatchObject({ values: [1.5, -Infinity, NaN] })
})

test('the lines of a figure', () => {
  const event = parseEvent('{"type":"figure","name":"f","panel":0,"panels":1,"kind":"lines","x":[[0,1]],"y":[["inf",2]]}')
  expect(event).toMatchObject({ x: [[0, 1]], y: [[Infinity, 2]] })
})

test('an unknown type is an error that names it', () => {
  expect(() => parseEvent('{"type":"sound"}')).toThrow('unknown event type "sound"')
})

test('a missing member is an error that names it', () => {
  expect(() => parseEvent('{"type":"value","name":"loss"}')).toThrow('an event of type value without text')
})

test('a line that is not JSON is an error', () => {
  expect(() => parseEvent('Segmentation fault')).toThrow('not an event: Segmentation fault')
})

test('pieces of generated text become one event, and progress is left out', () => {
  expect(joinGenerated([
    { type: 'generated', text: 'And ' },
    { type: 'generated', text: 'the' },
    { type: 'progress', text: '1/2' },
    { type: 'value', name: 'tokens', text: '2' },
    { type: 'generated', text: 'LORD' },
  ])).toEqual([
    { type: 'generated', text: 'And the' },
    { type: 'value', name: 'tokens', text: '2' },
    { type: 'generated', text: 'LORD' },
  ])
})
