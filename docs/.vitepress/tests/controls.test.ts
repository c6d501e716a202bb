import { describe, expect, test } from 'vitest'
import { parseControls, sliderOf, sliderPosition, sliderValue } from '../live/controls'
import type { OptionEvent } from '../live/events'

const option = (name: string, kind: OptionEvent['kind'], low: number, high: number): OptionEvent =>
  ({ type: 'option', name, kind, low, high, help: '' })

test('the comment of a page', () => {
  expect(parseControls('--seq-len 1..24, --attention-bias'))
    .toEqual([{ name: '--seq-len', low: 1, high: 24 }, { name: '--attention-bias' }])
  expect(() => parseControls('seq-len')).toThrow('not a control: "seq-len"')
  expect(() => parseControls('--seq-len 5..5')).toThrow('--seq-len has no range from 5 to 5')
})

describe('sliders', () => {
  test('of a few integers have a position for each', () => {
    const slider = sliderOf(option('--seq-len', 'integer', 1, 1024), { name: '--seq-len', low: 1, high: 24 })!
    expect(slider).toMatchObject({ low: 1, high: 24, steps: 23, isLogarithmic: false })
    for (let value = 1; value <= 24; ++value) {
      expect(sliderValue(slider, sliderPosition(slider, value))).toBe(value)
    }
  })

  test('of a wide range are logarithmic, with round values', () => {
    const slider = sliderOf(option('--rope-theta', 'number', 1, 1e9), { name: '--rope-theta', low: 100, high: 1e6 })!
    expect(slider.isLogarithmic).toBe(true)
    expect(sliderValue(slider, slider.steps / 2)).toBe(10000)
    expect(sliderValue(slider, slider.steps)).toBe(1e6)
    expect(sliderPosition(slider, 10000)).toBe(slider.steps / 2)
  })

  test('of probabilities have a few decimals', () => {
    const slider = sliderOf(option('--top-p', 'number', 0, 1), { name: '--top-p' })!
    expect(sliderValue(slider, 180)).toBe(0.9)
  })

  test('do not exist for ranges such as that of the seed', () => {
    expect(sliderOf(option('--seed', 'integer', 0, 2 ** 32 - 1), { name: '--seed' })).toBeNull()
    expect(sliderOf({ type: 'option', name: '--prompt', kind: 'text', help: '' }, { name: '--prompt' })).toBeNull()
  })
})
