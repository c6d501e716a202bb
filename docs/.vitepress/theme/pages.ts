// The pages of the chapters, by their numbers, as the sidebar has them.
import { useData } from 'vitepress'

interface Page {
  text: string // "05 · Attention ..."
  link: string
}

export function usePages() {
  const { theme } = useData()
  const pages: Page[] = theme.value.sidebar.flatMap((group: { items: Page[] }) => group.items)
  return { pageOf: (chapter: string) => pages.find(({ text }) => text.startsWith(`${chapter} · `)) }
}
