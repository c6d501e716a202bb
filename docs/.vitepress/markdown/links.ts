// Links of the pages, which are written for a forge: relative to the file that contains them.
import { posix } from 'node:path'
import type MarkdownIt from 'markdown-it'
import { root } from '../chapters'
import { isShown, sourceAddress } from '../sources'

// The anchor of a heading on GitHub.
export function githubSlug(heading: string): string {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '').replace(/ /g, '-')
}

// The address in the site of `target`, a link on the page `page` (both relative to the project).
export function siteLink(target: string, page: string): string {
  if (/^([a-z]+:|#)/i.test(target)) return target
  const [path, anchor] = target.split('#')
  const file = posix.join(posix.dirname(page), path)
  const hash = anchor === undefined ? '' : `#${anchor}`
  if (file === 'README.md') return `/readme.md${hash}`
  const name = /^docs\/(\w+)\.md$/.exec(file)
  if (name) return `/${name[1]}.md${hash}`
  if (!isShown(file)) throw new Error(`${page}: the site has no page for ${target}`)
  return `${sourceAddress(file)}${hash}`
}

// The page that is rendered, relative to the project. The search index passes only `path`.
export function pageOf(env: { path: string, realPath?: string }): string {
  return posix.relative(root, env.realPath ?? env.path)
}

export function linksPlugin(markdown: MarkdownIt) {
  markdown.core.ruler.push('site_links', ({ tokens, env }) => {
    const page = pageOf(env)
    for (const token of tokens.flatMap(token => token.children ?? [])) {
      const target = token.type === 'link_open' ? token.attrGet('href') : null
      if (target === null) continue
      const link = siteLink(target, page)
      token.attrSet('href', link)
      if (link.startsWith('/source/')) token.attrSet('target', '_self') // no page of VitePress
    }
  })
}
