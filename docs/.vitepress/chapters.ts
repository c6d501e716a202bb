// The chapters and further pages of the book, read from the pages themselves.
import { readdirSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = resolve(fileURLToPath(import.meta.url), '../../..')

export interface Chapter {
  number: string // "05"
  slug: string // "05_gqa"
  title: string // "Attention and grouped-query attention (GQA)"
}

// The parts and their chapters: chapters/contents.txt has lines such as "04_rope | I The block | How ... ?".
const rows = readFileSync(resolve(root, 'chapters/contents.txt'), 'utf8')
  .split('\n').filter(line => /^\d/.test(line)).map(line => line.split(' | '))
const parts = [...new Set(rows.map(([, part]) => part))]

const furtherPages = [
  { text: 'A walk through the whole model', link: '/walk_through' },
  { text: 'The anatomy of open models', link: '/anatomy' },
  { text: 'README: commands, folders', link: '/readme' },
  { text: 'The server: ./learn serve', link: '/server' },
  { text: 'Train a model of your own', link: '/train' },
  { text: 'A model that answers', link: '/answers' },
  { text: 'Experiments', link: '/experiments' },
  { text: 'Is my run normal?', link: '/is_my_run_normal' },
  { text: 'Questions', link: '/questions' },
  { text: 'Mistakes', link: '/mistakes' },
  { text: 'Notation and glossary', link: '/notation' },
  { text: 'xtensor', link: '/xtensor' },
  { text: 'Performance', link: '/performance' },
  { text: 'Contributing', link: '/contributing' },
  { text: 'Changelog', link: '/changelog' },
]

export function readChapters(): Chapter[] {
  const pages = readdirSync(resolve(root, 'docs')).filter(name => /^\d\d_.*\.md$/.test(name)).sort()
  return pages.map((page) => {
    const heading = /^# (\d\d) · (.*)$/m.exec(readFileSync(resolve(root, 'docs', page), 'utf8'))
    if (!heading) throw new Error(`docs/${page} has no heading "# NN · Title"`)
    return { number: heading[1], slug: page.replace('.md', ''), title: heading[2] }
  })
}

export function sidebar(chapters: Chapter[]) {
  const groups = parts.map((part) => {
    const items = rows.filter(row => row[1] === part).map(([slug]) => {
      const chapter = chapters.find(other => other.slug === slug)
      if (!chapter) throw new Error(`chapters/contents.txt lists ${slug}, which has no page`)
      return { text: `${chapter.number} · ${chapter.title}`, link: `/${slug}` }
    })
    return { text: part.replace(' ', ' · '), items }
  })
  return [...groups, { text: 'Further pages', items: furtherPages }]
}
