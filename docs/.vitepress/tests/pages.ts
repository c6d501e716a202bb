// The live cells of the pages, as the Markdown plugin finds them.
import { existsSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import MarkdownIt from 'markdown-it'
import { readChapters, root } from '../chapters'
import type { Command } from '../live/command'
import type { ControlRequest } from '../live/controls'
import { livePlugin } from '../markdown/live'

export interface PageCell {
  line: number // of the block in the page
  command: Command
  excerpt: string[]
  controls: ControlRequest[]
  isVolatile: boolean
}

export const chapters = readChapters()

export function renderPage(text: string, path: string): string {
  const markdown = new MarkdownIt({ html: true })
  markdown.use(livePlugin, { chapters })
  return markdown.render(text, { path })
}

export function cellsOf(slug: string): PageCell[] {
  const path = resolve(root, 'docs', `${slug}.md`)
  const markdown = new MarkdownIt({ html: true })
  markdown.use(livePlugin, { chapters })
  return markdown.parse(readFileSync(path, 'utf8'), { path })
    .filter(token => token.content.startsWith('<LiveCell'))
    .map((token) => {
      const attribute = (name: string) => {
        const json = new RegExp(` :${name}="([^"]*)"`).exec(token.content)![1]
        return JSON.parse(json.replace(/&quot;/g, '"').replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&amp;/g, '&'))
      }
      return {
        line: token.map![0] + 1,
        command: attribute('command'),
        excerpt: attribute('excerpt'),
        controls: attribute('controls'),
        isVolatile: attribute('is-volatile'),
      }
    })
}

export function nativeProgram(slug: string): string | null {
  const program = resolve(root, 'build', slug)
  return existsSync(program) ? program : null
}
