// The pages of the chapters, by their numbers, as the sidebar has them.
import { useData } from 'vitepress'

interface Page {
  text: string // "05 · Attention ..."
  link: string
}

export function usePages() {
  const { theme } = useData()
  const pages: Page[] = theme.value.sidebar.flatMap((group: { items: Page[] }) => group.items)
  // "17" and "long context", of the link "/17_long_context".
  const allChapters = pages.flatMap(({ link }) => {
    const chapter = /^\/(\d\d)_(.*)$/.exec(link)
    return chapter ? [{ number: chapter[1], name: chapter[2].replaceAll('_', ' ') }] : []
  })
  return { allChapters, pageOf: (chapter: string) => pages.find(({ text }) => text.startsWith(`${chapter} · `)) }
}
