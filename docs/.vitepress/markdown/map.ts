// The map of the model on top of a page becomes a component with links. The first page
// has it above the table of paths, the README above that of chapters.
import type MarkdownIt from 'markdown-it'
import { pageOf } from './links'

export function mapPlugin(markdown: MarkdownIt) {
  markdown.core.ruler.push('map', ({ tokens, env, Token }) => {
    for (const token of tokens) {
      if (token.type !== 'fence' || token.info !== 'text' || !token.content.includes('tokens → embed')) continue
      const current = /▸(\d\d)/.exec(token.content)?.[1] // the walk has none
      token.type = 'html_block'
      token.content = current ? `<ModelMap current="${current}" />\n` : '<ModelMap />\n'
    }
    if (!['README.md', 'docs/index.md'].includes(pageOf(env))) return
    const map = new Token('html_block', '', 0)
    map.content = '<ModelMap />\n'
    tokens.splice(tokens.findIndex(({ type }) => type === 'table_open'), 0, map)
  })
}
