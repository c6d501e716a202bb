// Controls of a cell: <!-- controls: --seq-len 1..24, --attention-bias --> on its page.
import type { OptionEvent } from './events'

export interface ControlRequest {
  name: string // "--seq-len"
  low?: number
  high?: number
}

export function parseControls(text: string): ControlRequest[] {
  return text.split(',').map((item) => {
    const match = /^(--[a-z][a-z-]*)(?:\s+(\S+)\.\.(\S+))?$/.exec(item.trim())
    if (!match) throw new Error(`not a control: "${item.trim()}"`)
    const [, name, low, high] = match
    if (low === undefined) return { name }
    if (!(Number(low) < Number(high))) throw new Error(`${name} has no range from ${low} to ${high}`)
    return { name, low: Number(low), high: Number(high) }
  })
}

export interface Slider {
  low: number
  high: number
  steps: number
  isLogarithmic: boolean
  isInteger: boolean
}

const mostSteps = 200
const widestRange = 4096 // of a linear slider whose range the page does not narrow

// A slider for an option with limits; null if its range is too wide for one.
export function sliderOf(option: OptionEvent, request: ControlRequest): Slider | null {
  if (option.kind !== 'integer' && option.kind !== 'number') return null
  if (option.low === undefined || option.high === undefined) return null
  const low = Math.max(option.low, request.low ?? option.low)
  const high = Math.min(option.high, request.high ?? option.high)
  const isInteger = option.kind === 'integer'
  const isLogarithmic = low > 0 && high / low >= 1000
  const isTooWide = high - low > widestRange && (isInteger || !isLogarithmic)
  if (request.high === undefined && isTooWide) return null
  const steps = isInteger && !isLogarithmic ? Math.min(high - low, mostSteps) : mostSteps
  return { low, high, steps, isLogarithmic, isInteger }
}

// With at most three significant digits on a logarithmic scale, and decimals as fine as the steps.
export function sliderValue(slider: Slider, position: number): number {
  const part = position / slider.steps
  const { low, high } = slider
  if (position <= 0) return low
  if (position >= slider.steps) return high
  if (slider.isLogarithmic) {
    const value = low * (high / low) ** part
    const rounded = Number(value.toPrecision(value > 100 ? 2 : 3))
    return slider.isInteger ? Math.round(rounded) : rounded
  }
  const value = low + (high - low) * part
  if (slider.isInteger) return Math.round(value)
  const decimals = Math.max(0, Math.ceil(-Math.log10((high - low) / slider.steps)))
  return Number(value.toFixed(decimals))
}

export function sliderPosition(slider: Slider, value: number): number {
  const { low, high, steps } = slider
  const clamped = Math.min(Math.max(value, low), high)
  const part = slider.isLogarithmic
    ? Math.log(clamped / low) / Math.log(high / low)
    : (clamped - low) / (high - low)
  return Math.round(part * steps)
}
