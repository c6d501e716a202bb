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

// The first number of each part.
const parts = [
  { first: 1, name: 'I · The block' },
  { first: 10, name: 'II · The model at work' },
  { first: 15, name: 'III · Fast' },
  { first: 17, name: 'IV · After Llama' },
  { first: 21, name: 'V · For many' },
]

const furtherPages = [
  { text: 'Questions', link: '/questions' },
  { text: 'Mistakes', link: '/mistakes' },
  { text: 'Notation and glossary', link: '/notation' },
  { text: 'xtensor', link: '/xtensor' },
  { text: 'Performance', link: '/performance' },
  { text: 'Contributing', link: '/contributing' },
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
  const groups = parts.map((part, index) => {
    const end = parts[index + 1]?.first ?? Infinity
    const items = chapters
      .filter(({ number }) => Number(number) >= part.first && Number(number) < end)
      .map(({ number, slug, title }) => ({ text: `${number} · ${title}`, link: `/${slug}` }))
    return { text: part.name, items }
  })
  return [...groups.filter(group => group.items.length > 0), { text: 'Further pages', items: furtherPages }]
}
