// Images have their size, so that the text does not move when they are loaded. Wide ones scroll
// in a narrow window: the text in them could not be read if they were smaller.
import { readFileSync } from 'node:fs'
import { posix, resolve } from 'node:path'
import type MarkdownIt from 'markdown-it'
import { root } from '../chapters'
import { pageOf } from './links'

function sizeOf(file: string): { width: number, height: number } | null {
  const bytes = readFileSync(resolve(root, file))
  if (file.endsWith('.png')) return { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) }
  const size = /<svg[^>]*\bwidth="([\d.]+)"\s+height="([\d.]+)"/.exec(bytes.subarray(0, 2000).toString())
  return size && { width: Number(size[1]), height: Number(size[2]) }
}

export function imagesPlugin(markdown: MarkdownIt) {
  markdown.core.ruler.push('image_sizes', ({ tokens, env }) => {
    for (const token of tokens.flatMap(token => token.children ?? [])) {
      const source = token.type === 'image' && token.attrGet('src')
      if (!source || /^[a-z]+:/i.test(source)) continue
      const size = sizeOf(posix.join(posix.dirname(pageOf(env)), source))
      if (!size) continue
      token.attrSet('width', String(size.width))
      token.attrSet('height', String(size.height))
      token.attrSet('style', `min-width: ${Math.round(0.55 * size.width)}px`)
    }
  })
  const renderImage = markdown.renderer.rules.image!
  markdown.renderer.rules.image = (tokens, index, ...rest) => {
    const isWide = Number(tokens[index].attrGet('width')) > 600
    const html = renderImage(tokens, index, ...rest)
    return isWide ? `<span class="wide" tabindex="0">${html}</span>` : html
  }
}
