// Command lines of the pages, such as: ./learn 5 --seq-len 6

export interface Command {
  slug: string // "05_gqa", or "walk"
  args: string[] // ["--seq-len", "6"]
}

// Programs that run for seconds. They start when the reader asks for it.
const slowSlugs = ['08_pre_vs_post_norm', '09_full_model', '13_training', '14_fine_tuning', '15_fast', '16_quantization',
  '17_long_context', '18_experts']
const slowOptions = ['--measure']

export function isSlow({ slug, args }: Command): boolean {
  return slowSlugs.includes(slug) || args.some(arg => slowOptions.includes(arg))
}

// Splits at spaces outside of double quotes.
export function splitWords(line: string): string[] {
  const words = line.match(/(?:[^\s"]|"[^"]*")+/g) ?? []
  return words.map(word => word.replace(/"/g, ''))
}

function quoted(word: string): string {
  return /^[\w.,=/:+-]+$/.test(word) ? word : `"${word}"`
}

export function commandText({ slug, args }: Command): string {
  return ['./learn', /^\d/.test(slug) ? String(parseInt(slug)) : slug, ...args.map(quoted)].join(' ')
}

// The arguments with options replaced or added: true adds a flag, false removes an option.
export type Changes = Readonly<Record<string, string | boolean>>

export function changedArgs(args: readonly string[], changes: Changes): string[] {
  const result: string[] = []
  for (let i = 0; i < args.length; ++i) {
    const hasValue = i + 1 < args.length && !args[i + 1].startsWith('--')
    const option = hasValue ? [args[i], args[i + 1]] : [args[i]]
    if (!(args[i] in changes)) result.push(...option)
    if (hasValue) ++i
  }
  for (const [name, value] of Object.entries(changes)) {
    if (value === true) result.push(name)
    else if (value !== false) result.push(name, value)
  }
  return result
}

// The value that the arguments give an option, true for a flag; undefined if it is not there.
export function givenValue(args: readonly string[], name: string): string | true | undefined {
  const at = args.indexOf(name)
  if (at < 0) return undefined
  const next = args[at + 1]
  return next === undefined || next.startsWith('--') ? true : next
}
