// What ./learn ask loads on the website when the first question is asked: itself, its embedding model
// and the pages, which it searches.
import { readdir, stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import { root } from '../chapters'
import { assetPaths } from '../live/assets'

interface AskFiles {
  pages: string[] // "05_gqa.md"
  bytes: number // of all files
}
declare const data: AskFiles
export { data }

export default {
  watch: ['../../*.md'],
  async load(): Promise<AskFiles> {
    const pages = (await readdir(resolve(root, 'docs'))).filter(name => name.endsWith('.md'))
    const files = ['build-web/programs/ask.wasm', ...assetPaths('ask', []).map(path => `assets/${path}`),
      ...pages.map(page => `docs/${page}`)]
    const sizes = await Promise.all(files.map(async file => (await stat(resolve(root, file))).size))
    return { pages, bytes: sizes.reduce((sum, size) => sum + size, 0) }
  },
}
