// Lets readers answer the exercises "predict" in the page. Question and hints are the page's; the
// answer and its explanation come from the chapter's solution.cpp, the tolerance from its test.
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import type MarkdownIt from 'markdown-it'
import { type Chapter, root } from '../chapters'

export interface PredictionAnswer {
  exercise: string // "5.1"
  rows: (number | string)[][] // one row, or those of a matrix
  tolerance: number
  why: string
}

// The value of a C++ return expression: numbers, sums and products of them, strings, braces.
function valueOf(expression: string): unknown {
  const literal = expression
    .replace(/Real\(([^()]*)\)/g, '($1)')
    .replace(/([\d.])f\b/g, '$1')
    .replaceAll('{', '[')
    .replaceAll('}', ']')
  if (!/^(?:[\d\s+\-*/.,()[\]]|"[^"\\]*")*$/.test(literal)) {
    throw new Error(`this answer is no list of numbers or strings: ${expression}`)
  }
  return new Function(`return ${literal}`)()
}

function rowsOf(value: unknown): (number | string)[][] {
  if (!Array.isArray(value)) return [[value as number | string]]
  return Array.isArray(value[0]) ? value : [value]
}

export function readAnswers(chapter: Chapter): PredictionAnswer[] {
  const solution = readFileSync(resolve(root, 'chapters', chapter.slug, 'solution.cpp'), 'utf8')
  const tests = readFileSync(resolve(root, 'tests/exercises', `${chapter.slug}.cpp`), 'utf8')
  const functions = /((?:^\/\/.*\n)+)[\w:<>]+ predicted_\w+\(\) \{\s*return ([^;]*);\s*\}/gm
  return [...solution.matchAll(functions)].flatMap(([, comment, expression]) => {
    const text = comment.replace(/^\/\/ ?/gm, '').replace(/\s+/g, ' ').trim()
    const match = /^Exercise (\d+\.\d+) — (?:predict\S* )?(.*)$/.exec(text)
    if (!match) return []
    const [, exercise, why] = match
    const test = tests.split('TEST_CASE(').find(part => part.startsWith(`"${exercise} predict`))
    if (!test) throw new Error(`tests/exercises/${chapter.slug}.cpp does not test the prediction ${exercise}`)
    const tolerance = Number(/CHECK_CLOSE\([^;]*,\s*([\d.e-]+)\);/.exec(test)?.[1] ?? 0)
    return { exercise, rows: rowsOf(valueOf(expression)), tolerance, why }
  })
}

export function predictionsPlugin(markdown: MarkdownIt, { chapters }: { chapters: readonly Chapter[] }) {
  const answers = chapters.flatMap(readAnswers)
  const { escapeHtml } = markdown.utils

  markdown.core.ruler.push('predictions', (state) => {
    const { tokens } = state
    for (let i = tokens.length - 1; i >= 0; --i) {
      const match = /^Exercise (\d+\.\d+) — (\w+)/.exec(tokens[i].content)
      if (tokens[i].type !== 'inline' || tokens[i - 1].type !== 'heading_open' || !match) continue

      // After the question: before the hints, or the next heading.
      let end = i + 1
      const isEnd = () => tokens[end].type === 'heading_open' || tokens[end].content.startsWith('<details')
      while (end < tokens.length && !isEnd()) ++end
      const block = new state.Token('html_block', '', 0)
      if (match[2] === 'predict') {
        const answer = answers.find(({ exercise }) => exercise === match[1])
        if (!answer) throw new Error(`no function predicted_... in solution.cpp answers exercise ${match[1]}`)
        block.content = `<Prediction :answer="${escapeHtml(JSON.stringify(answer))}" />\n`
      } else {
        const chapter = match[1].split('.')[0]
        block.content = `<p class="exercise-command">Check on your machine: <code>./learn exercise ${chapter}</code></p>\n`
      }
      tokens.splice(end, 0, block)
    }
  })
}
