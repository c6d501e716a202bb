// Mermaid blocks become the drawings in assets/diagrams, which `npm run diagrams` makes.
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import type MarkdownIt from 'markdown-it'
import type { Token } from 'markdown-it/index.js'
import { root } from '../chapters'
import { pageOf } from './links'

export function hashOf(source: string): string {
  return createHash('sha256').update(source.trim()).digest('hex').slice(0, 16)
}

export function diagramFile(page: string, number: number): string {
  return `assets/diagrams/${basename(page, '.md')}_${number}.svg`
}

function readDrawing(page: string, number: number, source: string): string {
  const file = diagramFile(page, number)
  const drawing = existsSync(resolve(root, file)) ? readFileSync(resolve(root, file), 'utf8') : ''
  if (!drawing.includes(`data-source="${hashOf(source)}"`))
    throw new Error(`${page}: ${file} does not show the page's diagram: npm --prefix docs run diagrams`)
  return drawing
}

// The description of a diagram: its accTitle, or the text before it.
function describe(tokens: Token[], index: number): string {
  const title = /^\s*accTitle:\s*(.*)$/m.exec(tokens[index].content)
  if (title) return title[1]
  const text = tokens.slice(0, index).reverse().find(token => token.type === 'inline')
  return (text?.children ?? []).map(token => token.content).join('').replace(/:$/, '')
}

export function diagramsPlugin(markdown: MarkdownIt) {
  const renderFence = markdown.renderer.rules.fence!
  markdown.renderer.rules.fence = (tokens, index, options, env, self) => {
    if (tokens[index].info !== 'mermaid') return renderFence(tokens, index, options, env, self)
    const diagrams = tokens.filter(token => token.type === 'fence' && token.info === 'mermaid')
    const number = diagrams.indexOf(tokens[index]) + 1
    const drawing = readDrawing(pageOf(env), number, tokens[index].content)
    const label = markdown.utils.escapeHtml(describe(tokens, index))
    // Wide drawings scroll: text of less than 10.5 pixels cannot be read.
    const width = Number(/ width="([\d.]+)"/.exec(drawing)?.[1] ?? 0)
    const svg = drawing.replace('<svg ', `<svg style="min-width: ${Math.round(0.68 * width)}px" `)
    const content = markdown.utils.escapeHtml(JSON.stringify(svg))
    return `<div class="diagram" role="img" tabindex="0" aria-label="${label}" v-html="${content}"></div>\n`
  }
}
