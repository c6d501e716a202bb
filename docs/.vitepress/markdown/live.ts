// Turns console blocks that show a program's output into live cells, and images of a program's
// figures into live figures. Both contain what the page shows without JavaScript.
import { posix } from 'node:path'
import type MarkdownIt from 'markdown-it'
import type Token from 'markdown-it/lib/token.mjs'
import type { Chapter } from '../chapters'
import { splitWords, type Command } from '../live/command'
import { parseControls } from '../live/controls'

type Env = { path: string, realPath?: string }

// Options that name files of the reader's machine.
const localOptions = ['--model', '--tokenizer', '--text', '--train', '--folder', '--export', '--words', '--save']

// The program that a block's first line runs; null if the site cannot run it.
export function commandOf(line: string, chapters: readonly Chapter[]): Command | null {
  const words = splitWords(line)
  if (words[0] !== '$' || words[1] !== './learn' || !/^(\d+|walk)$/.test(words[2] ?? '')) return null
  const program = words[2] === 'walk' ? { slug: 'walk' } : chapters.find(({ number }) => Number(number) === Number(words[2]))
  let args = words.slice(3)
  const plots = args.indexOf('--plots')
  if (plots >= 0) args = args.filter((_, i) => i !== plots && i !== plots + 1)
  if (!program || args.some(arg => localOptions.includes(arg))) return null
  return { slug: program.slug, args }
}

interface Comments {
  tokens: Token[]
  controls: string
  isVolatile: boolean
}

// The comments on the lines before a token.
function commentsBefore(tokens: Token[], index: number): Comments {
  const comments: Comments = { tokens: [], controls: '', isVolatile: false }
  for (let i = index - 1; i >= 0 && tokens[i].type === 'html_block'; --i) {
    const match = /^<!--\s*(controls:|volatile)\s*(.*?)\s*-->\s*$/s.exec(tokens[i].content)
    if (!match) break
    if (match[1] === 'volatile') comments.isVolatile = true
    else comments.controls = match[2]
    comments.tokens.push(tokens[i])
  }
  return comments
}

// The blocks right after a diff show the output of the changed program, which the site cannot run.
function showsAChange(tokens: Token[], index: number): boolean {
  for (let i = index - 1; i >= 0 && tokens[i].type === 'fence'; --i) {
    if (tokens[i].info.trim() === 'diff') return true
  }
  return false
}

export function livePlugin(markdown: MarkdownIt, { chapters }: { chapters: readonly Chapter[] }) {
  const { escapeHtml } = markdown.utils

  function attributes(values: Record<string, unknown>): string {
    return Object.entries(values)
      .map(([name, value]) => ` :${name}="${escapeHtml(JSON.stringify(value))}"`)
      .join('')
  }

  function htmlBlock(token: Token, html: string): Token {
    const block = Object.assign(Object.create(Object.getPrototypeOf(token)), token)
    return Object.assign(block, { type: 'html_block', tag: '', content: html, children: null, attrs: null })
  }

  function liveCell(tokens: Token[], index: number, pageSlug: string): Token[] | null {
    const token = tokens[index]
    if (token.type !== 'fence' || token.info.trim() !== 'console' || showsAChange(tokens, index)) return null
    const [first, ...excerpt] = token.content.trimEnd().split('\n')
    const command = commandOf(first, chapters)
    if (!command) return null
    const comments = commentsBefore(tokens, index)
    for (const comment of comments.tokens) comment.content = ''
    const open = attributes({
      command,
      excerpt,
      controls: comments.controls ? parseControls(comments.controls) : [],
      'is-volatile': comments.isVolatile,
      'is-own': command.slug === pageSlug || (command.slug === 'walk' && pageSlug === 'walk_through'),
    })
    // The cell shows the command in its bar.
    token.content = excerpt.join('\n') + '\n'
    token.info = 'text'
    return [htmlBlock(token, `<LiveCell${open}>\n`), token, htmlBlock(token, '</LiveCell>\n')]
  }

  // A paragraph with nothing but an image of a figure.
  function liveFigure(tokens: Token[], index: number): Token[] | null {
    const [open, inline, close] = tokens.slice(index, index + 3)
    if (open.type !== 'paragraph_open' || inline?.children?.length !== 1) return null
    const [image] = inline.children
    if (image.type !== 'image' || close.type !== 'paragraph_close') return null
    const file = posix.basename(image.attrGet('src') ?? '')
    const chapter = chapters.find(({ slug }) => file.startsWith(`${slug}_`))
    if (!chapter) return null
    const name = file.slice(chapter.slug.length + 1).replace(/\.\w+$/, '')
    const props = attributes({ slug: chapter.slug, name, alt: image.content })
    return [htmlBlock(open, `<LiveFigure${props}>\n`), inline, htmlBlock(close, '</LiveFigure>\n')]
  }

  markdown.core.ruler.push('live', (state) => {
    const env: Env = state.env
    const pageSlug = posix.basename(env.realPath ?? env.path ?? '', '.md')
    const tokens: Token[] = []
    for (let i = 0; i < state.tokens.length; ++i) {
      const cell = liveCell(state.tokens, i, pageSlug)
      const figure = cell ? null : liveFigure(state.tokens, i)
      tokens.push(...(cell ?? figure ?? [state.tokens[i]]))
      if (figure) i += 2
    }
    state.tokens = tokens
  })
}
