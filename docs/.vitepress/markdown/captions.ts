// Below each block of code that stands in the tree: a link to its lines in the site's source pages.
import { readFileSync, readdirSync } from 'node:fs'
import { resolve } from 'node:path'
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
  const linesOfFile = new Map<string, string[]>()

  function linesOf(file: string): string[] {
    let lines = linesOfFile.get(file)
    if (!lines) linesOfFile.set(file, lines = trimmed(readFileSync(resolve(root, file), 'utf8')))
    return lines
  }

  // The files that the page links to before the block, the latest first; then those of its chapter.
  function candidates(tokens: Parameters<typeof renderFence>[0], index: number, page: string): string[] {
    const linked = tokens.slice(0, index).flatMap(token => token.children ?? [])
      .map(token => /^\/source\/(.*\.[ch]pp)\.html/.exec(token.attrGet('href') ?? '')?.[1])
      .filter(file => file !== undefined)
    const folder = `chapters/${/(\d\d_\w+)\.md$/.exec(page)?.[1]}`
    const own = folder.endsWith('undefined') ? [] : readdirSync(resolve(root, folder), { recursive: true })
      .map(name => `${folder}/${name}`).filter(file => /\.[ch]pp$/.test(file) && !/exercise|solution/.test(file))
    return [...linked.reverse(), ...own]
  }

  markdown.renderer.rules.fence = (tokens, index, options, env, self) => {
    if (tokens[index].info.trim() !== 'cpp') return renderFence(tokens, index, options, env, self)
    const excerpt = trimmed(tokens[index].content.trimEnd())
    tokens[index].content = withoutIndentation(tokens[index].content)
    const html = renderFence(tokens, index, options, env, self)
    for (const file of candidates(tokens, index, pageOf(env))) {
      const first = lineOf(excerpt, linesOf(file))
      if (first === 0) continue
      const last = first + excerpt.length - 1
      const name = file.slice(file.lastIndexOf('/') + 1)
      const lines = last > first ? `lines ${first}–${last}` : `line ${first}`
      const address = `${base}${sourceAddress(file).slice(1)}#L${first}-L${last}`
      return `${html}<p class="source"><a href="${address}" target="_self">${name}, ${lines}</a></p>\n`
    }
    return html
  }
}
