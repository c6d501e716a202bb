// The colors of the figures, those of common/output/plot.cpp.

const viridis = ['#440154', '#482878', '#3e4989', '#31688e', '#26828e', '#1f9e89', '#35b779', '#6ece58',
  '#b5de2b', '#fde725'].map(components)

export const lineColors = ['#31688e', '#e07b39', '#35a16b', '#9b59b6', '#c0392b', '#7f8c8d']
// The same hues, readable on a dark background.
export const lineColorsOnDark = ['#6db3dd', '#e8935a', '#4fc08a', '#c08fd8', '#ea7a6d', '#a5b0b1']

export type Rgb = [number, number, number]

function components(color: string): Rgb {
  return [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16)) as Rgb
}

export interface Range {
  low: number
  high: number
}

// Of the finite values.
export function rangeOf(values: readonly number[]): Range {
  let [low, high] = [Infinity, -Infinity]
  for (const value of values) {
    if (!Number.isFinite(value)) continue
    low = Math.min(low, value)
    high = Math.max(high, value)
  }
  return { low, high }
}

// null for -inf and NaN, whose cells are gray.
export function colorOf(value: number, { low, high }: Range): Rgb | null {
  if (!Number.isFinite(value)) return null
  const position = high > low ? ((value - low) / (high - low)) * (viridis.length - 1) : (viridis.length - 1) / 2
  const index = Math.min(Math.max(Math.floor(position), 0), viridis.length - 2)
  const part = position - index
  return viridis[index].map((from, i) => Math.round(from + part * (viridis[index + 1][i] - from))) as Rgb
}

export function cssColor([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`
}

function luminance(color: Rgb): number {
  const [red, green, blue] = color.map((component) => {
    const share = component / 255
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}

// Black or white, whichever has the higher contrast.
export function textColorOn(color: Rgb): string {
  return (luminance(color) + 0.05) ** 2 > 1.05 * 0.05 ? '#000' : '#fff'
}

export const gradient = `linear-gradient(to right, ${viridis.map(cssColor).join(', ')})`
