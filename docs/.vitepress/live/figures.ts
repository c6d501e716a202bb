// Draws the panels of a figure with Observable Plot, as common/output/plot.cpp does with gnuplot.
import type * as PlotModule from '@observablehq/plot'
import type { BarsPanel, FigureEvent, HeatmapPanel, LiveEvent, LinesPanel } from './events'
import { colorOf, cssColor, lineColors, lineColorsOnDark, rangeOf, textColorOn, type Range } from './palette'

type Plot = typeof PlotModule

export interface LegendEntry {
  label: string
  color: string
}

// The latest panels of a figure, which a long run draws several times.
export function panelsOf(events: readonly LiveEvent[], name: string): FigureEvent[] {
  const panels: FigureEvent[] = []
  for (const event of events) {
    if (event.type === 'figure' && event.name === name) panels[event.panel] = event
  }
  return panels.filter(Boolean)
}

function colorOfLine(index: number, isDark: boolean): string {
  const colors = isDark ? lineColorsOnDark : lineColors
  return colors[index % colors.length]
}

function colorOfBars(index: number, count: number, isDark: boolean): string {
  if (index + 1 === count) return colorOfLine(0, isDark)
  if (index === 1) return isDark ? '#a8713a' : '#e0a15a'
  return isDark ? '#5c666d' : '#b8c4cc'
}

export function legendOf(panel: FigureEvent, isDark: boolean): LegendEntry[] {
  if (panel.kind === 'heatmap') return []
  const color = (index: number) => panel.kind === 'lines'
    ? colorOfLine(index, isDark)
    : colorOfBars(index, panel.labels.length, isDark)
  return panel.labels
    .map((label, index) => ({ label, color: color(index) }))
    .filter(({ label }) => label !== '')
}

function cellText(value: number, oneDigit: boolean): string {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? '∞' : '−∞'
  if (Number.isInteger(value)) return String(value)
  return value.toFixed(oneDigit ? 1 : 2).replace(/^-(0\.0+)$/, '$1')
}

function characters(texts: readonly string[]): number {
  return Math.max(0, ...texts.map(text => [...text].length))
}

// Room for slanted labels of the x axis.
function slanted(names: readonly string[]) {
  return { tickRotate: -50, marginBottom: 30 + 6 * characters(names) }
}

const widestCell = 64

// Small heatmaps show the value of each cell; the others need a scale of colors.
function hasNumbers(panel: HeatmapPanel): boolean {
  return Math.max(panel.num_rows, panel.num_columns) <= 16
}

// The width that the numbers of a heatmap need.
export function minimumWidth(panel: FigureEvent): number {
  if (panel.kind !== 'heatmap' || !hasNumbers(panel)) return 0
  const longest = characters(panel.values.map(value => cellText(value, false)))
  return 40 + panel.num_columns * (5 * Math.min(longest, 4) + 3)
}

function colorRangeOf(panel: HeatmapPanel): Range {
  return panel.low < panel.high ? { low: panel.low, high: panel.high } : rangeOf(panel.values)
}

export function colorRange(panel: FigureEvent): Range | null {
  return panel.kind === 'heatmap' && !hasNumbers(panel) ? colorRangeOf(panel) : null
}

