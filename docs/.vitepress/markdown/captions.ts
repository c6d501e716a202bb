// Below each block of code that stands in the tree, and each diff of it: a link to its lines in the
// site's source pages.
import { readFileSync, readdirSync } from 'node:fs'
import { posix, resolve } from 'node:path'
import type MarkdownIt from 'markdown-it'
import { root } from '../chapters'
import { sourceAddress } from '../sources'
import { pageOf } from './links'

const trimmed = (text: string) => text.split('\n').map(line => line.trim())

// An excerpt from the body of a function begins at the margin.
export function withoutIndentation(code: string): string {
  const indentations = code.split('\n').filter(line => line.trim()).map(line => line.search(/\S/))
  const common = Math.min(...indentations)
  return code.split('\n').map(line => line.slice(common)).join('\n')
}

// The first line, counted from 1, at which the excerpt stands in the lines of a file; 0 if nowhere.
export function lineOf(excerpt: string[], lines: string[]): number {
  for (let i = 0; i + excerpt.length <= lines.length; ++i) {
    if (excerpt.every((line, j) => line === lines[i + j])) return i + 1
  }
  return 0
}

export function captionsPlugin(markdown: MarkdownIt, { base }: { base: string }) {
  const renderFence = markdown.renderer.rules.fence!
  type Tokens = Parameters<typeof renderFence>[0]
  const linesOfFile = new Map<string, string[]>()

  function linesOf(file: string): string[] {
    let lines = linesOfFile.get(file)
    if (!lines) linesOfFile.set(file, lines = trimmed(readFileSync(resolve(root, file), 'utf8')))
    return lines
  }

  // The files that the page links to before the block, the latest first; then those of its chapter.
  function candidates(tokens: Tokens, index: number, page: string): string[] {
    const linked = tokens.slice(0, index).flatMap(token => token.children ?? [])
      .map(token => /^\/source\/(.*\.[ch]pp)\.html/.exec(token.attrGet('href') ?? '')?.[1])
      .filter(file => file !== undefined)
    const folder = `chapters/${/(\d\d_\w+)\.md$/.exec(page)?.[1]}`
    const own = folder.endsWith('undefined') ? [] : readdirSync(resolve(root, folder), { recursive: true })
      .map(name => `${folder}/${name}`).filter(file => /\.[ch]pp$/.test(file) && !/exercise|solution/.test(file))
    return [...linked.reverse(), ...own]
  }

  function caption(file: string, excerpt: string[]): string | null {
    const first = lineOf(excerpt, linesOf(file))
    if (first === 0) return null
    const last = first + excerpt.length - 1
    const lines = last > first ? `lines ${first}–${last}` : `line ${first}`
    const address = `${base}${sourceAddress(file).slice(1)}#L${first}-L${last}`
    return `<p class="source"><a href="${address}" target="_self">${posix.basename(file)}, ${lines}</a></p>\n`
  }

  function captionOfCode(tokens: Tokens, index: number, page: string): string {
    const excerpt = trimmed(tokens[index].content.trimEnd())
    for (const file of candidates(tokens, index, page)) {
      const html = caption(file, excerpt)
      if (html) return html
    }
    return ''
  }

  // The lines that a diff removes.
  function captionOfDiff(diff: string): string {
    const [header, ...lines] = diff.split('\n')
    const file = /^--- (\S+\.[ch]pp)$/.exec(header)?.[1]
    const removed = lines.filter(line => line.startsWith('-')).map(line => line.slice(1).trim())
    return file && removed.length > 0 && caption(file, removed) || ''
  }

  markdown.renderer.rules.fence = (tokens, index, options, env, self) => {
    const token = tokens[index]
    const language = token.info.trim()
    const link = language === 'cpp' ? captionOfCode(tokens, index, pageOf(env))
      : language === 'diff' ? captionOfDiff(token.content) : ''
    if (language === 'cpp') token.content = withoutIndentation(token.content)
    return renderFence(tokens, index, options, env, self) + link
  }
}
