// Formulas between dollars, set when the site is built.
import { tex } from '@mdit/plugin-tex'
import katex from 'katex'
import type MarkdownIt from 'markdown-it'

export function mathPlugin(markdown: MarkdownIt) {
  markdown.use(tex, {
    render: (formula, displayMode) => {
      const html = katex.renderToString(formula, { displayMode, strict: 'error' })
      return displayMode ? `<p class="formula" v-pre tabindex="0">${html}</p>\n` : `<span v-pre>${html}</span>`
    },
  })
}