function heatmap(Plot: Plot, panel: HeatmapPanel, width: number, isDark: boolean) {
  const { num_rows: rows, num_columns: columns, x_names: xNames, y_names: yNames } = panel
  const stride = Math.ceil(Math.max(rows, columns) / 128)
  const range = colorRangeOf(panel)
  const oneDigit = panel.values.some(value => Number.isFinite(value) && (value < 0 || value >= 10))
  const masked = isDark ? '#3c3f44' : '#d5d5d5'
  const cells = panel.values
    .map((value, i) => ({ value, row: Math.floor(i / columns), column: i % columns }))
    .filter(({ row, column }) => row % stride === 0 && column % stride === 0)
    .map((cell) => {
      const color = colorOf(cell.value, range)
      return {
        ...cell,
        fill: color ? cssColor(color) : masked,
        text: cellText(cell.value, oneDigit),
        textColor: color ? textColorOn(color) : isDark ? '#b5b8bd' : '#555',
      }
    })
  const longest = Math.max(rows, columns)
  const withNumbers = hasNumbers(panel)
  const marginLeft = yNames.length > 0 ? 34 + 6.5 * characters(yNames) : 40
  const below = xNames.length > 0 ? slanted(xNames) : { tickRotate: 0, marginBottom: 36 }
  const inner = Math.min(width - marginLeft - 8, widestCell * columns)
  const ratio = Math.min(Math.max(rows / columns, 0.3), longest > 40 ? 1.3 : yNames.length > 0 ? 1 : 2)
  const ticks = (count: number, names: string[]) => {
    const step = names.length > 0 || count <= 16 ? 1 : Math.max(1, Math.floor(count / 4))
    return Array.from({ length: Math.ceil(count / step) }, (_, i) => i * step)
  }
  const cellWidth = inner / columns
  return Plot.plot({
    width: inner + marginLeft + 8, marginLeft, marginRight: 8, marginTop: 4, marginBottom: below.marginBottom,
    height: Math.min(inner * ratio, widestCell * rows) + 4 + below.marginBottom,
    padding: longest <= 40 ? 0.03 : 0, round: longest <= 40,
    x: {
      label: panel.x_label, ticks: ticks(columns, xNames), tickSize: 0, tickRotate: below.tickRotate,
      tickFormat: (i: number) => xNames[i] ?? String(i), labelAnchor: 'center', labelArrow: 'none',
    },
    y: {
      label: panel.y_label, ticks: ticks(rows, yNames), tickSize: 0,
      tickFormat: (i: number) => yNames[i] ?? String(i), labelAnchor: 'center', labelArrow: 'none',
    },
    marks: [
      Plot.cell(cells, {
        x: 'column', y: 'row', fill: 'fill', shapeRendering: longest > 40 ? 'crispEdges' : undefined,
      }),
      withNumbers ? Plot.text(cells, {
        x: 'column', y: 'row', text: 'text', fill: 'textColor',
        fontSize: Math.min(14, Math.max(8, cellWidth / 2.8)),
      }) : null,
      withNumbers ? null : Plot.tip(cells, Plot.pointer({
        x: 'column', y: 'row', fill: isDark ? '#1b1b1f' : '#fff',
        title: ({ row, column, value }: typeof cells[number]) =>
          `${yNames[row] ?? `${panel.y_label || 'row'} ${row}`}, ` +
          `${xNames[column] ?? `${panel.x_label || 'column'} ${column}`}: ${Number(value.toPrecision(4))}`,
      })),
    ],
  })
}

const superscripts: Record<string, string> = { '-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶',
  7: '⁷', 8: '⁸', 9: '⁹' }

function powerOfTen(value: number): string {
  const exponent = Math.log10(value)
  const isPower = Math.abs(exponent - Math.round(exponent)) < 1e-9
  if (!isPower || Math.abs(exponent) < 4) return String(Number(value.toPrecision(3)))
  return '10' + [...String(Math.round(exponent))].map(digit => superscripts[digit]).join('')
}

// Exact up to 9,999; thousands, millions and billions above.
function briefNumber(value: number): string {
  for (const [unit, suffix] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (Math.abs(value) >= Math.max(unit, 1e4)) return `${Number((value / unit).toPrecision(3))}${suffix}`
  }
  return String(Number(value.toPrecision(6)))
}

// Powers of ten, or 1, 2 and 5 times them if there are few. No smaller ticks between them.
function logarithmicTicks(values: readonly number[]): number[] {
  const { low, high } = rangeOf(values.filter(value => value > 0))
  const first = Math.floor(Math.log10(low))
  const powers = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, i) => 10 ** (first + i))
  const factors = powers.length > 4 ? [1] : [1, 2, 5]
  return powers
    .flatMap(power => factors.map(factor => Number((factor * power).toPrecision(1))))
    .filter(tick => tick >= low * 0.999 && tick <= high * 1.001)
}

function isFewIntegers(panel: LinesPanel): boolean {
  return panel.x.flat().every(x => Number.isInteger(x) && x >= 0 && x <= 10)
}

function lines(Plot: Plot, panel: LinesPanel, width: number, isDark: boolean) {
  const points = panel.x.map((xs, i) =>
    xs.slice(0, panel.y[i].length).map((x, j) => ({ x, y: panel.y[i][j], label: panel.labels[i] })))
  const all = points.flat()
  const grid = { stroke: 'currentColor', strokeOpacity: 0.12 }
  const integers = (values: number[]) => {
    const { low, high } = rangeOf(values)
    return Array.from({ length: Math.floor(high) - Math.ceil(low) + 1 }, (_, i) => Math.ceil(low) + i)
  }
  const hasYAxis = !panel.same_scale || panel.y_label !== ''
  const marginLeft = hasYAxis ? 52 : 12
  const common = { width, marginLeft, marginTop: 20, marginRight: 14, marginBottom: 40 }
  const x = {
    label: panel.x_label || null, labelAnchor: 'center', labelArrow: 'none',
    type: panel.log_x ? 'log' : 'linear', base: panel.log_x ? 2 : undefined,
    ticks: panel.same_scale || isFewIntegers(panel) ? integers(panel.x.flat()) : Math.max(3, width / 80),
    tickFormat: briefNumber,
  } as const
  const y = {
    label: panel.y_label || null, labelArrow: 'none', type: panel.log_y ? 'log' : 'linear',
    ticks: panel.same_scale ? integers(panel.y.flat()) : panel.log_y ? logarithmicTicks(panel.y.flat()) : 5, axis: hasYAxis ? 'left' : null,
    tickFormat: panel.log_y ? powerOfTen : briefNumber,
    domain: panel.low < panel.high ? [panel.low, panel.high] : undefined,
  } as const
  const marks = [
    hasYAxis ? Plot.gridY({ ...grid, ticks: y.ticks }) : null,
    Plot.gridX({ ...grid, ticks: x.ticks }),
    ...points.map((line, i) => panel.styles[i] === 'points'
      ? Plot.dot(line, { x: 'x', y: 'y', fill: colorOfLine(i, isDark), r: 4 })
      : panel.styles[i] === 'reference'
        ? Plot.line(line, { x: 'x', y: 'y', stroke: '#888', strokeWidth: 1.2, strokeDasharray: '4 3' })
        : Plot.line(line, {
          x: 'x', y: 'y', stroke: colorOfLine(i, isDark), strokeWidth: 2.2, strokeLinejoin: 'round',
        })),
    panel.same_scale ? null : Plot.tip(all, Plot.pointer({
      x: 'x', y: 'y', fill: isDark ? '#1b1b1f' : '#fff',
      title: (point: typeof all[number]) => [point.label, `${panel.x_label || 'x'} ${briefNumber(point.x)}: ` +
        Number(point.y.toPrecision(4))].filter(Boolean).join('\n'),
    })),
  ]
  if (panel.same_scale) return Plot.plot({ ...common, aspectRatio: 1, inset: 12, x, y, marks })
  return Plot.plot({ ...common, height: Math.min(320, Math.max(220, width * 0.72)), x, y, marks })
}

function bars(Plot: Plot, panel: BarsPanel, width: number, isDark: boolean) {
  const barWidth = 0.8 / panel.values.length
  const data = panel.values.flatMap((values, series) => values.map((value, i) => ({
    left: i - 0.4 + series * barWidth,
    right: i - 0.4 + (series + 1) * barWidth,
    value,
    color: colorOfBars(series, panel.values.length, isDark),
    title: [panel.names[i], panel.labels[series], Number(value.toPrecision(4))].filter(Boolean).join('\n'),
  })))
  const below = slanted(panel.names)
  return Plot.plot({
    width, marginLeft: 48, marginRight: 8, marginTop: 20, marginBottom: below.marginBottom - 8,
    height: Math.min(340, Math.max(240, width * 0.6)),
    x: {
      label: null, domain: [-0.6, panel.names.length - 0.4], ticks: panel.names.map((_, i) => i), tickSize: 0,
      tickFormat: (i: number) => panel.names[i] ?? '', tickRotate: below.tickRotate,
    },
    y: {
      label: panel.y_label || null, labelArrow: 'none', ticks: 5,
      domain: panel.highest > 0 ? [0, panel.highest] : undefined, zero: true,
    },
    marks: [
      Plot.gridY({ stroke: 'currentColor', strokeOpacity: 0.12, ticks: 5 }),
      Plot.rectY(data, { x1: 'left', x2: 'right', y: 'value', fill: 'color', title: 'title' }),
    ],
  })
}

export function drawPanel(Plot: Plot, panel: FigureEvent, width: number, isDark: boolean): Element {
  if (panel.kind === 'heatmap') return heatmap(Plot, panel, width, isDark)
  if (panel.kind === 'lines') return lines(Plot, panel, width, isDark)
  return bars(Plot, panel, width, isDark)
}
